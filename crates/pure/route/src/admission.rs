//! Admission control of one queue: which requests wait or are refused, and when clients return.

mod degraded;
mod expected;
mod fair_ahead;
mod foresight;
mod hold_time;
mod outage;
mod promises;
mod refusal;
mod service_rate;

use std::time::{Duration, Instant};

pub use degraded::Degraded;
pub use expected::{Turnover, expected_rate, guessed_rate};
use fair_ahead::{Backlog, Backlogs};
use foresight::Foresight;
pub use hold_time::HoldTime;
pub use outage::Outage;
pub use promises::{Promise, Promises};
pub use refusal::Refusal;
pub use service_rate::ServiceRate;

use crate::queue::{QueueLoad, class};
use crate::retry_after::promised_s;
use crate::{
    Asker, CLASSES, Entered, Full, RetryAfter, WaitEntry, WaitLimits, WaitQueue, WaitTicket,
    Waiting,
};

/// Time after a shed request for which replicas count as busy. Where all requests are shed at once
/// none waits, and the rate of the others would never be learned.
pub const BUSY_AFTER_SHED: Duration = Duration::from_secs(1);

/// Queue of one route and model, with its service rate and its promises to refused clients.
///
/// A refused request books the next free place in a schedule: behind the requests that wait and the
/// earlier promises. A client that comes back at the promised time is served before all other
/// requests of its tenant in its class, and is not refused because of the queue's length. So
/// returning clients are spread over time and find a slot. New requests see promised slots as
/// taken.
///
/// Keep it while [`Admission::is_idle`] is false, even if nothing waits. Calls cost `O(log n)` plus
/// a look at each tenant that waits in the class, unless their documentation says otherwise.
#[derive(Debug)]
pub struct Admission<T> {
    queue: WaitQueue<T>,
    service_rate: ServiceRate,
    /// Expected service rate, used until a rate was measured.
    foresight: Foresight,
    promises: Promises,
    outage: Outage,
}

impl<T> Admission<T> {
    /// Returns an empty queue with these limits.
    #[must_use]
    pub fn new(limits: WaitLimits) -> Self {
        Self {
            queue: WaitQueue::new(limits),
            service_rate: ServiceRate::default(),
            foresight: Foresight::default(),
            promises: Promises::default(),
            outage: Outage::default(),
        }
    }

    /// Replaces the limits from now on.
    pub fn set_limits(&mut self, limits: WaitLimits) {
        self.queue.set_limits(limits);
    }

    /// Returns the queue of waiting requests.
    #[must_use]
    pub fn queue(&self) -> &WaitQueue<T> {
        &self.queue
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the bytes that the waiting requests hold.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Returns how many requests wait of the tenants and classes that `wanted` accepts.
    /// `O(tenants)`.
    #[must_use]
    pub fn waiting_of_tenants(&self, wanted: impl Fn(u64, u8) -> bool) -> u32 {
        let wanted = &wanted;
        let of_class = |class| {
            let lines = self.queue.lines(class);
            lines.filter(move |&(tenant, ..)| wanted(tenant, class))
        };
        let lines = (0..=u8::MAX).take(CLASSES).flat_map(of_class);
        let counts = lines.map(|(_, _, promised, newcomers)| promised.plus(newcomers).requests);
        u32::try_from(counts.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// Returns the number of promises that can be redeemed now or later.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.promises.len()
    }

    /// Returns the recent share of promises that were redeemed, 0 to 1.
    #[must_use]
    pub fn show_share(&self) -> f32 {
        self.promises.show_share()
    }

    /// Returns the requests served per second while something waits; `None` if the rate is unknown.
    #[must_use]
    pub fn rate_per_s(&self, now: Instant) -> Option<f32> {
        self.service_rate.rate_per_s(now)
    }

    /// Returns true if the value can be dropped without loss: no queue, no promises, no known rate.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        let is_unknown = self.service_rate.rate_per_s(now).is_none() && self.outage.is_over(now);
        self.queue.is_empty() && self.promises.is_empty() && is_unknown
    }

    /// Returns true if this fingerprint was promised a slot now, and uses the promise up. Call it
    /// once for each request, first of all, as long as there are promises: also if a replica is
    /// free.
    #[must_use]
    pub fn redeem(&mut self, fingerprint: u64, now: Instant) -> bool {
        self.promises.redeem(fingerprint, now)
    }

    /// Returns the backlog before a new request at `now`, as input of [`spill()`](crate::spill()).
    #[must_use]
    pub fn waiting(&self, asker: &Asker, now: Instant) -> Waiting {
        let (before, is_taken) = self.before(asker, now);
        let has_room = !is_taken && self.queue.could_enter(asker, now);
        // Promises count in the time alone: their requests are not here yet.
        let ahead = self.served_before(asker, 0.0).all as u32;
        let wait_ms = self.wait_s(asker, before, now).map(milliseconds);
        Waiting { ahead, wait_ms, all: self.count(), has_room }
    }

    /// Returns the backlog before a waiting request; `None` if it has left. `O(n)`.
    #[must_use]
    pub fn waiting_of(&self, ticket: WaitTicket, now: Instant) -> Option<Waiting> {
        let entry = self.queue.get(ticket)?;
        let ahead = self.queue.position(ticket)? as f32;
        // The wait predicted at arrival holds, unless the queue has become much slower since.
        let told_s = entry.turn_by.map_or(0.0, |turn_by| seconds_until(turn_by, now));
        let rate_per_s = self.service_rate.rate_per_s(now).filter(|&rate| rate > 0.0);
        let wait_s = rate_per_s.map(|rate| told_s.max((ahead + 1.0) / rate * CERTAIN_SHARE));
        let wait_ms = wait_s.map(milliseconds);
        Some(Waiting { ahead: ahead as u32, wait_ms, all: self.count(), has_room: true })
    }

    /// Lets a request wait, as [`WaitQueue::enter`] does.
    ///
    /// # Errors
    ///
    /// Returns the request if there is no room and no other request has to leave for it.
    pub fn enter(&mut self, mut entry: WaitEntry<T>, now: Instant) -> Result<Entered<T>, Full<T>> {
        // The slot was promised for this moment.
        if entry.turn_by.is_none() && entry.is_promised {
            entry.turn_by = Some(now);
        } else if entry.turn_by.is_none() {
            // Kept with the entry, so that the turn need not be predicted again.
            let (before, _) = self.before(&entry.asker(), now);
            let wait_s = self.wait_s(&entry.asker(), before, now).unwrap_or(0.0);
            let wait = Duration::from_secs_f32(wait_s.min(HORIZON_S));
            entry.turn_by = Some(now + wait);
        }
        self.foresight.note(&entry.asker());
        let entered = self.queue.enter(entry, now);
        self.count_busy(now, false);
        entered
    }

    /// Sets the expected service rate, used only while no rate was measured, as in a sudden burst.
    /// `rate_per_s`, called only then, gets the mean size of recent requests in tokens, and returns
    /// requests per second by the number of slots and the time that such requests keep one.
    pub fn expect(
        &mut self,
        asker: &Asker,
        now: Instant,
        rate_per_s: impl FnOnce(f32) -> Option<f32>,
    ) {
        let is_unknown = self.service_rate.rate_per_s(now).is_none();
        self.foresight
            .expect(is_unknown.then(|| rate_per_s(self.foresight.tokens(asker))).flatten());
    }

    /// Returns the seconds after which a client should retry if no replica is in reach.
    pub fn turn_away(&mut self, now: Instant, rng: &mut fastrand::Rng) -> u32 {
        self.outage.turn_away(now, rng)
    }

    /// Returns when a client whose request is refused should retry. Books a slot if the rate is
    /// known and a slot comes free within the longest time that clients may be asked to wait.
    /// While no rate is known, the wait that [`spill()`](crate::spill()) predicted counts.
    #[must_use]
    pub fn shed(
        &mut self,
        asker: &Asker,
        refusal: Refusal,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> RetryAfter {
        // First: slots of clients that did not come can be promised again.
        self.promises.expire(now);
        // A refusal proves that all slots are taken, even where no request may wait.
        self.count_busy(now, true);
        let show = self.promises.show_share().max(SHOW_SHARE_MIN);
        let before = self.served_before(asker, show);
        self.foresight.note(asker);
        let Some(wait_s) = self.wait_s(asker, before, now) else {
            return RetryAfter::unpromised(refusal.predicted_ms(), rng);
        };
        // Slots are booked a little slower than they come free; the rest is for new requests.
        let wait_s = wait_s / refusal.booked_share();
        if wait_s > refusal.longest_s() {
            return RetryAfter::unpromised(f32::INFINITY, rng);
        }
        let spare_s = self.spare_s(now);
        // No client is asked to wait longer than a minute. Beyond that there is no moment to book.
        let Some(seconds) = promised_s(wait_s, spare_s, rng) else {
            return RetryAfter::unpromised(wait_s * 1_000.0, rng);
        };
        let promise =
            Promise { class: class(asker.priority), tenant: asker.tenant, cost: asker.cost() };
        let due = now + Duration::from_secs(seconds.into());
        let is_promised = self.promises.make(asker.fingerprint, promise, due);
        RetryAfter { seconds, is_promised }
    }

    /// Notes that a request took a slot at a replica at `now`. Call it for each request that had
    /// waited, and for all others while something waits.
    pub fn began(&mut self, asker: &Asker, now: Instant) {
        self.outage.end();
        self.service_rate.note(asker, now);
    }

    /// Removes the request whose turn it is, as [`WaitQueue::pop_next`] does.
    pub fn pop_next(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        let next = self.queue.pop_next(now);
        self.count_busy(now, false);
        next
    }

    /// Removes a request that has to leave, as [`WaitQueue::expire`] does. Call it several times a
    /// second while requests are refused, even if none waits: it ends the busy time that a refusal
    /// begins.
    pub fn expire(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        let lapsed = self.queue.expire(now);
        self.count_busy(now, false);
        lapsed
    }

    /// Removes a request whose client has left, as [`WaitQueue::remove`] does.
    pub fn remove(&mut self, ticket: WaitTicket, now: Instant) -> Option<WaitEntry<T>> {
        let removed = self.queue.remove(ticket);
        self.count_busy(now, false);
        removed
    }

    /// Removes a request that is wanted elsewhere, as [`WaitQueue::pop_where`] does.
    pub fn pop_where(
        &mut self,
        wanted: impl FnMut(&WaitEntry<T>) -> bool,
        now: Instant,
    ) -> Option<(WaitTicket, WaitEntry<T>)> {
        let found = self.queue.pop_where(wanted);
        self.count_busy(now, false);
        found
    }

    /// Returns the backlog before a request, and true if it takes all slots of the queue. A new
    /// request waits behind all waiting requests and all promised slots, unless so little waits
    /// that replicas could run dry before the promised requests come: it may fill the gap then.
    fn before(&self, asker: &Asker, now: Instant) -> (Before, bool) {
        let here = self.served_before(asker, 0.0);
        // Promises to others don't count against a promised request.
        if asker.is_promised || self.promises.is_empty() {
            return (here, false);
        }
        // Promised clients may come late: some work must wait in the meantime.
        let spare = self.service_rate.rate_per_s(now).map_or(0.0, |rate| rate * SPARE_S).max(1.0);
        let all = self.served_before(asker, self.promises.show_share());
        match (all.all as usize) < self.queue.limits().count_max {
            true => (all, false),
            false => (here, here.all >= spare),
        }
    }

    /// Returns the seconds until the turn of a request behind this backlog; `None` if no rate is
    /// known. The longer of two times counts: the whole backlog at the rate of all requests, and
    /// the tenant's own backlog at the rate that other tenants leave. The backlog alone does not
    /// include requests still to come, and past rates alone do not include the backlog.
    fn wait_s(&self, asker: &Asker, before: Before, now: Instant) -> Option<f32> {
        let Some(all) = self.service_rate.rate_per_s(now).filter(|&rate| rate > 0.0) else {
            return self.foresight.wait_s(before.all);
        };
        let is_other = |&(tenant, ..): &(u64, u16, QueueLoad, QueueLoad)| tenant != asker.tenant;
        let lines = self.queue.lines(asker.priority).filter(is_other);
        let others: u32 = lines.map(|(_, weight, ..)| u32::from(weight)).sum();
        let own = u32::from(asker.weight.max(1));
        let share = own as f32 / (own + others) as f32;
        let left = self.service_rate.rate_for(asker, share, now).filter(|&rate| rate > 0.0)?;
        Some(((before.all + 1.0) / all).max((before.own + 1.0) / left))
    }

    /// Returns how many seconds early promised requests may come, within the room kept for them.
    fn spare_s(&self, now: Instant) -> f32 {
        let limits = self.queue.limits();
        let beyond = limits.promised_beyond() as f32 * EARLY_SHARE;
        let wait_s = limits.wait_ms_max as f32 / 1_000.0 * EARLY_SHARE;
        let wait_s = wait_s.min(EARLY_S_MAX);
        self.service_rate.rate_per_s(now).map_or(0.0, |rate| (beyond / rate).min(wait_s))
    }

    fn count(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Returns the requests served before this one if this part of the promised ones comes.
    fn served_before(&self, asker: &Asker, part: f32) -> Before {
        let own_class = class(asker.priority);
        let promised: usize = (0..own_class).map(|class| self.promises.taken(class)).sum();
        let above = self.queue.ahead_above(asker.priority) as f32 + part * promised as f32;
        let mut backlogs = Backlogs::default();
        let mut own = Backlog { weight: asker.weight, ..Backlog::default() };
        for (tenant, weight, promised, newcomers) in self.queue.lines(asker.priority) {
            let all = promised.plus(newcomers);
            backlogs.add(tenant, all.requests as f32, all.cost as f32, weight);
            if tenant == asker.tenant {
                // A promised request stands before most new requests.
                let before = if asker.is_promised { promised } else { all };
                own.requests += before.requests as f32;
                own.cost += before.cost as f32;
            }
        }
        if part > 0.0 {
            for (tenant, load) in self.promises.by_tenant(own_class) {
                backlogs.add(tenant, part * load.requests as f32, part * load.cost as f32, 0);
            }
            let load = self.promises.of_tenant(own_class, asker.tenant);
            own.requests += part * load.requests as f32;
            own.cost += part * load.cost as f32;
        }
        let within = backlogs.ahead(asker.tenant, own, asker.cost() as f32);
        Before { all: above + within, own: own.requests }
    }

    fn count_busy(&mut self, now: Instant, is_refused: bool) {
        self.service_rate.set_busy(now, is_refused || !self.queue.is_empty());
    }
}

/// Requests served before a request: all of them, and those of its own tenant in its class.
#[derive(Clone, Copy, Debug)]
struct Before {
    all: f32,
    own: f32,
}

/// Certain part of a predicted wait: rates vary, and no waiting request is sent away for that.
const CERTAIN_SHARE: f32 = 0.7;

/// Seconds of work that may wait, so that replicas don't run dry: more than clients are late by.
const SPARE_S: f32 = 0.25;

/// Part of the room for promised requests, and of the longest wait, for clients that come too early
/// because no client is asked to wait longer than a minute.
const EARLY_SHARE: f32 = 0.5;

/// Longest time in seconds by which such a client may be early: its second wait must be short.
const EARLY_S_MAX: f32 = 15.0;

/// Longest predicted wait that is kept, in seconds: no slot is promised beyond a minute.
const HORIZON_S: f32 = 90.0;

/// Least share of redeemed promises: one slot is promised to four clients at most, if all come.
const SHOW_SHARE_MIN: f32 = 0.25;

fn milliseconds(seconds: f32) -> u32 {
    (seconds * 1_000.0) as u32
}

fn seconds_until(moment: Instant, now: Instant) -> f32 {
    moment.saturating_duration_since(now).as_secs_f32()
}

#[cfg(test)]
mod admission_test;
#[cfg(test)]
mod closed_loop_test;
#[cfg(test)]
mod test_clients;
