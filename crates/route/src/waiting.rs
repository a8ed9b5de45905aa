//! Requests that wait in a node until a replica has room for them.

mod order;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use spillway_types::Deadline;

pub use order::CLASSES;
use order::{Order, Place};

/// A bounded queue of requests, the most urgent first.
///
/// The order is that of priority classes, within a class that of the moments by which requests must
/// have left, and among equals that of arrival. Of any [`TURNS_MAX`] calls in a row that took a
/// request out, each class that had some all the while got at least one, so that the lowest is never
/// starved. Its share is then one in [`TURNS_MAX`], and nothing is lost to it while it is empty.
///
/// Keep one queue per route and model. Each call costs `O(log n)` unless it says otherwise.
///
/// [`TURNS_MAX`]: WaitQueue::TURNS_MAX
#[derive(Debug)]
pub struct WaitQueue<T> {
    limits: WaitLimits,
    /// By arrival.
    entries: BTreeMap<u64, Waiter<T>>,
    order: Order,
    bytes: usize,
    arrivals: u64,
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WaitLimits {
    /// Most requests. Choose what the replicas end within the time that clients are willing to wait:
    /// more only makes those wait that are shed in the end.
    pub count_max: usize,
    /// Most bytes that the waiting requests hold together.
    pub bytes_max: usize,
    /// Longest wait in milliseconds, for requests whose deadline is later.
    pub wait_ms_max: u64,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self { count_max: 1_000, bytes_max: 64 << 20, wait_ms_max: 30_000 }
    }
}

/// A request that is to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitEntry<T> {
    /// Whatever stands for the request.
    pub item: T,
    /// Its class: 0 is the most urgent, and what is above the last counts as the last.
    pub priority: u8,
    /// When its answer becomes useless.
    pub deadline: Deadline,
    /// Bytes that it holds while it waits.
    pub bytes: usize,
}

/// Stands for one waiting request. Of no use in another queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitTicket(u64);

/// The queue takes no more; the request comes back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full: {limit}")]
pub struct Full<T> {
    /// The limit that was reached.
    pub limit: WaitLimit,
    /// The request that was not taken.
    pub entry: WaitEntry<T>,
}

/// A limit of a [`WaitQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum WaitLimit {
    /// [`WaitLimits::count_max`].
    #[error("too many requests wait")]
    Count,
    /// [`WaitLimits::bytes_max`].
    #[error("waiting requests hold too many bytes")]
    Bytes,
}

/// An entry where it waits.
#[derive(Debug)]
struct Waiter<T> {
    entry: WaitEntry<T>,
    place: Place,
}

impl<T> WaitQueue<T> {
    /// Of so many requests taken out in a row at least one is of each class that waits.
    pub const TURNS_MAX: u32 = order::TURNS_MAX;

    /// An empty queue.
    #[must_use]
    pub fn new(limits: WaitLimits) -> Self {
        Self { limits, entries: BTreeMap::new(), order: Order::default(), bytes: 0, arrivals: 0 }
    }

    /// Lets a request wait from `now` on.
    ///
    /// # Errors
    ///
    /// If it would exceed a limit. Another call may succeed as soon as anything has left.
    pub fn push(&mut self, entry: WaitEntry<T>, now: Instant) -> Result<WaitTicket, Full<T>> {
        if let Err(limit) = self.room(entry.bytes) {
            return Err(Full { limit, entry });
        }
        let longest = now + Duration::from_millis(self.limits.wait_ms_max.min(WAIT_MS_END));
        let arrival = self.arrivals;
        let place = Place::new(entry.priority, entry.deadline.at().min(longest), arrival);
        self.arrivals += 1;
        self.bytes += entry.bytes;
        self.order.insert(place);
        self.entries.insert(arrival, Waiter { entry, place });
        Ok(WaitTicket(arrival))
    }

    /// Whether a request of so many bytes would be taken. `O(1)`.
    ///
    /// # Errors
    ///
    /// The limit that it would exceed.
    pub fn room(&self, bytes: usize) -> Result<(), WaitLimit> {
        if self.entries.len() >= self.limits.count_max {
            Err(WaitLimit::Count)
        } else if bytes > self.limits.bytes_max.saturating_sub(self.bytes) {
            Err(WaitLimit::Bytes)
        } else {
            Ok(())
        }
    }

    /// Takes out the request whose turn it is at `now`. Never one that had to leave before: that is
    /// for [`WaitQueue::expire`] to take out, so that somebody answers it.
    pub fn pop_next(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        let place = self.order.take_next(now)?;
        self.take(place.arrival)
    }

    /// Takes out a request that had to leave by `now`: its deadline or the longest wait has passed.
    /// Call it until it has no more, at the latest at [`WaitQueue::next_expiry`].
    pub fn expire(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        let place = self.order.first_to_leave().filter(|place| place.leave_by <= now)?;
        self.remove(WaitTicket(place.arrival)).map(|entry| (WaitTicket(place.arrival), entry))
    }

    /// When the next request must leave; changes with every request that comes or goes.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.order.first_to_leave().map(|place| place.leave_by)
    }

    /// Takes out a request whose client has left, or that was decided otherwise; `None` if it is no
    /// longer here.
    pub fn remove(&mut self, ticket: WaitTicket) -> Option<WaitEntry<T>> {
        let waiter = self.entries.remove(&ticket.0)?;
        self.order.remove(&waiter.place);
        self.bytes -= waiter.entry.bytes;
        Some(waiter.entry)
    }

    /// Takes out the one that has waited longest among those `wanted`, to send it elsewhere. Asks
    /// about one request after the other until one is: `O(n)` if none is.
    pub fn pop_where(
        &mut self,
        mut wanted: impl FnMut(&WaitEntry<T>) -> bool,
    ) -> Option<(WaitTicket, WaitEntry<T>)> {
        let found = self.entries.iter().find(|(_, waiter)| wanted(&waiter.entry));
        let ticket = found.map(|(&arrival, _)| WaitTicket(arrival))?;
        self.remove(ticket).map(|entry| (ticket, entry))
    }

    /// How many would be served before a request of this class that came now with the latest
    /// deadline. `O(1)`. Of the classes below, [`WaitQueue::TURNS_MAX`] says how many may come in
    /// between.
    #[must_use]
    pub fn ahead_of(&self, priority: u8) -> usize {
        self.order.count_up_to(priority)
    }

    /// How many are to be served before this one, by class and time alone; `None` if it is no longer
    /// here. `O(n)`: for people who ask.
    #[must_use]
    pub fn position(&self, ticket: WaitTicket) -> Option<usize> {
        self.entries.get(&ticket.0).map(|waiter| self.order.position(&waiter.place))
    }

    /// The waiting request. `None` if it is no longer here.
    #[must_use]
    pub fn get(&self, ticket: WaitTicket) -> Option<&WaitEntry<T>> {
        self.entries.get(&ticket.0).map(|waiter| &waiter.entry)
    }

    /// Requests that wait, those included that had to leave and were not taken out yet. `O(1)`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none waits. `O(1)`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the waiting requests hold. `O(1)`.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out what [`Order`] has let go of already.
    fn take(&mut self, arrival: u64) -> Option<(WaitTicket, WaitEntry<T>)> {
        let waiter = self.entries.remove(&arrival)?;
        self.bytes -= waiter.entry.bytes;
        Some((WaitTicket(arrival), waiter.entry))
    }
}

/// The longest wait that can be set, a day: keeps sums of moments from overflowing.
const WAIT_MS_END: u64 = 86_400_000;

#[cfg(test)]
mod waiting_test;
