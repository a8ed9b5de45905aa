//! Consistent hash with bounded loads (CHWBL): the key's preferred candidate among those within
//! their fair share.

use spillway_types::Inquiry;

use super::choose::Choose;
use super::consistent_hash::ConsistentHash;
use crate::fair_share::FairShare;
use crate::field::Field;
use crate::{Attempt, Candidate, Moment, Tuning};

/// Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016,
/// arXiv 1608.01350), with the key's own order of preference in the place of a ring.
#[derive(Debug)]
pub(super) struct BoundedConsistentHash {
    unbounded: ConsistentHash,
}

impl BoundedConsistentHash {
    pub(super) fn prepare(candidates: &[Candidate], tuning: &Tuning) -> Self {
        Self { unbounded: ConsistentHash::prepare(candidates, tuning) }
    }
}

impl Choose for BoundedConsistentHash {
    fn choose(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let Some(key) = inquiry.affinity else {
            return self.unbounded.choose_keyless(inquiry, field, moment);
        };
        let share = FairShare::of(field);
        let with_room = |index| field.usable(index).filter(|usable| share.has_room(usable));
        // At least one usable candidate has room, unless loads have risen since they were summed
        // up.
        self.unbounded
            .prefer(key, with_room)
            .or_else(|| self.unbounded.prefer(key, |index| field.usable(index)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spillway_types::ReplicaSlot;

    use crate::test_world::{World, any_world};
    use crate::{Candidate, Policy, Reason};

    /// Returns the bound of each slot by the paper's formula, among the usable candidates.
    fn bound(world: &World, slot: ReplicaSlot) -> u32 {
        let usable = world.usable();
        let weight: u64 = usable.iter().map(Candidate::effective_weight).sum();
        let in_flight: u64 =
            usable.iter().map(|c| u64::from(world.loads.in_flight[c.slot.index()])).sum::<u64>()
                + 1;
        let own = usable.iter().find(|c| c.slot == slot).unwrap().effective_weight();
        u32::try_from((5 * in_flight * own).div_ceil(4 * weight)).unwrap()
    }

    proptest! {
        #[test]
        fn no_replica_gets_more_than_its_bound_and_nobody_is_turned_away(
            mut world in any_world(Just(Policy::BoundedConsistentHash)),
            steps in prop::collection::vec((0..4_u64, prop::bool::weighted(0.3)), 1..200),
        ) {
            world.loads.in_flight.fill(0);
            let mut placed = Vec::new();
            for (ticket, (key, ends)) in (0..).zip(steps) {
                if ends && !placed.is_empty() {
                    let slot: ReplicaSlot = placed.swap_remove(key as usize % placed.len());
                    world.loads.in_flight[slot.index()] -= 1;
                    continue;
                }
                if world.usable().is_empty() {
                    break;
                }
                world.affinity = Some(key);
                let slot = world.attempt(ticket).slot;
                if world.group.candidates().len() > 1 {
                    prop_assert!(world.loads.in_flight[slot.index()] < bound(&world, slot));
                }
                world.loads.in_flight[slot.index()] += 1;
                placed.push(slot);
            }
        }

        #[test]
        fn it_is_the_first_preference_that_has_room(
            mut world in any_world(Just(Policy::BoundedConsistentHash)),
            key: u64,
            ticket: u64,
        ) {
            prop_assume!(world.group.candidates().len() > 1 && !world.usable().is_empty());
            (world.affinity, world.session) = (Some(key), None);
            let attempt = world.attempt(ticket);
            // The unbounded policy follows the same order once the full candidates are struck out.
            let mut walker = world.under(Policy::ConsistentHash);
            let expected = loop {
                let next = walker.attempt(0);
                if world.loads.in_flight[next.slot.index()] < bound(&world, next.slot) {
                    break next;
                }
                walker.tried.push(next.slot);
            };
            prop_assert_eq!(attempt, expected);
        }
    }

    #[test]
    fn a_single_popular_key_is_spread_no_wider_than_it_must() {
        let mut world = World::idle(Policy::BoundedConsistentHash, &[1; 4]);
        let mut place = |ticket| {
            let attempt = world.attempt(ticket);
            world.loads.in_flight[attempt.slot.index()] += 1;
            (attempt.reason, world.loads.in_flight.clone())
        };
        let (_, mut loads) = (0..99).map(&mut place).last().unwrap();
        loads.sort_unstable();
        // ceil(1.25 * 99 / 4) = 31 on each of the first preferences, and the rest on the last one.
        assert_eq!(loads, [6, 31, 31, 31]);
        assert_eq!(place(99).0, Reason::Preferred, "of 100, a replica may carry 32");
        assert_eq!(place(100).0, Reason::Substitute, "the preferred one has them");
    }

    #[test]
    fn an_idle_group_gives_every_key_its_preference() {
        let mut world = World::idle(Policy::BoundedConsistentHash, &[3, 1, 8]);
        for key in 0..1_000 {
            world.affinity = Some(key);
            let expected = world.under(Policy::ConsistentHash).attempt(0);
            assert_eq!(world.attempt(key), expected);
            assert_eq!(expected.reason, Reason::Preferred);
        }
    }
}
