//! Reports of a replica's pages on its caches, and the hits that were expected.

use spillway_view::Replied;

use super::cache_watch::CacheWatch;

/// Reports of a replica's pages, and the hits that were expected.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pages {
    pub(super) watch: CacheWatch,
    pub(super) tokens: Option<f64>,
    /// Size of the cache in the index.
    pub(super) blocks: Option<f64>,
    pub(super) expected: ExpectedHits,
    /// True if its replies have reported the number of cached tokens: then its pages are not needed
    /// for that.
    pub(super) tells_cached: bool,
}

/// Hits that this node's prompts should have had in a cache since its last report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpectedHits {
    pub(super) prompt_tokens: f64,
    pub(super) cached_tokens: f64,
}

impl Pages {
    /// Returns the number of a prompt's tokens that were cached; `None` if the replica does not
    /// report it. vLLM leaves the number out where it is 0, so a missing number means 0 once there
    /// was one.
    pub(super) fn cached_tokens(&mut self, replied: &Replied) -> Option<u64> {
        if !replied.is_success {
            return None;
        }
        if replied.cached_tokens.is_some() {
            self.tells_cached = true;
            return replied.cached_tokens;
        }
        if self.tells_cached {
            // A reply without any usage leaves out everything, and so shows nothing.
            return replied.prompt_tokens.map(|_| 0);
        }
        self.expected.note(replied);
        None
    }
}

impl ExpectedHits {
    fn note(&mut self, replied: &Replied) {
        if let Some(predicted) = replied.predicted {
            self.prompt_tokens += f64::from(predicted.prompt_tokens);
            self.cached_tokens += f64::from(predicted.cached_tokens.min(predicted.prompt_tokens));
        }
    }
}
