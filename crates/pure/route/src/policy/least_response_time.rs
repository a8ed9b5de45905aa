//! Least response time: the candidate that is expected to reply soonest, by its peak EWMA.

use spillway_types::Inquiry;

use super::choose::{Choose, LATENCY_MS_MIN};
use crate::field::Field;
use crate::mean::Mean;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that expects a reply after the candidate's latency times its load per weight: the peak
/// EWMA of Finagle and Linkerd. Equal candidates take turns.
///
/// The requests in flight keep a fast candidate from getting everything until its latency is
/// measured again. An unknown latency is taken to be the mean of the others.
#[derive(Debug)]
pub(super) struct LeastResponseTime;

impl LeastResponseTime {
    pub(super) fn prepare(_candidates: &[Candidate], _tuning: &Tuning) -> Self {
        Self
    }
}

impl Choose for LeastResponseTime {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let mut latency_ms = Mean::default();
        for usable in field.all_usable() {
            latency_ms.add(field.signals(&usable).latency_ms);
        }
        let usual_ms = latency_ms.or(LATENCY_MS_MIN);
        let least = field.least(moment, |usable| {
            let latency_ms = field.signals(usable).latency_ms.or(usual_ms).max(LATENCY_MS_MIN);
            f64::from(latency_ms) * usable.load()
        });
        least.map(|usable| usable.because(Reason::Lightest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spillway_types::{Reading, ReplicaSlot};

    use crate::test_world::{World, any_world};
    use crate::{Candidate, Policy, Reason};

    fn with_latencies(weights: &[u32], latencies_ms: &[Option<f32>]) -> World {
        let mut world = World::idle(Policy::LeastResponseTime, weights);
        for (signals, value) in world.loads.signals.iter_mut().zip(latencies_ms) {
            let known = value.map(|value| Reading { value, trust: 1.0 });
            signals.latency_ms = known.unwrap_or(Reading::UNKNOWN);
        }
        world
    }

    proptest! {
        #[test]
        fn nobody_usable_would_take_less_time(
            world in any_world(Just(Policy::LeastResponseTime)),
            ticket: u64,
        ) {
            let mut world = World { session: None, ..world.all_warm() };
            let usable = world.usable();
            prop_assume!(usable.len() > 1);
            let reading = |c: &Candidate| world.loads.signals[c.slot.index()].latency_ms;
            let trust: f32 = usable.iter().map(|c| reading(c).trust).sum();
            let sum: f32 = usable.iter().map(|c| reading(c).value * reading(c).trust).sum();
            let mean = if trust > 0.0 { sum / trust } else { 1.0 };
            let cost = |c: &Candidate| {
                let in_flight = world.loads.in_flight[c.slot.index()];
                let latency_ms = f64::from(reading(c).or(mean).max(0.1));
                latency_ms * f64::from(in_flight + 1) / c.effective_weight() as f64
            };
            let least = usable.iter().map(cost).fold(f64::INFINITY, f64::min);
            let costs: Vec<_> = usable.iter().map(|c| (c.slot, cost(c))).collect();
            let attempt = world.attempt(ticket);
            let (_, own) = costs.into_iter().find(|(slot, _)| *slot == attempt.slot).unwrap();
            prop_assert!(own <= least * 1.001, "{own} > {least}");
            prop_assert_eq!(attempt.reason, Reason::Lightest);
        }
    }

    #[test]
    fn a_replica_half_as_fast_gets_half_as_many() {
        let mut world = with_latencies(&[1, 1], &[Some(50.0), Some(100.0)]);
        assert_eq!(world.serve(300, 300), [200, 100]);
        let mut world = with_latencies(&[1, 2], &[Some(50.0), Some(100.0)]);
        assert_eq!(world.serve(300, 300), [150, 150]);
    }

    #[test]
    fn an_unknown_latency_is_the_mean_of_the_others() {
        let mut world = with_latencies(&[1; 3], &[Some(100.0), Some(300.0), None]);
        assert_eq!(world.serve(1_100, 1_100), [600, 200, 300]);
    }

    #[test]
    fn a_latency_of_zero_does_not_draw_everything() {
        let mut world = with_latencies(&[1, 1], &[Some(0.0), Some(0.1)]);
        assert_eq!(world.serve(100, 100), [50, 50]);
        assert_eq!(world.attempt(7).slot, ReplicaSlot(1), "equal ones take turns");
    }
}
