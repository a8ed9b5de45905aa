//! Entries of the wait queue, and its limits.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use spillway_types::Deadline;

use crate::ShedReason;

/// Limits of a wait queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WaitLimits {
    /// Most requests. Choose as many as the replicas finish within the time that clients are
    /// willing to wait: a higher limit only adds requests that wait and are shed in the end.
    /// Another half of this number, and at least 128, is open to promised requests, and as many
    /// again to tenants below their share.
    pub count_max: usize,
    /// Most bytes that the waiting requests hold together.
    pub bytes_max: usize,
    /// Longest wait in milliseconds, for requests whose deadline is later. Ten minutes by default,
    /// as long as clients of language models wait for a server that queues.
    pub wait_ms_max: u64,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self { count_max: 1_000, bytes_max: 64 << 20, wait_ms_max: 600_000 }
    }
}

impl WaitLimits {
    /// Returns the most requests that may wait before a promised request is refused, or an
    /// unpromised one.
    pub(super) fn count_max(&self, is_promised: bool) -> usize {
        self.count_max.saturating_add(if is_promised { self.promised_beyond() } else { 0 })
    }

    /// Returns the most requests that may wait before one of a tenant below its share is refused:
    /// beyond the room for promised requests, so that no number of promises keeps it out.
    pub(super) fn count_max_in_need(&self) -> usize {
        self.count_max.saturating_add(2 * self.promised_beyond())
    }

    /// Returns how many promised requests are taken beyond the limit.
    pub(crate) fn promised_beyond(&self) -> usize {
        match self.count_max {
            0 => 0,
            count_max => (count_max / PROMISED_MORE).max(PROMISED_MORE_MIN),
        }
    }
}

/// Part of the queue's limit that is added for promised requests, as a divisor: they come about as
/// often as slots come free, so they pile up only if replicas have become slower.
const PROMISED_MORE: usize = 2;

/// Least number that is added. `Retry-After` has whole seconds only, so requests come together
/// whose slots come free within one second, and after a sudden burst the rate was only a guess.
const PROMISED_MORE_MIN: usize = 128;

/// Request that is to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitEntry<T> {
    /// Value that represents the request.
    pub item: T,
    /// Class of the request: 0 is the most urgent; numbers above the last class count as the last.
    pub priority: u8,
    /// Moment at which the answer becomes useless.
    pub deadline: Deadline,
    /// Moment by which the request must be sent to a replica for its first token to come in time:
    /// the route's objective less the time to read the prompt. `None` without an objective.
    pub begin_by: Option<Instant>,
    /// Predicted moment of the turn; requests with an earlier one are served before. `None` for the
    /// moment at which the request must leave, or for now if it was promised a slot.
    pub turn_by: Option<Instant>,
    /// Bytes that the request holds while it waits.
    pub bytes: usize,
    /// Tenant of the request, e.g. a hash of its name; requests of 0 share one line as well.
    pub tenant: u64,
    /// Weight of the tenant beside other tenants; 0 counts as 1. The latest value holds for all
    /// waiting requests of the tenant in this class.
    pub weight: u16,
    /// Tokens that the request takes of the tenant's share: its prompt and the expected reply. 0 if
    /// unknown: it then counts as one of usual size.
    pub tokens: u32,
    /// Identifies the request when it comes back; see
    /// [`Asker::fingerprint`](crate::Asker::fingerprint).
    pub fingerprint: u64,
    /// True if the request was refused before and promised a slot for now.
    pub is_promised: bool,
}

impl<T> WaitEntry<T> {
    /// Returns an entry of the most urgent class, of no tenant and of unknown size.
    #[must_use]
    pub fn new(item: T, deadline: Deadline) -> Self {
        Self {
            item,
            priority: 0,
            deadline,
            begin_by: None,
            turn_by: None,
            bytes: 0,
            tenant: 0,
            weight: 1,
            tokens: 0,
            fingerprint: 0,
            is_promised: false,
        }
    }

    /// Returns the reason for shedding a request that had to leave the queue by `now`.
    #[must_use]
    pub fn lapse(&self, now: Instant) -> ShedReason {
        if self.deadline.has_passed(now) {
            ShedReason::Late
        } else if self.begin_by.is_some_and(|begin_by| begin_by <= now) {
            ShedReason::Slo
        } else {
            ShedReason::Waited
        }
    }
}

/// Handle of one waiting request, valid in its own queue only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitTicket(pub(super) u64);

/// Request that has entered a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered<T> {
    /// Handle of the request.
    pub ticket: WaitTicket,
    /// Less urgent requests that had to leave for it, to be shed.
    pub pushed_out: Vec<(WaitTicket, WaitEntry<T>)>,
}

/// Error of a full queue, with the request that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full: {limit}")]
pub struct Full<T> {
    /// Limit that was reached.
    pub limit: WaitLimit,
    /// Request that was not taken.
    pub entry: WaitEntry<T>,
}

/// Kinds of limits of a [`WaitQueue`](super::WaitQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum WaitLimit {
    /// Number of requests: `count_max` of [`WaitLimits`].
    #[error("too many requests wait")]
    Count,
    /// Bytes of the requests: [`WaitLimits::bytes_max`].
    #[error("waiting requests hold too many bytes")]
    Bytes,
}
