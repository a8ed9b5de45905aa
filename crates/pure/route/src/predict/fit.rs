//! Room at a replica: the prediction that it can begin with a request at once.

use serde::Serialize;

use super::request::RequestSize;
use crate::Push;

/// Room for a request at a replica now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fit {
    /// The replica has room, as far as known.
    Fits,
    /// Other requests have to end there first.
    Full,
    /// The request is larger than the whole KV cache of the replica.
    TooLarge,
}

/// Room of a replica, as far as known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Requests of this process in flight there.
    pub(super) in_flight: u32,
    /// All requests there by now.
    pub(super) requests: f32,
    /// Requests that came since the report.
    pub(super) newer: f32,
    pub(super) queued: f32,
    pub(super) running: f32,
    /// Share of the KV cache in use at the report, 0 to 1.
    pub(super) kv_use: f32,
    /// Size of the KV cache in tokens; 0 if unknown.
    pub(super) kv_tokens: f32,
}

/// Requests that may wait at a replica of which only the queue is known, in all and per running
/// request: as many as it can begin with before the next report.
const QUEUED_MAX: f32 = 1.0;
const QUEUED_PER_RUNNING: f32 = 0.25;

impl Room {
    /// Returns the room for a request, `to_read` tokens of which are not in this cache.
    pub(super) fn fit(&self, request: &RequestSize, to_read: f32, push: Push) -> Fit {
        let need = to_read + request.output_tokens;
        let is_known = self.kv_tokens > 0.0;
        // A request that can't wait in the node is always sent.
        if push == Push::Always || !request.can_wait {
            Fit::Fits
        } else if is_known && need > self.kv_tokens {
            Fit::TooLarge
        } else if self.in_flight == 0 && self.requests < 0.5 {
            // Otherwise a request could wait for ever: no request ends here that would start
            // another try.
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

    /// Returns the free tokens of the cache, by its report and the requests that came since. Those
    /// are taken to be as large as what ran there, or as this request if that is unknown.
    fn free_tokens(&self, need: f32) -> f32 {
        let reported = (self.requests - self.newer).max(0.0);
        let used = self.kv_use.clamp(0.0, 1.0) * self.kv_tokens;
        let each = if reported >= 1.0 && used > 0.0 { used / reported } else { need };
        self.kv_tokens - used - self.newer.max(0.0) * each
    }
}
