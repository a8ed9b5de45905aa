//! Limits of retries, already checked and in final units.

use spillway_route::RetryBudgetConfig;

/// Limits of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Most attempts per request, the first included.
    pub attempts_max: u32,
    /// Retries as a share of requests, in percent.
    pub share_percent: u32,
    /// Retries available at the start; requests earn them back by their share.
    pub in_hand: u32,
    /// Least retries earned per second, however few requests there are.
    pub per_second_min: u32,
}

impl Default for Retry {
    fn default() -> Self {
        let budget = RetryBudgetConfig::default();
        Self {
            attempts_max: 3,
            share_percent: budget.share_percent,
            in_hand: budget.in_hand,
            per_second_min: budget.per_second_min,
        }
    }
}
