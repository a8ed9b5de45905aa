//! The candidate with the fewest requests in flight.

use spillway_types::Inquiry;

use super::Choose;
use crate::field::{Field, Usable};
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Looks at every candidate; equal ones take turns. One that warms up counts for the part of a
/// candidate that it is.
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
        let load =
            |usable: &Usable| (f64::from(usable.in_flight) + 1.0) / f64::from(usable.ramp_permille);
        field.least(moment, load).map(|usable| usable.because(Reason::Lightest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_world::{World, any_world, assert_proportional};
    use crate::{Candidate, Policy, Reason};

    proptest! {
        #[test]
        fn nobody_usable_has_fewer_in_flight_for_its_ramp(
            mut world in any_world(Just(Policy::LeastConnections)),
            ticket: u64,
        ) {
            world.session = None;
            let usable = world.usable();
            prop_assume!(!usable.is_empty());
            let carried = |candidate: &Candidate| {
                let in_flight = world.loads.in_flight[candidate.slot.index()];
                f64::from(in_flight + 1) / f64::from(candidate.ramp_permille)
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
        let mut world = World::idle(Policy::LeastConnections, &[1; 100]);
        world.loads.in_flight.fill(1);
        for slot in [0, 1, 99] {
            world.loads.in_flight[slot] = 0;
        }
        let chosen = world.tally(9_000);
        assert_proportional(&[chosen[0], chosen[1], chosen[99]], &[1.0; 3]);
        assert_eq!(chosen.iter().sum::<u64>(), chosen[0] + chosen[1] + chosen[99]);
    }

    #[test]
    fn requests_that_stay_fill_replicas_evenly_but_those_that_warm_up_less() {
        let mut world =
            World::ramping(Policy::LeastConnections, &[(3, 1_000), (1, 1_000), (7, 500)]);
        for ticket in 0..500 {
            let slot = world.attempt(ticket).slot;
            world.loads.in_flight[slot.index()] += 1;
        }
        assert_eq!(world.loads.in_flight, [200, 200, 100]);
    }
}
