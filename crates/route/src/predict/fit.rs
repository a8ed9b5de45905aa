//! Whether a replica can be expected to begin with a request when it gets it.

use serde::Serialize;

use super::request::Request;
use crate::Push;

/// Whether a request fits at a replica now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// It does, as far as known.
    Fits,
    /// Others have to end there first.
    Full,
    /// It is larger than all that the replica has.
    TooLarge,
}

/// What is known of a replica's room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Requests of this process there.
    pub(super) in_flight: u32,
    /// All requests there, by now.
    pub(super) requests: f32,
    /// Those of them that came since the report.
    pub(super) newer: f32,
    pub(super) queued: f32,
    pub(super) running: f32,
    /// Share of the KV cache in use at the report.
    pub(super) kv_use: f32,
    /// Tokens that it holds; 0 if unknown.
    pub(super) kv_tokens: f32,
}

/// Requests that may wait at a replica of which only the queue is known, and as many more as a
/// part of those that run: what it can begin with before the next report.
const QUEUED_MAX: f32 = 1.0;
const QUEUED_PER_RUNNING: f32 = 0.25;

impl Room {
    /// Whether a request fits of which `to_read` tokens are not in this cache.
    pub(super) fn fit(&self, request: &Request, to_read: f32, push: Push) -> Fit {
        let need = to_read + request.output_tokens;
        let is_known = self.kv_tokens > 0.0;
        if push == Push::Always || !request.can_wait {
            Fit::Fits
        } else if is_known && need > self.kv_tokens {
            Fit::TooLarge
        } else if self.in_flight == 0 && self.requests < 0.5 {
            // Or a request could wait for ever: nothing ends here that would make it look again.
            Fit::Fits
        } else if match push {
            Push::NoPending => self.queued < 0.5,
            _ if is_known => need <= self.free_tokens(need),
            _ => self.queued < QUEUED_MAX + QUEUED_PER_RUNNING * self.running,
        } {
            Fit::Fits
        } else {
            Fit::Full
        }
    }

    /// Tokens that its cache has left, by what it reported and what has come since. Those are taken
    /// to be like what ran there, or like this request if that is not known.
    fn free_tokens(&self, need: f32) -> f32 {
        let reported = (self.requests - self.newer).max(0.0);
        let used = self.kv_use.clamp(0.0, 1.0) * self.kv_tokens;
        let each = if reported >= 1.0 && used > 0.0 { used / reported } else { need };
        self.kv_tokens - used - self.newer.max(0.0) * each
    }
}
