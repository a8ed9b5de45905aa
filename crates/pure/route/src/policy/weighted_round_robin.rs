//! Weighted round robin: turns in proportion to weight, spread evenly.

use spillway_types::Inquiry;

use super::choose::Choose;
use crate::field::Field;
use crate::smooth_schedule::SmoothSchedule;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that follows a schedule made in advance, so that no turn needs a lock or a shared
/// balance.
///
/// The turn of an unusable candidate is drawn among the others in proportion to their weights.
#[derive(Debug)]
pub(super) struct WeightedRoundRobin {
    schedule: SmoothSchedule,
}

impl WeightedRoundRobin {
    pub(super) fn prepare(candidates: &[Candidate], _tuning: &Tuning) -> Self {
        let weights: Vec<u64> = candidates.iter().map(Candidate::effective_weight).collect();
        Self { schedule: SmoothSchedule::new(&weights) }
    }
}

impl Choose for WeightedRoundRobin {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        if let Some(usable) = field.usable(self.schedule.turn(moment.ticket)?) {
            return Some(usable.because(Reason::Turn));
        }
        let substitute = field
            .draw_usable(|| self.schedule.turn(moment.rng.u64(..)))
            .or_else(|| field.draw_of_all(moment.rng, |usable| usable.weight as f64));
        substitute.map(|usable| usable.because(Reason::Substitute))
    }
}

#[cfg(test)]
mod tests {
    use crate::test_world::{World, assert_proportional};
    use crate::{Policy, Reason};

    #[test]
    fn shares_are_exact_over_a_period() {
        let mut world = World::idle(Policy::WeightedRoundRobin, &[10, 2, 2, 6]);
        assert_eq!(world.tally(10), [5, 1, 1, 3]);
        assert_eq!(world.attempt(0).reason, Reason::Turn);
    }

    #[test]
    fn the_turns_of_a_busy_one_fall_to_the_others_by_weight() {
        let mut world = World::idle(Policy::WeightedRoundRobin, &[4, 3, 2, 1]);
        world.loads.in_flight[0] = u32::MAX;
        let mut drawn = [0; 4];
        for ticket in 0..50_000 {
            let attempt = world.attempt(ticket);
            drawn[attempt.slot.index()] += u64::from(attempt.reason == Reason::Substitute);
        }
        assert_eq!(drawn.iter().sum::<u64>(), 20_000);
        assert_proportional(&drawn, &[0.0, 3.0, 2.0, 1.0]);
    }

    #[test]
    fn the_few_free_ones_of_many_share_by_weight() {
        let mut weights = vec![50; 500];
        weights.extend([3, 2, 1]);
        let mut world = World::idle(Policy::WeightedRoundRobin, &weights);
        world.loads.in_flight[..500].fill(u32::MAX);
        assert_proportional(&world.tally(20_000)[500..], &[3.0, 2.0, 1.0]);
    }
}
