//! The candidate with the least load for its weight.

use spillway_types::Inquiry;

use super::Choose;
use crate::field::Field;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Looks at every candidate; equal ones take turns.
#[derive(Debug)]
pub(super) struct WeightedLeastConnections;

impl WeightedLeastConnections {
    pub(super) fn prepare(_candidates: &[Candidate], _tuning: &Tuning) -> Self {
        Self
    }
}

impl Choose for WeightedLeastConnections {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        field.lightest(moment).map(|usable| usable.because(Reason::Lightest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_world::{World, any_world, assert_proportional};
    use crate::{Candidate, Policy, Reason};

    proptest! {
        #[test]
        fn nobody_usable_would_carry_less_for_its_weight(
            mut world in any_world(Just(Policy::WeightedLeastConnections)),
            ticket: u64,
        ) {
            world.session = None;
            let usable = world.usable();
            prop_assume!(!usable.is_empty());
            let carried = |candidate: &Candidate| {
                let in_flight = world.loads.in_flight[candidate.slot.index()];
                f64::from(in_flight + 1) / candidate.effective_weight() as f64
            };
            let lightest = usable.iter().map(carried).fold(f64::INFINITY, f64::min);
            let lightest_ones: Vec<_> =
                usable.iter().filter(|candidate| carried(candidate) == lightest).collect();
            let slots: Vec<_> = lightest_ones.iter().map(|candidate| candidate.slot).collect();
            let all = world.group.candidates();
            let turn = all[(ticket % all.len() as u64) as usize].slot;
            let attempt = world.attempt(ticket);
            prop_assert!(slots.contains(&attempt.slot));
            prop_assert!(attempt.slot == turn || !slots.contains(&turn));
            let is_only = world.group.candidates().len() == 1;
            let reason = if is_only { Reason::Only } else { Reason::Lightest };
            prop_assert_eq!(attempt.reason, reason);
        }
    }

    #[test]
    fn equal_ones_share_evenly_wherever_they_stand() {
        let mut world = World::idle(Policy::WeightedLeastConnections, &[1; 100]);
        world.loads.in_flight.fill(1);
        for slot in [0, 1, 99] {
            world.loads.in_flight[slot] = 0;
        }
        let chosen = world.tally(9_000);
        assert_proportional(&[chosen[0], chosen[1], chosen[99]], &[1.0; 3]);
        assert_eq!(chosen.iter().sum::<u64>(), chosen[0] + chosen[1] + chosen[99]);
    }

    #[test]
    fn requests_that_stay_fill_replicas_in_proportion_to_weight() {
        let mut world = World::idle(Policy::WeightedLeastConnections, &[3, 1, 2]);
        for ticket in 0..600 {
            let slot = world.attempt(ticket).slot;
            world.loads.in_flight[slot.index()] += 1;
        }
        assert_eq!(world.loads.in_flight, [300, 100, 200]);
    }
}
