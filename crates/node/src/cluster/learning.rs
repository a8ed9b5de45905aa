//! What a node that has just started can't know yet.

use std::time::{Duration, Instant};

/// How long a node waits for what others have to say before it believes that a model does not exist,
/// or that nobody says which country a region is in.
const LIMIT: Duration = Duration::from_secs(10);

/// How much a node has heard of the others since it started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learning {
    started: Instant,
    /// When this node first knew what the cluster agreed on; `None` before that, and without a cluster
    /// that agrees on anything.
    agreed: Option<Instant>,
    is_agreeing: bool,
}

impl Learning {
    /// A node that starts `now`. With `is_agreeing` it keeps a part of what the cluster agrees on.
    pub(super) fn new(now: Instant, is_agreeing: bool) -> Self {
        Self { started: now, agreed: None, is_agreeing }
    }

    /// Notes that this node knows what the cluster agreed on.
    pub(super) fn agreed(&mut self, now: Instant) {
        self.agreed.get_or_insert(now);
    }

    /// Whether a model that is unknown now is unknown for good. `has_heard_all`: every other region
    /// has told what it has.
    pub(super) fn knows_models(&self, has_heard_all: bool, now: Instant) -> bool {
        let is_agreed = self.agreed.is_some() || !self.is_agreeing;
        (has_heard_all && is_agreed) || now >= self.started + LIMIT
    }

    /// Whether a region of unknown country stays one. `are_all_known`: no region is one now. A cluster
    /// that is yet to be formed knows no countries, however long that takes.
    pub(super) fn knows_countries(&self, are_all_known: bool, now: Instant) -> bool {
        let is_over = |agreed: Instant| are_all_known || now >= agreed + LIMIT;
        !self.is_agreeing || self.agreed.is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_known_once_all_regions_were_heard_or_were_waited_for() {
        let start = Instant::now();
        let mut learning = Learning::new(start, true);
        assert!(!learning.knows_models(true, start), "the cluster may know of more");
        learning.agreed(start);
        assert!(learning.knows_models(true, start));
        assert!(!learning.knows_models(false, start + LIMIT / 2));
        assert!(learning.knows_models(false, start + LIMIT), "one that is gone for good");
        assert!(Learning::new(start, false).knows_models(true, start));
        assert!(Learning::new(start, true).knows_models(false, start + LIMIT));
    }

    #[test]
    fn countries_are_waited_for_from_when_the_cluster_is_formed() {
        let start = Instant::now();
        assert!(Learning::new(start, false).knows_countries(false, start), "the config says all");
        let mut learning = Learning::new(start, true);
        let formed = start + 10 * LIMIT;
        assert!(!learning.knows_countries(false, formed));
        learning.agreed(formed);
        assert!(!learning.knows_countries(false, formed));
        assert!(learning.knows_countries(true, formed));
        assert!(learning.knows_countries(false, formed + LIMIT));
        learning.agreed(formed + LIMIT);
        assert!(learning.knows_countries(false, formed + LIMIT), "the first time counts");
    }
}
