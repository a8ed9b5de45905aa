//! Prefix-aware: the longest cached part of the prompt, unless that candidate carries too much.

use spillway_types::Inquiry;

use super::choose::Choose;
use crate::field::{Field, Usable};
use crate::reported::{Reports, in_system};
use crate::{Attempt, Candidate, Moment, PrefixAwareTuning, Reason, Tuning};

/// Policy that follows caches while loads are close to each other, and balances loads otherwise:
/// the rule of routers that know prefixes and counts, but no times.
#[derive(Debug)]
pub(super) struct PrefixAware {
    tuning: PrefixAwareTuning,
}

/// Extremes among the usable candidates.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    lowest: f32,
    highest: f32,
    cached_max: u32,
}

impl PrefixAware {
    pub(super) fn prepare(_candidates: &[Candidate], tuning: &Tuning) -> Self {
        let PrefixAwareTuning { match_permille_min, imbalance_min, imbalance_ratio_min } =
            tuning.prefix_aware;
        let valid = |number: f32| if number.is_finite() { number.max(0.0) } else { 0.0 };
        let tuning = PrefixAwareTuning {
            match_permille_min,
            imbalance_min: valid(imbalance_min),
            imbalance_ratio_min: valid(imbalance_ratio_min),
        };
        Self { tuning }
    }

    fn is_even(&self, range: &Range) -> bool {
        range.highest - range.lowest <= self.tuning.imbalance_min
            || range.highest <= range.lowest * self.tuning.imbalance_ratio_min
    }

    fn is_enough(&self, cached: u32, blocks: usize) -> bool {
        let least = u64::from(self.tuning.match_permille_min) * blocks as u64;
        cached > 0 && u64::from(cached) * 1_000 >= least
    }
}

impl Choose for PrefixAware {
    fn choose(
        &self,
        inquiry: &Inquiry,
        field: &Field<'_>,
        moment: &mut Moment<'_>,
    ) -> Option<Attempt> {
        let reports = Reports::of(field, in_system);
        let requests = |usable: &Usable| {
            let signals = field.signals(usable);
            let now = reports.now(usable.known(), in_system(&signals), &signals);
            // The requests of this process are known for certain, whatever the report says.
            now.max(usable.in_flight as f32)
        };
        let load =
            |usable: &Usable| (f64::from(requests(usable)) + usable.next) / usable.weight as f64;
        let blocks = inquiry.prefix.as_slice().len();
        let range = Range::of(field, requests);
        // Caches are followed only while loads are even and the best match is long enough.
        if blocks > 0 && self.is_even(&range) && self.is_enough(range.cached_max, blocks) {
            let best = field.least(moment, |usable| {
                let is_best = field.cached_blocks(usable) >= range.cached_max;
                if is_best { load(usable) } else { f64::INFINITY }
            });
            return best.map(|usable| usable.because(Reason::Cached));
        }
        field.least(moment, load).map(|usable| usable.because(Reason::Lightest))
    }
}

impl Range {
    /// Returns the extremes, in one pass over the usable candidates.
    fn of(field: &Field<'_>, requests: impl Fn(&Usable) -> f32) -> Self {
        let first = Self { lowest: f32::INFINITY, ..Self::default() };
        field.all_usable().fold(first, |range, usable| {
            let requests = requests(&usable);
            Self {
                lowest: range.lowest.min(requests),
                highest: range.highest.max(requests),
                cached_max: range.cached_max.max(field.cached_blocks(&usable)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use spillway_types::{BlockHashes, ReplicaSlot};

    use crate::test_world::{Prompt, World};
    use crate::{Group, Policy, PrefixAwareTuning, Reason, Tuning};

    /// Returns three replicas with so many of a prompt's ten blocks, and so many requests.
    fn world(cached_blocks: [u32; 3], in_flight: [u32; 3]) -> World {
        let mut world = World::idle(Policy::PrefixAware, &[1; 3]);
        world.loads.cached_blocks = cached_blocks.to_vec();
        world.loads.in_flight = in_flight.to_vec();
        let blocks = BlockHashes::new((0..10).collect());
        world.prompt = Prompt { blocks, bytes: 2_560, ..Prompt::default() };
        world
    }

    fn choice(mut world: World) -> (u32, Reason) {
        let attempt = world.attempt(0);
        (attempt.slot.0, attempt.reason)
    }

    #[test]
    fn the_longest_cached_prefix_is_followed_if_it_is_long_enough() {
        assert_eq!(choice(world([5, 9, 8], [0, 3, 0])), (1, Reason::Cached));
        assert_eq!(choice(world([4, 5, 0], [0, 1, 3])), (1, Reason::Cached));
        assert_eq!(choice(world([0, 4, 0], [3, 1, 0])), (2, Reason::Lightest));
        assert_eq!(choice(world([0; 3], [3, 0, 1])), (1, Reason::Lightest));
    }

    #[test]
    fn of_equal_caches_the_lighter_one_is_taken() {
        assert_eq!(choice(world([9, 9, 8], [3, 2, 0])), (1, Reason::Cached));
    }

    #[test]
    fn load_decides_where_it_is_too_uneven() {
        assert_eq!(choice(world([9, 0, 0], [32, 0, 1])), (0, Reason::Cached));
        assert_eq!(choice(world([9, 0, 0], [33, 0, 1])), (1, Reason::Lightest));
        // More than 32 requests apart, but less than a tenth.
        assert_eq!(choice(world([9, 0, 0], [1_033, 1_000, 1_001])), (0, Reason::Cached));
    }

    #[test]
    fn numbers_that_make_no_sense_count_as_nothing() {
        let prefix_aware = PrefixAwareTuning {
            imbalance_min: f32::NAN,
            imbalance_ratio_min: -1.0,
            ..PrefixAwareTuning::default()
        };
        let tuning = Tuning { prefix_aware, ..Tuning::default() };
        let mut world = world([9, 0, 0], [1, 0, 1]);
        let candidates = world.group.candidates().to_vec();
        world.group = Group::with_tuning(Policy::PrefixAware, &tuning, candidates);
        assert_eq!(world.attempt(0).slot, ReplicaSlot(1));
    }
}
