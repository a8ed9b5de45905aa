//! Limits of retries, already checked and in final units.

use spillway_route::RetryBudgetConfig;
use spillway_types::settings;

settings! {
    /// `[retry]`: rules for trying another replica.
    #[derive(PartialEq, Eq)]
    pub struct Retry {
        /// Maximum number of attempts per request, including the first. 0 and 1 both mean that no
        /// request is retried.
        attempts_max: u32 = 3,
        /// Retries as a share of requests, in percent.
        budget_percent: u32 = RetryBudgetConfig::default().share_percent,
        /// Retries available at the start, so that a node with few requests can retry; later requests
        /// refill them by their share, however rare they are. None if the share is zero.
        #[serde(skip)]
        budget_in_hand: u32 = RetryBudgetConfig::default().in_hand,
        /// Minimum number of retries earned per second, which exceeds the share if requests are few.
        #[serde(skip)]
        budget_min_per_second: u32 = RetryBudgetConfig::default().per_second_min,
    }
}

impl Retry {
    /// Returns the maximum number of attempts per request: a request is always tried.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts_max.max(1)
    }
}
