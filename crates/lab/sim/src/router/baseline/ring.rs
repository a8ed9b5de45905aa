//! Ring of consistent hashing.

use crate::text::mix;

/// Points on a ring together, at least: the default of Envoy's `ring_hash`, which SkyWalker's code
/// takes over.
const POINTS_MIN: usize = 1_024;

/// Ring on which each target has equally many points.
#[derive(Debug)]
pub(super) struct Ring {
    /// Hash and target of each point, in the order of hashes.
    points: Vec<(u64, usize)>,
}

impl Ring {
    /// Returns a ring of targets with the numbers from 0.
    pub(super) fn new(targets: usize) -> Self {
        let each = POINTS_MIN.div_ceil(targets.max(1)) as u64;
        let of = |target: usize| {
            (0..each).map(move |point| (mix(mix(37, target as u64), point), target))
        };
        let mut points: Vec<(u64, usize)> = (0..targets).flat_map(of).collect();
        points.sort_unstable();
        Self { points }
    }

    /// Returns the first target from the key's point on that is acceptable.
    pub(super) fn next(&self, key: u64, accepts: impl Fn(usize) -> bool) -> Option<usize> {
        let key = mix(41, key);
        let (before, after) =
            self.points.split_at(self.points.partition_point(|(hash, _)| *hash < key));
        let targets = after.iter().chain(before).map(|(_, target)| *target);
        targets.into_iter().find(|&target| accepts(target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_spread_evenly_and_only_those_of_a_lost_target_move() {
        let ring = Ring::new(4);
        let mut counts = [0; 4];
        for key in 0..4_000 {
            let target = ring.next(key, |_| true).unwrap();
            counts[target] += 1;
            let without = ring.next(key, |other| other != 2).unwrap();
            assert!(target == 2 || without == target);
            assert_ne!(without, 2);
        }
        assert!(counts.iter().all(|count| (700..1_300).contains(count)), "{counts:?}");
        assert_eq!(ring.next(1, |_| false), None);
    }
}
