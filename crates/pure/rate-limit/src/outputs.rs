//! Usual lengths of replies, by route and model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;

/// Tokens that a request without a maximum is expected to generate while its model is unknown.
const UNKNOWN_TOKENS: u32 = 1_024;
/// Replies of a model that have to be known before its lengths are used.
const REPLIES_MIN: u32 = 20;
/// Number of replies at which all counts are halved, so that old replies count less.
const REPLIES_MAX: u32 = 4_096;
/// Pairs of a route and a model that are remembered. Their names come from requests that a replica has served.
const MODELS_MAX: usize = 4_096;
/// Number of buckets: four for each doubling, up to 2^32. The error is at most 19 %.
const BUCKETS: usize = 128;

/// Lengths of replies, by route and model. Any thread reads and notes at any time.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    routes: ArcSwap<Routes>,
}

/// Lengths by route, then by model.
type Routes = BTreeMap<Box<str>, BTreeMap<Box<str>, Arc<Lengths>>>;

#[derive(Debug)]
struct Lengths {
    buckets: [AtomicU32; BUCKETS],
    count: AtomicU32,
    /// Length that half of the replies don't exceed, as of some replies ago; 0 while unknown. Each
    /// request that is not streamed reads it, so it is not counted then.
    usual: AtomicU32,
}

impl Outputs {
    /// Returns the length in tokens that 95 of 100 replies of the model on the route don't exceed.
    pub(crate) fn expected(&self, route: &str, model: &str) -> u32 {
        let lengths = |lengths: &Arc<Lengths>| lengths.beyond(20);
        self.of(route, model, lengths).flatten().unwrap_or(UNKNOWN_TOKENS)
    }

    /// Returns the length in tokens that half of the model's replies on the route don't exceed; `None`
    /// while too few are known.
    pub(crate) fn usual(&self, route: &str, model: &str) -> Option<u32> {
        let usual = self.of(route, model, |lengths| lengths.usual.load(Ordering::Relaxed))?;
        (usual > 0).then_some(usual)
    }

    /// Notes that a reply of the model on the route had `tokens` tokens.
    pub(crate) fn note(&self, route: &str, model: &str, tokens: u32) {
        if self.of(route, model, |lengths| lengths.note(tokens)).is_some() {
            return;
        }
        self.routes.rcu(|routes| {
            let mut routes = Routes::clone(routes);
            let known: usize = routes.values().map(BTreeMap::len).sum();
            // Another thread may have added the model by now, with counts that are to stay.
            if known < MODELS_MAX {
                routes.entry(route.into()).or_default().entry(model.into()).or_default();
            }
            routes
        });
        self.of(route, model, |lengths| lengths.note(tokens));
    }

    /// Returns what `read` reads of the lengths of a model on a route; `None` if none are known.
    fn of<T>(&self, route: &str, model: &str, read: impl Fn(&Arc<Lengths>) -> T) -> Option<T> {
        self.routes.load().get(route)?.get(model).map(read)
    }
}

impl Lengths {
    fn note(&self, tokens: u32) {
        self.buckets[bucket(tokens)].fetch_add(1, Ordering::Relaxed);
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if (before + 1).is_multiple_of(REPLIES_MIN) {
            self.usual.store(self.beyond(2).unwrap_or(0), Ordering::Relaxed);
        }
        if before < REPLIES_MAX {
            return;
        }
        // Two threads at the same moment halve a bucket twice at worst, which tilts the result
        // little.
        let mut count = 0;
        for bucket in &self.buckets {
            let half = bucket.load(Ordering::Relaxed) / 2;
            bucket.store(half, Ordering::Relaxed);
            count += half;
        }
        self.count.store(count, Ordering::Relaxed);
    }

    /// Returns the length that one of so many replies exceeds; `None` while too few are known.
    fn beyond(&self, one_of: u32) -> Option<u32> {
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        let count: u32 = counts.iter().sum();
        if count < REPLIES_MIN {
            return None;
        }
        let mut above = count / one_of;
        for (place, of) in counts.iter().enumerate().rev() {
            if *of > above {
                return Some(ceiling(place));
            }
            above -= of;
        }
        None
    }
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU32::new(0)),
            count: AtomicU32::new(0),
            usual: AtomicU32::new(0),
        }
    }
}

/// Returns the bucket of a length, by its highest bit and the two bits below.
fn bucket(tokens: u32) -> usize {
    let tokens = u64::from(tokens) + 4;
    let bit = tokens.ilog2();
    let quarter = (tokens >> (bit - 2)) & 3;
    (((bit - 2) * 4) as usize + quarter as usize).min(BUCKETS - 1)
}

/// Returns the longest length of a bucket, in tokens.
fn ceiling(bucket: usize) -> u32 {
    let (bit, quarter) = (bucket / 4, bucket as u64 % 4);
    let end = (5 + quarter) << bit;
    u32::try_from(end - 5).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_replies_are_no_longer_than_expected() {
        let outputs = Outputs::default();
        assert_eq!(outputs.expected("r", "m"), UNKNOWN_TOKENS);
        (1..=100).for_each(|tokens| outputs.note("r", "m", tokens * 10));
        let expected = outputs.expected("r", "m");
        assert!((950..=1_150).contains(&expected), "{expected}");
        let usual = outputs.usual("r", "m").expect("a length");
        assert!((500..=600).contains(&usual), "{usual}");
        assert_eq!(outputs.usual("r", "n"), None);
        (0..REPLIES_MIN - 1).for_each(|_| outputs.note("r", "few", 50));
        assert_eq!(outputs.usual("r", "few"), None);
        assert_eq!(outputs.expected("r", "n"), UNKNOWN_TOKENS);
    }

    #[test]
    fn routes_of_one_model_have_lengths_of_their_own() {
        let outputs = Outputs::default();
        for _ in 0..REPLIES_MIN {
            outputs.note("chat", "m", 400);
            outputs.note("label", "m", 4);
        }
        let usual = |route| outputs.usual(route, "m").expect("a length");
        assert!((400..=500).contains(&usual("chat")), "{}", usual("chat"));
        assert!((4..=5).contains(&usual("label")), "{}", usual("label"));
    }

    #[test]
    fn what_was_long_ago_counts_less() {
        let outputs = Outputs::default();
        (0..8_000).for_each(|_| outputs.note("r", "m", 2_000));
        (0..20_000).for_each(|_| outputs.note("r", "m", 50));
        assert!(outputs.expected("r", "m") < 60, "{}", outputs.expected("r", "m"));
    }

    #[test]
    fn every_length_is_in_the_bucket_that_ends_above_it() {
        for tokens in (0..5_000).chain([1 << 20, u32::MAX - 1, u32::MAX]) {
            let bucket = bucket(tokens);
            assert!(ceiling(bucket) >= tokens, "{tokens}");
            assert!(bucket == 0 || ceiling(bucket - 1) < tokens, "{tokens}");
            assert!(u64::from(ceiling(bucket)) <= u64::from(tokens) * 5 / 4 + 1, "{tokens}");
        }
    }
}
