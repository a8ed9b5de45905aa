//! A request that waits, and how much may wait.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use spillway_types::Deadline;

use crate::ShedReason;

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WaitLimits {
    /// Most requests. Choose what the replicas end within the time that clients are willing to wait:
    /// more only makes those wait that are shed in the end. Half as many again, and at least 128, are
    /// taken of those that were promised a place, and as many once more of tenants that have few.
    pub count_max: usize,
    /// Most bytes that the waiting requests hold together.
    pub bytes_max: usize,
    /// Longest wait in milliseconds, for requests whose deadline is later. Ten minutes by default, as
    /// long as clients of language models wait for a server that queues.
    pub wait_ms_max: u64,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self { count_max: 1_000, bytes_max: 64 << 20, wait_ms_max: 600_000 }
    }
}

impl WaitLimits {
    /// Most requests that wait before one is refused that was promised a place, or was not.
    pub(super) fn count_max(&self, is_promised: bool) -> usize {
        self.count_max.saturating_add(if is_promised { self.promised_beyond() } else { 0 })
    }

    /// The same for one whose tenant has less than its share of the queue. Beyond what promised ones
    /// take, so that no number of promises keeps it out.
    pub(super) fn count_max_in_need(&self) -> usize {
        self.count_max.saturating_add(2 * self.promised_beyond())
    }

    /// How many are taken beyond the limit of those that were promised a place.
    pub(crate) fn promised_beyond(&self) -> usize {
        match self.count_max {
            0 => 0,
            count_max => (count_max / PROMISED_MORE).max(PROMISED_MORE_MIN),
        }
    }
}

/// The part of the queue that is added for promised requests: they come about as often as places
/// come free, so that they pile up only when replicas have become slower.
const PROMISED_MORE: usize = 2;

/// What is added to a small queue. `Retry-After` knows whole seconds only, so that those come together
/// whose places come free within one, and after a sudden burst the rate was only a guess.
const PROMISED_MORE_MIN: usize = 128;

/// A request that is to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitEntry<T> {
    /// Whatever stands for the request.
    pub item: T,
    /// Its class: 0 is the most urgent, and what is above the last counts as the last.
    pub priority: u8,
    /// When its answer becomes useless.
    pub deadline: Deadline,
    /// When it must have been sent to a replica for its first token to come in time: the route's
    /// objective less the time that reading its prompt takes. `None` if there is no objective.
    pub begin_by: Option<Instant>,
    /// When its turn is predicted to come: those whose turn should be sooner are served before. `None`
    /// for the moment at which it must have left, or for now if it was promised a place.
    pub turn_by: Option<Instant>,
    /// Bytes that it holds while it waits.
    pub bytes: usize,
    /// Whose it is, e.g. a hash of the tenant's name; requests of 0 share one line as well.
    pub tenant: u64,
    /// The tenant's share beside other tenants; 0 counts as 1. The last one told holds for all that
    /// waits of the tenant in this class.
    pub weight: u16,
    /// What it takes of the tenant's share: tokens of its prompt and of the expected reply. 0 if
    /// unknown: then it counts as one of usual size.
    pub tokens: u32,
    /// By which it is known again; see [`Asker::fingerprint`](crate::Asker::fingerprint).
    pub fingerprint: u64,
    /// It was turned away before, and told to come now.
    pub is_promised: bool,
}

impl<T> WaitEntry<T> {
    /// A request of the most urgent class, of no tenant and of unknown size.
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

    /// Why a request is shed that had to leave the queue by `now`.
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

/// Stands for one waiting request. Of no use in another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitTicket(pub(super) u64);

/// A request that has entered a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered<T> {
    /// Stands for it.
    pub ticket: WaitTicket,
    /// Less urgent requests that had to leave for it, to be shed.
    pub pushed_out: Vec<(WaitTicket, WaitEntry<T>)>,
}

/// The queue takes no more; the request comes back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full: {limit}")]
pub struct Full<T> {
    /// The limit that was reached.
    pub limit: WaitLimit,
    /// The request that was not taken.
    pub entry: WaitEntry<T>,
}

/// A limit of a [`WaitQueue`](super::WaitQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum WaitLimit {
    /// `count_max` of [`WaitLimits`].
    #[error("too many requests wait")]
    Count,
    /// [`WaitLimits::bytes_max`].
    #[error("waiting requests hold too many bytes")]
    Bytes,
}
