//! Knowledge that a node lacks just after its start: models and countries of other regions.

use std::time::{Duration, Instant};

/// Time that a node waits for others before it believes that a model does not exist, or that a
/// region has no known country.
const LIMIT: Duration = Duration::from_secs(10);

/// Knowledge that this node still lacks, by the time since it started.
#[derive(Clone, Copy, Debug)]
pub struct StartUp {
    started: Instant,
    /// Time at which this node first knew the agreed state; `None` before that, and without a
    /// cluster that keeps one.
    agreed: Option<Instant>,
    is_agreeing: bool,
}

impl StartUp {
    /// Creates the state of a node that starts `now`. `is_agreeing` is true if the node keeps the
    /// agreed state of its cluster.
    #[must_use]
    pub fn new(now: Instant, is_agreeing: bool) -> Self {
        Self { started: now, agreed: None, is_agreeing }
    }

    /// Notes that this node knows the agreed state.
    pub fn agreed(&mut self, now: Instant) {
        self.agreed.get_or_insert(now);
    }

    /// Returns true if a model that is unknown now does not exist. `has_heard_all` is true if every
    /// other region has reported its models.
    #[must_use]
    pub fn knows_models(&self, has_heard_all: bool, now: Instant) -> bool {
        let is_agreed = self.agreed.is_some() || !self.is_agreeing;
        (has_heard_all && is_agreed) || now >= self.started + LIMIT
    }

    /// Returns true if a region whose country is unknown now has none. `are_all_known` is true if
    /// no such region is left. In a cluster that is yet to be formed the answer stays false,
    /// however long that takes.
    #[must_use]
    pub fn knows_countries(&self, are_all_known: bool, now: Instant) -> bool {
        let is_over = |agreed: Instant| are_all_known || now >= agreed + LIMIT;
        !self.is_agreeing || self.agreed.is_some_and(is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test needs some moment")]
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn models_are_known_once_all_regions_were_heard_or_were_waited_for() {
        let start = now();
        let mut start_up = StartUp::new(start, true);
        assert!(!start_up.knows_models(true, start), "the cluster may know of more");
        start_up.agreed(start);
        assert!(start_up.knows_models(true, start));
        assert!(!start_up.knows_models(false, start + LIMIT / 2));
        assert!(start_up.knows_models(false, start + LIMIT), "one that is gone for good");
        assert!(StartUp::new(start, false).knows_models(true, start));
        assert!(StartUp::new(start, true).knows_models(false, start + LIMIT));
    }

    #[test]
    fn countries_are_waited_for_from_when_the_cluster_is_formed() {
        let start = now();
        assert!(StartUp::new(start, false).knows_countries(false, start), "the config says all");
        let mut start_up = StartUp::new(start, true);
        let formed = start + 10 * LIMIT;
        assert!(!start_up.knows_countries(false, formed));
        start_up.agreed(formed);
        assert!(!start_up.knows_countries(false, formed));
        assert!(start_up.knows_countries(true, formed));
        assert!(start_up.knows_countries(false, formed + LIMIT));
        start_up.agreed(formed + LIMIT);
        assert!(start_up.knows_countries(false, formed + LIMIT), "the first time counts");
    }
}
