//! Least connections: the fewest requests in flight, per weight if weights count.

use spillway_types::Inquiry;

use super::choose::Choose;
use crate::field::Field;
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that compares every candidate; equal ones take turns.
#[derive(Debug)]
pub(super) struct LeastConnections;

impl LeastConnections {
    pub(super) fn prepare(_candidates: &[Candidate], _tuning: &Tuning) -> Self {
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
        field.lightest(moment).map(|usable| usable.because(Reason::Lightest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_world::{World, any_world, assert_proportional};
    use crate::{Candidate, Policy, Reason};

    const BOTH: [Policy; 2] = [Policy::LeastConnections, Policy::WeightedLeastConnections];

    proptest! {
        #[test]
        fn nobody_usable_would_carry_less(
            world in any_world(prop::sample::select(&BOTH[..])),
            ticket: u64,
        ) {
            let mut world = World { session: None, ..world.all_warm() };
            let usable = world.usable();
            prop_assume!(!usable.is_empty());
            let is_weighted = world.group.policy() == Policy::WeightedLeastConnections;
            let carried = |candidate: &Candidate| {
                let in_flight = world.loads.in_flight[candidate.slot.index()];
                f64::from(in_flight + 1) / f64::from(if is_weighted { candidate.weight } else { 1 })
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
        for policy in BOTH {
            let mut world = World::idle(policy, &[1; 100]);
            world.loads.in_flight.fill(1);
            for slot in [0, 1, 99] {
                world.loads.in_flight[slot] = 0;
            }
            let chosen = world.tally(9_000);
            assert_proportional(&[chosen[0], chosen[1], chosen[99]], &[1.0; 3]);
            assert_eq!(chosen.iter().sum::<u64>(), chosen[0] + chosen[1] + chosen[99]);
        }
    }

    #[test]
    fn weights_count_for_one_of_the_two() {
        let filled = |policy| World::idle(policy, &[3, 1, 2]).serve(600, 600);
        assert_eq!(filled(Policy::WeightedLeastConnections), [300, 100, 200]);
        assert_eq!(filled(Policy::LeastConnections), [200; 3]);
    }
}
