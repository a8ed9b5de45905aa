//! Figures of one arm: what its requests came to, without the requests.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_types::{End, Outcome};

use crate::evidence::Share;
use crate::log_histogram::LogHistogram;

/// Sum of what the requests of an arm came to since the arm's share last changed.
///
/// Figures of different nodes are added by [`ArmFigures::merge`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmFigures {
    /// Requests that ended.
    pub requests: u64,
    /// Requests that failed by the fault of the arm; at most `requests`.
    pub failed: u64,
    /// Time to the first byte of the reply, in milliseconds.
    pub first_token_ms: LogHistogram,
    /// Time between two tokens of a stream on average, in milliseconds.
    pub token_ms: LogHistogram,
    /// Generated tokens of complete replies.
    pub tokens: LogHistogram,
}

/// What one request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestFacts {
    /// True if the arm failed it.
    pub has_failed: bool,
    /// Time from the request's head to the first byte of the reply. A client that left before has
    /// waited at least as long as it was there, so that time counts: an arm that hangs has no other.
    pub first_token: Option<Duration>,
    /// Time between two tokens on average; `None` for replies of fewer than two, or in one piece.
    pub token_time: Option<Duration>,
    /// Generated tokens; `None` unless the reply is complete.
    pub tokens: Option<u64>,
}

impl ArmFigures {
    /// Counts a request.
    pub fn record(&mut self, facts: RequestFacts) {
        self.requests = self.requests.saturating_add(1);
        self.failed = self.failed.saturating_add(facts.has_failed.into());
        if let Some(time) = facts.first_token {
            self.first_token_ms.record(time.as_secs_f64() * 1e3);
        }
        if let Some(time) = facts.token_time {
            self.token_ms.record(time.as_secs_f64() * 1e3);
        }
        if let Some(tokens) = facts.tokens {
            self.tokens.record(crate::evidence::to_f64(tokens));
        }
    }

    /// Adds the figures of another node.
    pub fn merge(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.failed = self.failed.saturating_add(other.failed);
        self.first_token_ms.merge(&other.first_token_ms);
        self.token_ms.merge(&other.token_ms);
        self.tokens.merge(&other.tokens);
    }

    /// Returns the failed requests among all.
    pub(crate) fn failures(&self) -> Share {
        // Other nodes' figures are not trusted to be consistent.
        Share { hits: self.failed.min(self.requests), total: self.requests }
    }
}

impl From<&Outcome> for RequestFacts {
    fn from(outcome: &Outcome) -> Self {
        let has_failed = outcome.arm_error().is_some();
        let waited = || (outcome.end == End::CancelledBeforeReply).then_some(outcome.duration);
        let is_complete = !has_failed && outcome.complete_reply().is_some();
        Self {
            has_failed,
            // A failed reply is counted as such; it may well be fast.
            first_token: (!has_failed).then(|| outcome.first_byte.or_else(waited)).flatten(),
            token_time: outcome.first_token().and_then(|first| {
                let gaps = u32::try_from(outcome.tokens.completion.checked_sub(1)?).ok()?;
                outcome.duration.saturating_sub(first).checked_div(gaps)
            }),
            tokens: is_complete.then_some(outcome.tokens.completion),
        }
    }
}
