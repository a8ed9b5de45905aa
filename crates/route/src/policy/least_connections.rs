//! The candidate with the least load for its weight.

use spillway_types::Inquiry;

use super::Choose;
use crate::field::Field;
use crate::{Attempt, Candidate, Moment, Reason};

/// Looks at every candidate; equal ones take turns.
#[derive(Debug)]
pub(super) struct LeastConnections;

impl LeastConnections {
    pub(super) fn prepare(_candidates: &[Candidate]) -> Self {
        Self
    }
}

impl Choose for LeastConnections {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        field.lightest(moment.ticket).map(|usable| usable.because(Reason::Lightest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_world::{World, any_world};
    use crate::{Candidate, Policy, Reason};

    proptest! {
        #[test]
        fn nobody_usable_would_carry_less_for_its_weight(
            mut world in any_world(Just(Policy::LeastConnections)),
            ticket: u64,
        ) {
            let usable = world.usable();
            prop_assume!(!usable.is_empty());
            let carried = |candidate: &Candidate| {
                let in_flight = world.loads.0[candidate.slot.index()];
                f64::from(in_flight + 1) / f64::from(candidate.weight)
            };
            let lightest = usable.iter().map(carried).fold(f64::INFINITY, f64::min);
            let lightest_ones: Vec<_> =
                usable.iter().filter(|candidate| carried(candidate) == lightest).collect();
            let turn = lightest_ones[(ticket % lightest_ones.len() as u64) as usize].slot;
            let attempt = world.attempt(ticket);
            prop_assert_eq!(attempt.slot, turn);
            let is_only = world.group.candidates().len() == 1;
            let reason = if is_only { Reason::Only } else { Reason::Lightest };
            prop_assert_eq!(attempt.reason, reason);
        }
    }

    #[test]
    fn equal_ones_share_evenly_wherever_they_stand() {
        let mut world = World::idle(Policy::LeastConnections, &[1; 100]);
        world.loads.0.fill(1);
        for slot in [0, 1, 99] {
            world.loads.0[slot] = 0;
        }
        let chosen = world.tally(300);
        assert_eq!([chosen[0], chosen[1], chosen[99]], [100, 100, 100]);
    }

    #[test]
    fn requests_that_stay_fill_replicas_in_proportion_to_weight() {
        let mut world = World::idle(Policy::LeastConnections, &[3, 1, 2]);
        for ticket in 0..600 {
            let slot = world.attempt(ticket).slot;
            world.loads.0[slot.index()] += 1;
        }
        assert_eq!(world.loads.0, [300, 100, 200]);
    }
}
