//! Who waits, who is turned away, and when those may come again: one queue with all it knows.

mod asker;
mod degraded;
mod drain_meter;
mod expected;
mod fair_ahead;
mod foresight;
mod hold_time;
mod outage;
mod promises;
mod retry_after;

use std::time::{Duration, Instant};

pub use asker::Asker;
pub use degraded::Degraded;
pub use drain_meter::DrainMeter;
pub use expected::{Turnover, expected_rate};
use fair_ahead::{Backlog, Backlogs};
use foresight::Foresight;
pub use hold_time::HoldTime;
pub use outage::Outage;
pub use promises::{Promise, Promises};
pub use retry_after::{RetryAfter, retry_after_s};

use crate::waiting::{Load, class};
use crate::{CLASSES, Entered, Full, WaitEntry, WaitLimits, WaitQueue, WaitTicket, Waiting};

/// The queue of one route and model, the rate at which it is served, and what it has promised.
///
/// A request that is turned away books the next free place in a queue that exists only as a schedule:
/// behind what waits and what others were promised before it. If it comes again when it was told to, it
/// stands before all others of its tenant in its class, and is not refused for their number. So
/// clients that come back are spread over time, and find their place. Newcomers see promised places as
/// taken.
///
/// Keep it while it has anything to remember ([`Admission::is_idle`]), also if nothing waits. Calls cost
/// `O(log n)` and a look at each tenant that waits in the class, unless they say otherwise.
#[derive(Debug)]
pub struct Admission<T> {
    queue: WaitQueue<T>,
    drain: DrainMeter,
    /// What is expected of the replicas, for as long as nothing was measured.
    foresight: Foresight,
    promises: Promises,
    outage: Outage,
}

impl<T> Admission<T> {
    /// An empty one.
    #[must_use]
    pub fn new(limits: WaitLimits) -> Self {
        Self {
            queue: WaitQueue::new(limits),
            drain: DrainMeter::default(),
            foresight: Foresight::default(),
            promises: Promises::default(),
            outage: Outage::default(),
        }
    }

    /// Goes by other limits from now on.
    pub fn set_limits(&mut self, limits: WaitLimits) {
        self.queue.set_limits(limits);
    }

    /// What waits.
    #[must_use]
    pub fn queue(&self) -> &WaitQueue<T> {
        &self.queue
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes that the waiting requests hold.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Requests that wait of tenants and classes that are `wanted`. `O(tenants)`.
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

    /// Promises that may be redeemed, now or later.
    #[must_use]
    pub fn promised(&self) -> usize {
        self.promises.len()
    }

    /// The share of promises that are redeemed, as lately seen.
    #[must_use]
    pub fn show_share(&self) -> f32 {
        self.promises.show_share()
    }

    /// Requests per second that are served while something waits; `None` if nobody knows.
    #[must_use]
    pub fn rate_per_s(&self, now: Instant) -> Option<f32> {
        self.drain.rate_per_s(now)
    }

    /// Whether nothing would be lost with it: nothing waits, nothing is promised, and the rate is
    /// forgotten.
    #[must_use]
    pub fn is_idle(&self, now: Instant) -> bool {
        let is_unknown = self.drain.rate_per_s(now).is_none() && self.outage.is_over(now);
        self.queue.is_empty() && self.promises.is_empty() && is_unknown
    }

    /// Whether a request with this fingerprint comes as it was told to. Ask once for each request, and
    /// before all else, since the promise is used up by it: also for one that finds a free replica at
    /// once, as long as there are any promises.
    #[must_use]
    pub fn redeem(&mut self, fingerprint: u64, now: Instant) -> bool {
        self.promises.redeem(fingerprint, now)
    }

    /// What stands before this request if it comes in at `now`, and whether it would be taken: for
    /// [`spill()`](crate::spill()).
    #[must_use]
    pub fn waiting(&self, asker: &Asker, now: Instant) -> Waiting {
        let (before, is_taken) = self.before(asker, now);
        let has_room = !is_taken && self.queue.could_enter(asker, now);
        let ahead = self.served_before(asker, 0.0).all as u32;
        let wait_ms = self.wait_s(asker, before, now).map(milliseconds);
        Waiting { ahead, wait_ms, all: self.count(), has_room }
    }

    /// The same for one that waits already; `None` if it is no longer here. `O(n)`.
    #[must_use]
    pub fn waiting_of(&self, ticket: WaitTicket, now: Instant) -> Option<Waiting> {
        let entry = self.queue.get(ticket)?;
        let ahead = self.queue.position(ticket)? as f32;
        // What it was told when it came holds, unless the queue has become much slower since.
        let told_s = entry.turn_by.map_or(0.0, |turn_by| seconds_until(turn_by, now));
        let rate_per_s = self.drain.rate_per_s(now).filter(|&rate| rate > 0.0);
        let wait_s = rate_per_s.map(|rate| told_s.max((ahead + 1.0) / rate * CERTAIN_SHARE));
        let wait_ms = wait_s.map(milliseconds);
        Some(Waiting { ahead: ahead as u32, wait_ms, all: self.count(), has_room: true })
    }

    /// Lets a request wait, as [`WaitQueue::enter`] does.
    ///
    /// # Errors
    ///
    /// If there is no room, and nobody has to leave for it; then nobody does.
    pub fn enter(&mut self, mut entry: WaitEntry<T>, now: Instant) -> Result<Entered<T>, Full<T>> {
        if entry.turn_by.is_none() && entry.is_promised {
            entry.turn_by = Some(now);
        } else if entry.turn_by.is_none() {
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

    /// Expects what `rate_per_s` says of requests of the mean size in tokens that it is given: requests
    /// per second by the places and by how long such requests keep one. It counts, and is asked, only
    /// while no rate was measured, as in a sudden burst.
    pub fn expect(
        &mut self,
        asker: &Asker,
        now: Instant,
        rate_per_s: impl FnOnce(f32) -> Option<f32>,
    ) {
        let is_unknown = self.drain.rate_per_s(now).is_none();
        self.foresight
            .expect(is_unknown.then(|| rate_per_s(self.foresight.tokens(asker))).flatten());
    }

    /// When a request should come again that nobody is in reach for, in seconds.
    pub fn turn_away(&mut self, now: Instant, rng: &mut fastrand::Rng) -> u32 {
        self.outage.turn_away(now, rng)
    }

    /// When a request that is turned away should come again. Books a place for it if the rate is known
    /// and there is one within the longest time that may be told. `predicted_ms` is what
    /// [`spill()`](crate::spill()) predicts, for as long as no rate is known.
    #[must_use]
    pub fn shed(
        &mut self,
        asker: &Asker,
        predicted_ms: f32,
        now: Instant,
        rng: &mut fastrand::Rng,
    ) -> RetryAfter {
        self.promises.expire(now);
        // To be turned away proves that all places are taken, also where nothing may wait.
        self.count_busy(now, true);
        let show = self.promises.show_share().max(SHOW_SHARE_MIN);
        let before = self.served_before(asker, show);
        self.foresight.note(asker);
        let Some(wait_s) = self.wait_s(asker, before, now) else {
            return RetryAfter::unpromised(predicted_ms, rng);
        };
        let wait_s = wait_s / BOOKED_SHARE;
        let spare_s = self.spare_s(now);
        let Some(seconds) = retry_after::promised_s(wait_s, spare_s, rng) else {
            return RetryAfter::unpromised(wait_s * 1_000.0, rng);
        };
        let promise =
            Promise { class: class(asker.priority), tenant: asker.tenant, cost: asker.cost() };
        let due = now + Duration::from_secs(seconds.into());
        let is_promised = self.promises.make(asker.fingerprint, promise, due);
        RetryAfter { seconds, is_promised }
    }

    /// A request took a place at a replica at `now`: to be told of each that had waited, and of others
    /// while something waits.
    pub fn began(&mut self, asker: &Asker, now: Instant) {
        self.outage.end();
        self.drain.note(asker, now);
    }

    /// Takes out the request whose turn it is, as [`WaitQueue::pop_next`].
    pub fn pop_next(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        let next = self.queue.pop_next(now);
        self.count_busy(now, false);
        next
    }

    /// Takes out a request that had to leave, as [`WaitQueue::expire`]. Call it some times a second also
    /// while nothing waits, as long as requests are turned away: time after the last of them is idle.
    pub fn expire(&mut self, now: Instant) -> Option<(WaitTicket, WaitEntry<T>)> {
        let lapsed = self.queue.expire(now);
        self.count_busy(now, false);
        lapsed
    }

    /// Takes out a request whose client has left, as [`WaitQueue::remove`].
    pub fn remove(&mut self, ticket: WaitTicket, now: Instant) -> Option<WaitEntry<T>> {
        let removed = self.queue.remove(ticket);
        self.count_busy(now, false);
        removed
    }

    /// Takes out one that is wanted elsewhere, as [`WaitQueue::pop_where`].
    pub fn pop_where(
        &mut self,
        wanted: impl FnMut(&WaitEntry<T>) -> bool,
        now: Instant,
    ) -> Option<(WaitTicket, WaitEntry<T>)> {
        let found = self.queue.pop_where(wanted);
        self.count_busy(now, false);
        found
    }

    /// What is before this one, and whether that takes all places of the queue: a newcomer's place is
    /// behind all that wait and all that were promised one. Unless so little waits that replicas could
    /// run dry before those come: then it fills the gap.
    fn before(&self, asker: &Asker, now: Instant) -> (Before, bool) {
        let here = self.served_before(asker, 0.0);
        if asker.is_promised || self.promises.is_empty() {
            return (here, false);
        }
        let spare = self.drain.rate_per_s(now).map_or(0.0, |rate| rate * SPARE_S).max(1.0);
        let all = self.served_before(asker, self.promises.show_share());
        match (all.all as usize) < self.queue.limits().count_max {
            true => (all, false),
            false => (here, here.all >= spare),
        }
    }

    /// Seconds until the turn of one that has so much before it: by what stands there at the rate of all,
    /// and by what of its own tenant does at the rate that others leave if they go on. Each alone is too
    /// short where the other is longer: what stands there says nothing of what comes, and the rates
    /// of before nothing of what has gathered since.
    fn wait_s(&self, asker: &Asker, before: Before, now: Instant) -> Option<f32> {
        let Some(all) = self.drain.rate_per_s(now).filter(|&rate| rate > 0.0) else {
            return self.foresight.wait_s(before.all);
        };
        let is_other = |&(tenant, ..): &(u64, u16, Load, Load)| tenant != asker.tenant;
        let lines = self.queue.lines(asker.priority).filter(is_other);
        let others: u32 = lines.map(|(_, weight, ..)| u32::from(weight)).sum();
        let own = u32::from(asker.weight.max(1));
        let share = own as f32 / (own + others) as f32;
        let left = self.drain.rate_for(asker, share, now).filter(|&rate| rate > 0.0)?;
        Some(((before.all + 1.0) / all).max((before.own + 1.0) / left))
    }

    /// How much too early those may come that were promised a place: what they wait then is a part of
    /// what the queue takes of them beyond its limit.
    fn spare_s(&self, now: Instant) -> f32 {
        let limits = self.queue.limits();
        let beyond = limits.promised_beyond() as f32 * EARLY_SHARE;
        let wait_s = limits.wait_ms_max as f32 / 1_000.0 * EARLY_SHARE;
        let wait_s = wait_s.min(EARLY_S_MAX);
        self.drain.rate_per_s(now).map_or(0.0, |rate| (beyond / rate).min(wait_s))
    }

    fn count(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Requests served before this one if so large a part of the promised ones comes.
    fn served_before(&self, asker: &Asker, part: f32) -> Before {
        let own_class = class(asker.priority);
        let promised: usize = (0..own_class).map(|class| self.promises.taken(class)).sum();
        let above = self.queue.ahead_above(asker.priority) as f32 + part * promised as f32;
        let mut backlogs = Backlogs::default();
        let mut own = Backlog { weight: asker.weight, ..Backlog::default() };
        for (tenant, weight, promised, newcomers) in self.queue.lines(asker.priority) {
            let all = promised.plus(newcomers);
            backlogs.add(tenant, (all.requests as f32, all.cost as f32), weight);
            if tenant == asker.tenant {
                // Who was promised a place stands before most newcomers.
                let before = if asker.is_promised { promised } else { all };
                own.requests += before.requests as f32;
                own.cost += before.cost as f32;
            }
        }
        if part > 0.0 {
            for (tenant, load) in self.promises.by_tenant(own_class) {
                backlogs.add(tenant, (part * load.requests as f32, part * load.cost as f32), 0);
            }
            let load = self.promises.of_tenant(own_class, asker.tenant);
            own.requests += part * load.requests as f32;
            own.cost += part * load.cost as f32;
        }
        let within = backlogs.ahead(asker.tenant, own, asker.cost() as f32);
        Before { all: above + within, own: own.requests }
    }

    fn count_busy(&mut self, now: Instant, is_refused: bool) {
        self.drain.set_busy(now, is_refused || !self.queue.is_empty());
    }
}

/// What is served before a request: in all, and of its own tenant in its class.
#[derive(Clone, Copy, Debug)]
struct Before {
    all: f32,
    own: f32,
}

/// The part of a predicted wait that is certain: rates vary, and who waits is not sent away for that.
const CERTAIN_SHARE: f32 = 0.7;

/// Seconds of work that may wait whatever was promised: a little more than clients are late by, so that
/// replicas don't run dry.
const SPARE_S: f32 = 0.25;

/// The part of the places that are promised. If all were, what is promised would come as fast as replicas
/// can serve, and by chance alone the queue would grow to its limit; what is left goes to newcomers.
const BOOKED_SHARE: f32 = 0.98;

/// The part of the room for promised requests, and of the longest wait, that those may use who come too
/// early for their place, since nobody is told to come later than in a minute.
const EARLY_SHARE: f32 = 0.5;

/// And no longer than this: who is told to come now should not wait as long again.
const EARLY_S_MAX: f32 = 15.0;

/// Nobody is told to come later than in a minute: later than that nothing is promised.
const HORIZON_S: f32 = 90.0;

/// A place is promised to four at most: more would come together should all of them come for once.
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
