//! Wait queue: requests that wait in a node until a replica has room for them or their time-to-live
//! is over, with fairness between tenants.

mod asker;
mod class;
mod entry;
mod line;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub use asker::Asker;
pub use entry::{Entered, Full, WaitEntry, WaitLimit, WaitLimits, WaitTicket};
pub(crate) use line::QueueLoad;
pub use order::CLASSES;
pub(crate) use order::class;
use order::{QueueOrder, QueuePosition};

/// Bounded queue of requests, the most urgent first.
///
/// Requests are ordered by priority class. Within a class tenants take turns by deficit round robin
/// on tokens. Requests of one tenant are ordered by the moment of their promised or predicted turn,
/// at the latest the moment they must leave, and then by arrival. Of any [`TURNS_MAX`] calls in a
/// row that took a request out, each class that had some all the while got at least one, so that
/// the lowest class is never starved. Its share is then one in [`TURNS_MAX`]; an empty class takes
/// no share.
///
/// Keep one queue per route and model. Each call costs `O(log n)` unless its documentation says
/// otherwise.
///
/// [`TURNS_MAX`]: WaitQueue::TURNS_MAX
#[derive(Debug)]
pub struct WaitQueue<T> {
    limits: WaitLimits,
    /// Requests by arrival.
    entries: BTreeMap<u64, Waiter<T>>,
    /// Places of all requests that may still be served.
    order: QueueOrder,
    /// Requests that may still be served, by the moment of leaving.
    leaving: BTreeSet<(Instant, u64)>,
    /// Requests that had to leave and were not taken out yet.
    lapsed: BTreeSet<(Instant, u64)>,
    bytes: usize,
    arrivals: u64,
}

/// Entry with its place.
#[derive(Debug)]
struct Waiter<T> {
    entry: WaitEntry<T>,
    place: QueuePosition,
}

impl<T> WaitQueue<T> {
    /// Length of a series of removals in which each class that waits is served at least once.
    pub const TURNS_MAX: u32 = order::TURNS_MAX;

    /// Returns an empty queue with these limits.
    #[must_use]
    pub fn new(limits: WaitLimits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            order: QueueOrder::default(),
            leaving: BTreeSet::new(),
            lapsed: BTreeSet::new(),
            bytes: 0,
            arrivals: 0,
        }
    }

    /// Replaces the limits from now on. Waiting requests stay, even if they exceed the new limits.
    pub fn set_limits(&mut self, limits: WaitLimits) {
        self.limits = limits;
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &WaitLimits {
        &self.limits
    }

    /// Lets a request wait from `now` on, if there is room without another request leaving.
    ///
    /// # Errors
    ///
    /// Returns the request with the limit that it would exceed. Another call may succeed as soon as
    /// a request has left.
    pub fn push(&mut self, entry: WaitEntry<T>, now: Instant) -> Result<WaitTicket, Full<T>> {
        match self.room_for(&entry.asker()) {
            Ok(()) => Ok(self.seat(entry, now)),
            Err(limit) => Err(Full { limit, entry }),
        }
    }

    /// Lets a request wait from `now` on. If there is no room, less urgent requests have to leave:
    /// of the least urgent class below its own, or of its own class where another tenant holds more
    /// of the queue than its own. Requests that would be served last leave first; promised ones
    /// never leave. If all requests were promised, the new one is taken where its tenant has less
    /// than its share.
    ///
    /// # Errors
    ///
    /// Returns the request if there is no room and no other request has to leave for it; the queue
    /// is unchanged then.
    pub fn enter(&mut self, entry: WaitEntry<T>, now: Instant) -> Result<Entered<T>, Full<T>> {
        let mut pushed_out = Vec::new();
        while let Err(limit) = self.room_for(&entry.asker()) {
            let asker = entry.asker();
            let victim = self.victim(&asker, now).filter(|_| pushed_out.len() < PUSHED_OUT_MAX);
            if victim.is_none() && self.has_room_beyond(&asker, now) {
                break;
            }
            let Some(waiter) = victim.and_then(|arrival| self.take(arrival)) else {
                // All or nothing: no request leaves for one that is refused in the end.
                pushed_out.into_iter().rev().for_each(|(_, waiter)| self.put_back(waiter));
                return Err(Full { limit, entry });
            };
            pushed_out.push((WaitTicket(waiter.place.seat.arrival), waiter));
        }
        let ticket = self.seat(entry, now);
        let entries = pushed_out.into_iter().map(|(ticket, waiter)| (ticket, waiter.entry));
        Ok(Entered { ticket, pushed_out: entries.collect() })
    }

    /// Checks if a request of so many bytes would be taken without a promise and without another
    /// request leaving. `O(1)`.
    ///
    /// # Errors
    ///
    /// Returns the limit that the request would exceed.
    pub fn room(&self, bytes: usize) -> Result<(), WaitLimit> {
        self.room_of(bytes, self.limits.count_max(false))
    }

    /// Returns true if [`WaitQueue::enter`] is likely to take this request. It may still refuse
    /// where several requests would have to leave.
    #[must_use]
    pub fn could_enter(&self, asker: &Asker, now: Instant) -> bool {
        let is_taken_full =
            || self.victim(asker, now).is_some() || self.has_room_beyond(asker, now);
        self.room_for(asker).is_ok() || is_taken_full()
    }

    /// Removes the request whose turn it is at `now`. Never returns one that had to leave before:
    /// [`WaitQueue::expire`] returns those, so that each gets an answer.
    pub fn pop_next(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        self.lapse(now);
        let arrival = self.order.take_next()?;
        let waiter = self.entries.remove(&arrival)?;
        self.leaving.remove(&waiter.key());
        self.bytes -= waiter.entry.bytes;
        Some((WaitTicket(arrival), waiter.entry))
    }

    /// Removes a request that had to leave by `now`: its deadline, its longest wait or the moment
    /// by which it had to be sent has passed. Call it until it returns `None`, at the latest at
    /// [`WaitQueue::next_expiry`]. [`WaitEntry::lapse`] returns the reason.
    pub fn expire(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        self.lapse(now);
        let &(_, arrival) = self.lapsed.first()?;
        self.remove(WaitTicket(arrival)).map(|entry| (WaitTicket(arrival), entry))
    }

    /// Returns when the next request must leave; changes with every request that comes or goes.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.lapsed.first().or_else(|| self.leaving.first()).map(|&(leave_by, _)| leave_by)
    }

    /// Removes a request whose client has left, or that got another answer; `None` if it has left
    /// already.
    pub fn remove(&mut self, ticket: WaitTicket) -> Option<WaitEntry<T>> {
        self.take(ticket.0).map(|waiter| waiter.entry)
    }

    /// Removes the longest waiting request that `wanted` accepts, to send it elsewhere. Tries one
    /// request after the other: `O(n)` if it accepts none.
    pub fn pop_where(
        &mut self,
        mut wanted: impl FnMut(&WaitEntry<T>) -> bool,
    ) -> Option<(WaitTicket, WaitEntry<T>)> {
        let found = self.entries.iter().find(|(_, waiter)| wanted(&waiter.entry));
        let ticket = found.map(|(&arrival, _)| WaitTicket(arrival))?;
        self.remove(ticket).map(|entry| (ticket, entry))
    }

    /// Returns how many requests of this class and more urgent ones wait. `O(1)`. Less urgent
    /// requests may still come in between, as often as [`WaitQueue::TURNS_MAX`] demands.
    #[must_use]
    pub fn ahead_of(&self, priority: u8) -> usize {
        self.order.count_up_to(priority)
    }

    /// Returns how many requests are to be served before this one, by class, tenant share and time;
    /// `None` if it has left. `O(n)`: for operators and occasional checks.
    #[must_use]
    pub fn position(&self, ticket: WaitTicket) -> Option<usize> {
        let waiter = self.entries.get(&ticket.0)?;
        let is_served = !self.lapsed.contains(&waiter.key());
        Some(if is_served { self.order.position(&waiter.place) } else { 0 })
    }

    /// Returns the waiting request; `None` if it has left.
    #[must_use]
    pub fn get(&self, ticket: WaitTicket) -> Option<&WaitEntry<T>> {
        self.entries.get(&ticket.0).map(|waiter| &waiter.entry)
    }

    /// Returns the number of waiting requests, with those that had to leave and were not taken out
    /// yet. `O(1)`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no request waits. `O(1)`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes that the waiting requests hold. `O(1)`.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many requests of more urgent classes wait.
    pub(crate) fn ahead_above(&self, priority: u8) -> usize {
        self.order.count_above(priority)
    }

    /// Returns the tenants that wait in this class: name, weight, load of promised requests, load
    /// of others.
    pub(crate) fn lines(
        &self,
        priority: u8,
    ) -> impl Iterator<Item = (u64, u16, QueueLoad, QueueLoad)> + '_ {
        self.order.lines(priority)
    }

    fn room_for(&self, asker: &Asker) -> Result<(), WaitLimit> {
        self.room_of(asker.bytes, self.limits.count_max(asker.is_promised))
    }

    fn room_of(&self, bytes: usize, count_max: usize) -> Result<(), WaitLimit> {
        if self.entries.len() >= count_max {
            Err(WaitLimit::Count)
        } else if bytes > self.limits.bytes_max.saturating_sub(self.bytes) {
            Err(WaitLimit::Bytes)
        } else {
            Ok(())
        }
    }

    fn victim(&self, asker: &Asker, now: Instant) -> Option<u64> {
        // A request that can never fit must not push others out.
        let is_possible =
            asker.bytes <= self.limits.bytes_max && self.limits.count_max(asker.is_promised) > 0;
        let place = QueuePosition::new(asker, &self.limits, now, now, self.arrivals);
        is_possible.then(|| self.order.victim(&place)).flatten()
    }

    /// Returns true if a request is taken beyond the limit where all waiting requests were
    /// promised: its tenant has less than its share of the queue in its class. So promises to
    /// others keep no tenant out.
    fn has_room_beyond(&self, asker: &Asker, now: Instant) -> bool {
        let place = QueuePosition::new(asker, &self.limits, now, now, self.arrivals);
        let (own, lines) = self.order.share(&place);
        let count_max = self.limits.count_max_in_need();
        // Its share is an equal part of the queue, compared without a division.
        self.room_of(asker.bytes, count_max).is_ok() && own * lines < self.limits.count_max
    }

    fn seat(&mut self, entry: WaitEntry<T>, now: Instant) -> WaitTicket {
        let longest = now + Duration::from_millis(self.limits.wait_ms_max.min(WAIT_MS_END));
        let leave_by = entry.deadline.at().min(longest);
        let leave_by = entry.begin_by.map_or(leave_by, |begin_by| begin_by.min(leave_by));
        let told = entry.turn_by.or_else(|| entry.is_promised.then_some(now));
        let turn_by = told.map_or(leave_by, |turn_by| turn_by.min(leave_by));
        let asker = entry.asker();
        let place = QueuePosition::new(&asker, &self.limits, turn_by, leave_by, self.arrivals);
        self.arrivals += 1;
        let ticket = WaitTicket(place.seat.arrival);
        self.order.insert(place);
        self.keep(Waiter { entry, place });
        ticket
    }

    fn put_back(&mut self, waiter: Waiter<T>) {
        self.order.put_back(waiter.place);
        self.keep(waiter);
    }

    fn keep(&mut self, waiter: Waiter<T>) {
        self.leaving.insert(waiter.key());
        self.bytes += waiter.entry.bytes;
        self.entries.insert(waiter.place.seat.arrival, waiter);
    }

    fn take(&mut self, arrival: u64) -> Option<Waiter<T>> {
        let waiter = self.entries.remove(&arrival)?;
        // A lapsed request was removed from the order before.
        if self.leaving.remove(&waiter.key()) {
            self.order.remove(&waiter.place);
        } else {
            self.lapsed.remove(&waiter.key());
        }
        self.bytes -= waiter.entry.bytes;
        Some(waiter)
    }

    /// Removes the requests from the order that had to leave by `now`.
    fn lapse(&mut self, now: Instant) {
        while let Some(&key) = self.leaving.first().filter(|(leave_by, _)| *leave_by <= now) {
            self.leaving.remove(&key);
            self.lapsed.insert(key);
            if let Some(waiter) = self.entries.get(&key.1) {
                self.order.remove(&waiter.place);
            }
        }
    }
}

impl<T> Waiter<T> {
    fn key(&self) -> (Instant, u64) {
        (self.place.seat.leave_by, self.place.seat.arrival)
    }
}

/// Longest wait that can be set, a day in milliseconds: keeps sums of moments from overflowing.
const WAIT_MS_END: u64 = 86_400_000;

/// Most requests that leave for one: more would make room for a large one at the cost of many.
const PUSHED_OUT_MAX: usize = 8;

#[cfg(test)]
mod queue_test;
#[cfg(test)]
mod test_model;
