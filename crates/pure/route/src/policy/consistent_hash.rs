//! Consistent hash: the candidate that the request's key prefers.

use spillway_types::Inquiry;

use super::choose::Choose;
use super::power_of_two::PowerOfTwo;
use crate::field::{Field, Usable};
use crate::rendezvous::{Preferred, Rendezvous};
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Policy that keeps requests with one key together for as long as their replica is usable.
#[derive(Debug)]
pub(super) struct ConsistentHash {
    order: Rendezvous,
    /// Policy for requests without a key: no cache has their prompt, so load alone decides.
    keyless: PowerOfTwo,
}

impl ConsistentHash {
    pub(super) fn prepare(candidates: &[Candidate], tuning: &Tuning) -> Self {
        Self {
            order: Rendezvous::new(candidates),
            keyless: PowerOfTwo::prepare(candidates, tuning),
        }
    }

    /// Returns the key's preferred one among the candidates that `accept` turns into usable ones.
    pub(super) fn prefer(
        &self,
        key: u64,
        accept: impl FnMut(usize) -> Option<Usable>,
    ) -> Option<Attempt> {
        let Preferred { accepted, is_first } = self.order.prefer(key, accept)?;
        Some(accepted.because(if is_first { Reason::Preferred } else { Reason::Substitute }))
    }

    /// Chooses for a request without a key.
    pub(super) fn choose_keyless(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        self.keyless.choose(inquiry, field, moment)
    }
}

impl Choose for ConsistentHash {
    fn choose(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        match inquiry.affinity {
            Some(key) => self.prefer(key, |index| field.usable(index)),
            None => self.choose_keyless(inquiry, field, moment),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::test_world::{World, any_world, assert_proportional};
    use crate::{Policy, Reason};

    proptest! {
        #[test]
        fn neither_chance_nor_turns_nor_load_below_the_limit_matter(
            mut world in any_world(Just(Policy::ConsistentHash)),
            key: u64,
            seed: u64,
            ticket: u64,
        ) {
            prop_assume!(!world.usable().is_empty());
            (world.affinity, world.session) = (Some(key), None);
            let slot = world.attempt(0).slot;
            world.rng.seed(seed);
            for candidate in world.usable() {
                world.loads.in_flight[candidate.slot.index()] = candidate.in_flight_max - 1;
            }
            prop_assert_eq!(world.attempt(ticket).slot, slot);
        }
    }

    #[test]
    fn the_keys_of_a_busy_replica_go_to_the_others_evenly_and_come_back() {
        let mut world = World::idle(Policy::ConsistentHash, &[1; 5]);
        let mut places = Vec::new();
        for key in 0..20_000 {
            world.affinity = Some(key);
            places.push(world.attempt(key).slot);
        }
        world.loads.in_flight[2] = u32::MAX;
        let mut taken_over = [0; 5];
        for (key, &place) in (0..).zip(&places) {
            world.affinity = Some(key);
            let attempt = world.attempt(key);
            if place.index() == 2 {
                assert_eq!(attempt.reason, Reason::Substitute);
                taken_over[attempt.slot.index()] += 1;
            } else {
                assert_eq!((attempt.slot, attempt.reason), (place, Reason::Preferred));
            }
        }
        assert_proportional(&taken_over, &[1.0, 1.0, 0.0, 1.0, 1.0]);
        world.loads.in_flight[2] = 0;
        for (key, &place) in (0..).zip(&places) {
            world.affinity = Some(key);
            assert_eq!(world.attempt(key).slot, place);
        }
    }

    #[test]
    fn requests_without_a_key_go_to_the_lighter_of_two() {
        for policy in [Policy::ConsistentHash, Policy::BoundedConsistentHash] {
            let mut world = World::idle(policy, &[1, 1]);
            world.affinity = None;
            world.loads.in_flight = vec![4, 3];
            assert_eq!(world.tally(100), [0, 100]);
            assert_eq!(world.attempt(0).reason, Reason::LighterOfTwo);
        }
    }
}
