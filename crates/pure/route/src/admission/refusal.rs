//! Refusal of a request, as the schedule of promised slots sees it.

use crate::ShedReason;

/// Refusal of a request: the predicted wait, and the part of the slots that is for such requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refusal {
    reason: ShedReason,
    predicted_ms: f32,
}

impl Refusal {
    /// Creates a refusal for this reason. `predicted_ms` are the milliseconds until the turn of the
    /// request would have come; 0 if unknown.
    #[must_use]
    pub const fn new(reason: ShedReason, predicted_ms: f32) -> Self {
        Self { reason, predicted_ms }
    }

    /// Returns the milliseconds until the turn of the request would have come; 0 if unknown.
    #[must_use]
    pub fn predicted_ms(&self) -> f32 {
        self.predicted_ms
    }

    /// Returns the part of the slots that is promised to such requests.
    pub(super) fn booked_share(&self) -> f32 {
        if self.is_by_objective() { OBJECTIVE_SHARE } else { BOOKED_SHARE }
    }

    /// Returns the longest wait in seconds for which such a request is promised a slot.
    pub(super) fn longest_s(&self) -> f32 {
        if self.is_by_objective() { OBJECTIVE_LONGEST_S } else { f32::INFINITY }
    }

    /// Returns true if the first token would come too late for the route's objective.
    #[must_use]
    pub fn is_by_objective(&self) -> bool {
        self.reason == ShedReason::Slo
    }
}

/// Part of the slots that is promised. If all were, requests would come as fast as replicas serve
/// them, and by chance alone the queue would grow to its limit. New requests get the rest.
const BOOKED_SHARE: f32 = 0.98;

/// Part of the slots that is promised to requests which an objective refused. Where an objective
/// counts, a new request that is served at once is worth more than one that was asked to wait: each
/// promised slot is one that a new request does not get.
const OBJECTIVE_SHARE: f32 = 0.1;

/// Longest wait in seconds for which requests refused by an objective are promised a slot.
/// Promises are few then and kept; a client that is asked to wait for longer has often left by
/// then.
const OBJECTIVE_LONGEST_S: f32 = 20.0;
