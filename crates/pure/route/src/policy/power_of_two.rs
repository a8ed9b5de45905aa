//! Power of two choices: the lighter of two random candidates.

use spillway_types::Inquiry;

use super::choose::Choose;
use crate::field::{Field, Usable};
use crate::{Attempt, Candidate, Moment, Reason, Tuning};

/// Pairs that are drawn in search of two usable candidates.
const PAIRS: usize = 4;

/// Policy that compares two drawn candidates; if fewer than two of the drawn ones are usable, it
/// takes what it found.
#[derive(Debug)]
pub(super) struct PowerOfTwo;

impl PowerOfTwo {
    pub(super) fn prepare(_candidates: &[Candidate], _tuning: &Tuning) -> Self {
        Self
    }
}

impl Choose for PowerOfTwo {
    fn choose(
        &self,
        _inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        if field.len() == 0 {
            return None;
        }
        // There are at least two: a group of one chooses without its policy.
        let mut found: Option<Usable> = None;
        for index in (0..PAIRS).flat_map(|_| distinct_pair(field.len(), moment.rng)) {
            let Some(usable) = field.usable(index) else { continue };
            match found {
                // Pairs may overlap: the candidate found before may be drawn again.
                Some(first) if first.index != index => return Some(lighter(first, usable)),
                _ => found = Some(usable),
            }
        }
        // Nearly all candidates are at their limits now, so a search for room is worth its cost.
        let substitute = found.or_else(|| field.lightest(moment));
        substitute.map(|usable| usable.because(Reason::Substitute))
    }
}

/// Returns two different indexes below `count`, which is at least 2; every ordered pair is equally
/// likely.
fn distinct_pair(count: usize, rng: &mut fastrand::Rng) -> [usize; 2] {
    let first = rng.usize(..count);
    let other = rng.usize(..count - 1);
    [first, if other < first { other } else { other + 1 }]
}

/// Returns the lighter one, or the first one, which is random, if they are equal.
fn lighter(first: Usable, second: Usable) -> Attempt {
    let lighter = if second.load() < first.load() { second } else { first };
    lighter.because(Reason::LighterOfTwo)
}

#[cfg(test)]
mod tests {
    use spillway_types::ReplicaSlot;

    use super::*;
    use crate::Policy;
    use crate::test_world::{World, assert_proportional};

    #[test]
    fn of_two_replicas_the_lighter_one_is_always_taken() {
        let mut world = World::idle(Policy::PowerOfTwo, &[1, 1]);
        world.loads.in_flight = vec![4, 3];
        assert_eq!(world.tally(1_000), [0, 1_000]);
        assert_eq!(world.attempt(0).reason, Reason::LighterOfTwo);
    }

    #[test]
    fn each_pair_is_drawn_alike_and_won_by_its_lighter_half() {
        let mut world = World::idle(Policy::PowerOfTwo, &[1; 6]);
        world.loads.in_flight = vec![5, 0, 3, 1, 4, 2];
        // Of the 15 pairs, a replica wins those with each heavier replica.
        assert_proportional(&world.tally(60_000), &[0.0, 5.0, 2.0, 4.0, 1.0, 3.0]);
    }

    #[test]
    fn equal_replicas_share_evenly() {
        let mut world = World::idle(Policy::PowerOfTwo, &[2; 7]);
        assert_proportional(&world.tally(60_000), &[1.0; 7]);
    }

    #[test]
    fn one_usable_replica_is_not_compared_with_itself() {
        let mut world = World::idle(Policy::PowerOfTwo, &[1, 1]);
        world.loads.in_flight[0] = u32::MAX;
        for ticket in 0..20 {
            let attempt = world.attempt(ticket);
            assert_eq!((attempt.slot, attempt.reason), (ReplicaSlot(1), Reason::Substitute));
        }
    }

    #[test]
    fn load_counts_in_proportion_to_weight() {
        let mut world = World::idle(Policy::PowerOfTwo, &[1, 4]);
        world.loads.in_flight = vec![2, 10];
        assert_eq!(world.tally(100), [0, 100], "11 of 4 is less than 3 of 1");
        world.loads.in_flight = vec![2, 12];
        assert_eq!(world.tally(100), [100, 0], "13 of 4 is more than 3 of 1");
    }

    #[test]
    fn of_many_with_half_of_them_busy_two_usable_ones_are_compared() {
        let mut world = World::idle(Policy::PowerOfTwo, &[1; 40]);
        world.loads.in_flight[..20].fill(u32::MAX);
        world.loads.in_flight[39] = 1;
        let heaviest = world.tally(20_000)[39];
        // If seven or eight of the eight drawn are busy, a single one is left without a rival.
        assert!(heaviest < 200, "the heaviest was taken {heaviest} times");
    }

    #[test]
    fn a_pair_is_two_different_indexes_and_every_pair_occurs() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut counts = [0; 20];
        for _ in 0..40_000 {
            let [first, other] = distinct_pair(5, &mut rng);
            assert_ne!(first, other);
            counts[first * 4 + if other < first { other } else { other - 1 }] += 1;
        }
        assert_proportional(&counts, &[1.0; 20]);
    }
}
