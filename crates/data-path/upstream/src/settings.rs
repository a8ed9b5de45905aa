//! Settings of requests to replicas, already checked and in final units.

use std::time::Duration;

use spillway_route::RetryBudgetConfig;

/// Time-outs for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time to set up a new connection with TCP and TLS.
    pub connect: Duration,
    /// Time from the request to the reply's head. Long by default: a queued unary request may wait
    /// for its turn and for its whole generation.
    pub first_byte: Duration,
    /// Time between two pieces of a reply's body.
    pub idle: Duration,
    /// Time for the whole request.
    pub total: Duration,
    /// Silence of a stream after which its client is sent a keep-alive; `None` sends none.
    pub keep_alive: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            first_byte: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(3600),
            keep_alive: None,
        }
    }
}

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
