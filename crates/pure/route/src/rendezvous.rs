//! Consistent hashing by the highest random weight (rendezvous hashing).

use spillway_types::RAMP_FULL;

use crate::Candidate;

/// Order of preference over the positions of a group, for every key.
///
/// For each key, each position gets the arrival time of a clock that ticks at random at the rate of
/// its weight; the earliest is preferred. So a position is preferred by exactly its weight's share
/// of the keys, independently for each key. No time depends on another position, so a position that
/// comes, goes or changes its weight moves no keys but its own.
///
/// A ring with virtual nodes finds a position in `O(log n)`, but its shares are uneven by the
/// square root of the number of virtual nodes, weights multiply them, and a full position hands its
/// keys to a few neighbours on the ring. Here the next preference is as random as the first, so
/// that overflow spreads over all (Chen, Coleman and Shrivastava, "Revisiting consistent hashing
/// with bounded loads", 2021). A position takes 16 bytes. With 4, 64 and 1,000 candidates of mixed
/// weights a decision takes 80 ns, 270 ns and 1.4 µs, and 3.2 µs to find the only free one of 1,000
/// (`benches/plan.rs`).
#[derive(Debug)]
pub(crate) struct Rendezvous {
    positions: Vec<Position>,
}

#[derive(Clone, Copy, Debug)]
struct Position {
    identity: u64,
    /// Mean time to the first tick: the reciprocal of the weight.
    mean: f64,
}

/// Position that a key prefers among the acceptable ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preferred<T> {
    /// Result of `accept` for the position.
    pub(crate) accepted: T,
    /// True if the key prefers no other position to this one, acceptable or not.
    pub(crate) is_first: bool,
}

impl Rendezvous {
    /// Prepares the order for candidates by the weights that count now: during slow start, keys
    /// move to a candidate one by one, and none moves between the others.
    pub(crate) fn new(candidates: &[Candidate]) -> Self {
        let whole = f64::from(RAMP_FULL);
        Self::weighted(
            candidates
                .iter()
                .map(|candidate| (candidate.identity, candidate.effective_weight() as f64 / whole)),
        )
    }

    /// Prepares the order for positions given by identity and weight, which must be above 0.
    pub(crate) fn weighted(positions: impl Iterator<Item = (u64, impl Into<f64>)>) -> Self {
        let position = |(identity, weight): (u64, _)| Position {
            identity,
            mean: Into::<f64>::into(weight).recip(),
        };
        Self { positions: positions.map(position).collect() }
    }

    /// Returns the position that `key` prefers among those for which `accept` returns something.
    ///
    /// One pass in `O(n)`. `accept` is called only for positions that may be preferred to all it
    /// accepted before: about `log n` of them, if it accepts most.
    pub(crate) fn prefer<T>(
        &self,
        key: u64,
        mut accept: impl FnMut(usize) -> Option<T>,
    ) -> Option<Preferred<T>> {
        // Equal times are ordered by identity: the order of the group must not matter.
        let mut best: Option<((f64, u64), T)> = None;
        let mut earliest_refused = (f64::INFINITY, u64::MAX);
        for (index, &Position { identity, mean }) in self.positions.iter().enumerate() {
            let early = uniform(key, identity);
            let at_least = early * mean;
            // The bound alone rules this position out, without a logarithm.
            if best.as_ref().is_some_and(|((earliest, _), _)| at_least > *earliest) {
                continue;
            }
            let accepted = accept(index);
            // The exact time costs a logarithm: of many refused ones it is computed for the
            // earliest few.
            if accepted.is_none() && at_least > earliest_refused.0 {
                continue;
            }
            let arrival = (exponential(early) * mean, identity);
            match accepted {
                Some(accepted) if best.as_ref().is_none_or(|(earliest, _)| arrival < *earliest) => {
                    best = Some((arrival, accepted));
                }
                None if arrival < earliest_refused => earliest_refused = arrival,
                _ => {}
            }
        }
        best.map(|(arrival, accepted)| Preferred { accepted, is_first: arrival < earliest_refused })
    }
}

/// Returns a number from 0 up to, but not including, 1 that is random in each of its arguments.
///
/// Both are strong hashes already, and the key's is secret, so they only have to be mixed. The
/// mixer is the finalizer of `SplitMix64` (Steele, Lea and Flood, 2014).
pub(crate) fn uniform(key: u64, identity: u64) -> f64 {
    (mix(key, identity) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Mixes both numbers into one; all results are equally likely.
#[inline]
pub(crate) fn mix(key: u64, identity: u64) -> u64 {
    let mut bits = (key ^ identity).wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Turns a uniform number into an exponentially distributed one of mean 1, never less than the
/// uniform one.
fn exponential(uniform: f64) -> f64 {
    // Rounding must not undercut the bound that saves most logarithms.
    (-(-uniform).ln_1p()).max(uniform)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spillway_types::ReplicaSlot;

    use super::*;
    use crate::test_world::{assert_proportional, identity};

    fn group(weights: &[(u32, u32)]) -> Vec<Candidate> {
        let candidate = |&(number, weight): &(u32, u32)| Candidate {
            slot: ReplicaSlot(number),
            identity: identity(number),
            weight,
            ramp_permille: RAMP_FULL,
            in_flight_max: u32::MAX,
        };
        weights.iter().map(candidate).collect()
    }

    /// Returns the identity that a key prefers.
    fn first(candidates: &[Candidate], key: u64) -> Option<u64> {
        let preferred =
            Rendezvous::new(candidates).prefer(key, |index| Some(candidates[index].identity))?;
        assert!(preferred.is_first, "everything was accepted");
        Some(preferred.accepted)
    }

    fn keys(count: u64) -> impl Iterator<Item = u64> {
        let mut rng = fastrand::Rng::with_seed(5);
        (0..count).map(move |_| rng.u64(..))
    }

    /// Up to 30 replicas with different numbers.
    fn any_group() -> impl Strategy<Value = Vec<Candidate>> {
        let weight = prop_oneof![Just(1_u32), 1..1_000_u32];
        prop::collection::btree_map(0..1_000_u32, weight, 1..30)
            .prop_map(|weights| group(&weights.into_iter().collect::<Vec<_>>()))
    }

    proptest! {
        // Read backwards: a replica that joins takes keys, and none moves between the others.
        #[test]
        fn whoever_leaves_moves_its_own_keys_only(
            all in any_group(),
            leaver: prop::sample::Index,
            keys: [u64; 32],
        ) {
            let mut rest = all.clone();
            let gone = rest.remove(leaver.index(all.len()));
            for key in keys {
                let before = first(&all, key);
                if before != Some(gone.identity) {
                    prop_assert_eq!(first(&rest, key), before);
                }
            }
        }

        #[test]
        fn more_weight_takes_keys_and_gives_none(
            all in any_group(),
            grower: prop::sample::Index,
            keys: [u64; 32],
        ) {
            let mut changed = all.clone();
            let grown = &mut changed[grower.index(all.len())];
            grown.weight += 1 + grown.weight / 2;
            let identity = grown.identity;
            for key in keys {
                let after = first(&changed, key);
                prop_assert!(after == first(&all, key) || after == Some(identity));
            }
        }

        #[test]
        fn the_order_and_the_slots_of_a_group_do_not_matter(
            (all, mut shuffled) in any_group()
                .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
            keys: [u64; 32],
        ) {
            for (slot, candidate) in (0..).zip(&mut shuffled) {
                candidate.slot = ReplicaSlot(slot);
            }
            for key in keys {
                prop_assert_eq!(first(&all, key), first(&shuffled, key));
            }
        }

        #[test]
        fn refusing_walks_down_the_order_that_the_exact_times_give(
            all in any_group(),
            key: u64,
        ) {
            let arrival = |candidate: &Candidate| {
                exponential(uniform(key, candidate.identity)) / f64::from(candidate.weight)
            };
            let mut expected: Vec<_> = (0..all.len()).collect();
            expected.sort_by(|a, b| arrival(&all[*a]).total_cmp(&arrival(&all[*b])));
            let order = Rendezvous::new(&all);
            let mut walked: Vec<usize> = Vec::new();
            while let Some(next) =
                order.prefer(key, |index| (!walked.contains(&index)).then_some(index))
            {
                prop_assert_eq!(next.is_first, walked.is_empty());
                walked.push(next.accepted);
            }
            prop_assert_eq!(walked, expected);
        }
    }

    #[test]
    fn shares_are_in_proportion_to_weight_up_to_chance() {
        for weights in [&[1; 40][..], &[5, 1, 1, 93, 20], &[1, 1_000], &[7, 7, 7]] {
            let all = group(&(0..).zip(weights.iter().copied()).collect::<Vec<_>>());
            let order = Rendezvous::new(&all);
            let mut counts = vec![0; all.len()];
            for key in keys(60_000) {
                counts[order.prefer(key, Some).unwrap().accepted] += 1;
            }
            let shares: Vec<f64> = weights.iter().map(|&weight| f64::from(weight)).collect();
            assert_proportional(&counts, &shares);
        }
    }

    #[test]
    fn a_newcomer_takes_its_share_of_the_keys_and_evenly_from_all() {
        let before = group(&(0..9).map(|number| (number, 1)).collect::<Vec<_>>());
        let after = group(&(0..10).map(|number| (number, 1)).collect::<Vec<_>>());
        let mut moved = [0; 9];
        let mut kept = 0;
        for key in keys(60_000) {
            let (old, new) = (first(&before, key), first(&after, key));
            if old == new {
                kept += 1;
            } else {
                assert_eq!(new, Some(after[9].identity), "a key moved between the others");
                moved[before.iter().position(|c| Some(c.identity) == old).unwrap()] += 1;
            }
        }
        assert_proportional(&[kept, moved.iter().sum()], &[9.0, 1.0]);
        assert_proportional(&moved, &[1.0; 9]);
    }

    #[test]
    fn consecutive_keys_are_as_good_as_random_ones() {
        let order = Rendezvous::new(&group(&[(0, 1), (1, 1), (2, 2)]));
        let mut counts = [0; 3];
        for key in 0..60_000 {
            counts[order.prefer(key, Some).unwrap().accepted] += 1;
        }
        assert_proportional(&counts, &[1.0, 1.0, 2.0]);
    }
}
