//! Weighted draw by weight and measured p99.

use spillway_types::Inquiry;

use super::choose::{Choose, LATENCY_MS_MIN};
use crate::field::{Field, Usable};
use crate::mean::Mean;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Share of the requests that are drawn by weight alone.
///
/// A slow candidate gets only these to prove itself again: 0.4 % of its fair share. A p99 looks at
/// the slowest 1 % of the requests, and even if all but one candidate are slow, these requests stay
/// below half of that.
const TRIALS: f64 = 0.004;

/// Power of the p99 by which a candidate's chance falls.
///
/// With 3, one of four that is 10 times slower than its peers is drawn once in 3,000 times. With 2
/// it is drawn once in 300 times, and as often again while its p99 rises: 1.3 % of the requests in
/// the tests' closed loop, which is too much for a p99.
const POWER: i32 = 3;

/// Policy that draws two candidates in proportion to `weight / p99^3` and takes the lighter one.
///
/// A p99 lags seconds behind the load that causes it. A single draw goes on sending to candidates
/// that were fast while they had little to do. In the closed loop of the tests, four gateways then
/// drive each replica in turn into a p99 of 1,045 ms instead of 150.
#[derive(Debug)]
pub(super) struct P99Weighted;

impl P99Weighted {
    pub(super) fn prepare(_candidates: &[Candidate], _tuning: &Tuning) -> Self {
        Self
    }
}

impl Choose for P99Weighted {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        // Trial: otherwise a slow candidate would not get the requests that show its recovery.
        if moment.rng.f64() < TRIALS {
            let drawn = field.draw_of_all(moment.rng, |usable| usable.weight as f64)?;
            return Some(drawn.because(Reason::Drawn));
        }
        let mut p99_ms = Mean::default();
        for usable in field.all_usable() {
            p99_ms.add(field.signals(&usable).p99_ms);
        }
        let usual_ms = p99_ms.or(LATENCY_MS_MIN);
        // A p99 relative to the smallest one would give the same chances.
        let weigh = |usable: &Usable| {
            let p99_ms = field.signals(usable).p99_ms.or(usual_ms).max(LATENCY_MS_MIN);
            usable.weight as f64 / f64::from(p99_ms).powi(POWER)
        };
        let [first, second] = field.draws_of_all(moment.rng, weigh)?;
        let lighter = if second.load() < first.load() { second } else { first };
        Some(lighter.because(Reason::LighterOfTwo))
    }
}

#[cfg(test)]
mod tests {
    use spillway_types::Reading;

    use crate::test_world::{World, assert_proportional};
    use crate::{Policy, Reason};

    fn with_p99s(weights: &[u32], p99s_ms: &[f32]) -> World {
        let mut world = World::idle(Policy::P99Weighted, weights);
        for (signals, &value) in world.loads.signals.iter_mut().zip(p99s_ms) {
            signals.p99_ms = Reading { value, trust: 1.0 };
        }
        world
    }

    #[test]
    fn chances_fall_with_the_third_power_of_the_p99() {
        let mut world = with_p99s(&[1; 4], &[100.0, 200.0, 400.0, 100.0]);
        let drawn = |chance: f64| 0.996 * chance / 2.140_625 + 0.004 / 4.0;
        let shares = [1.0, 0.125, 0.015_625, 1.0].map(drawn);
        assert_proportional(&world.tally(60_000), &shares);
    }

    #[test]
    fn a_tenfold_p99_leaves_a_share_that_no_p99_sees() {
        let mut world = with_p99s(&[1; 4], &[1_000.0, 100.0, 100.0, 100.0]);
        let slow = world.serve(100_000, 8)[0];
        assert!((80..300).contains(&slow), "{slow} of 100,000");
    }

    #[test]
    fn all_slow_ones_together_stay_below_half_of_one_percent() {
        let mut p99s_ms = [100_000.0; 20];
        p99s_ms[7] = 100.0;
        let served = with_p99s(&[1; 20], &p99s_ms).serve(100_000, 0);
        assert!(served[7] >= 99_500, "{served:?}");
        assert!(served.iter().all(|&count| count > 0), "none is given up: {served:?}");
    }

    #[test]
    fn of_two_drawn_the_lighter_one_is_taken() {
        let mut world = with_p99s(&[1, 1], &[100.0, 100.0]);
        world.loads.in_flight = vec![5, 4];
        // The heavier one is chosen only if it is drawn twice, or in a trial.
        assert_proportional(&world.tally(60_000), &[0.996 / 4.0 + 0.002, 0.996 * 0.75 + 0.002]);
        let reasons: Vec<Reason> = (0..1_000).map(|ticket| world.attempt(ticket).reason).collect();
        assert!(reasons.contains(&Reason::LighterOfTwo) && reasons.contains(&Reason::Drawn));
    }

    #[test]
    fn an_unknown_p99_is_the_mean_of_the_others() {
        let mut world = with_p99s(&[1; 3], &[100.0, 300.0, 0.0]);
        world.loads.signals[2].p99_ms = Reading::UNKNOWN;
        let mut known = with_p99s(&[1; 3], &[100.0, 300.0, 200.0]);
        assert_eq!(world.tally(2_000), known.tally(2_000));
    }
}
