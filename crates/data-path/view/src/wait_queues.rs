//! Requests that wait in this node until one of its replicas has a slot for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spillway_route::{
    Admission, Asker, BUSY_AFTER_SHED, Refusal, ShedReason, WaitEntry, WaitLimit, WaitLimits,
    Waiting,
};
use spillway_transport::coarse_clock;
use spillway_types::{Deadline, ModelName, RouteName};
use tokio::sync::oneshot;

use crate::queue_spec::WaitTotals;

mod queued_request;
#[cfg(test)]
mod wait_queues_test;

pub use queued_request::{QueueMessage, QueueTurn, QueuedEnd, QueuedRequest};

/// Key of a queue: its requests can be served by the same replicas.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitKey {
    route: RouteName,
    model: ModelName,
}

/// All queues of a node.
///
/// The lock is taken by requests that wait or are shed, and by the ends of others while some wait.
/// Two atomics show without the lock whether no request waits and no slot is promised.
#[derive(Debug)]
pub struct WaitQueues {
    totals: WaitTotals,
    count: AtomicUsize,
    promised: AtomicUsize,
    bytes: AtomicUsize,
    /// Time of the last shed request, milliseconds after `started` plus 1; 0 if there was none.
    shed_ms: AtomicU64,
    started: Instant,
    lines: Mutex<Lines>,
}

type Line = Admission<oneshot::Sender<QueueMessage>>;
type Waiter = WaitEntry<oneshot::Sender<QueueMessage>>;
/// Queues of each route and model that had requests waiting lately.
type Lines = BTreeMap<WaitKey, Line>;

/// A request that may have to wait.
#[derive(Clone, Debug)]
pub struct Asking {
    /// Queue to wait in.
    pub key: WaitKey,
    /// Bounds of the route's queue.
    pub limits: WaitLimits,
    /// Tenant, class and size of the request.
    pub asker: Asker,
}

/// Forecast for a request that is shed.
#[derive(Clone, Copy, Debug)]
pub struct Foreseen<R> {
    /// Reason for shedding it, and the predicted wait.
    pub refusal: Refusal,
    /// Returns the requests of a mean size in tokens that the replicas are expected to serve in a
    /// second; `None` if that is unknown. Called only while no rate was measured.
    pub rate_per_s: R,
}

/// Time limits of a request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Deadline, or the end of the longest wait.
    pub until: Instant,
    /// Time by which the request must have been sent to a replica to be of use; `None` for the
    /// deadline.
    pub begin_by: Option<Instant>,
    /// Time at which its turn was due, if it waited before: finding no slot does not lose the
    /// turn.
    pub turn_by: Option<Instant>,
}

impl WaitKey {
    /// Returns the key of a route and model.
    pub fn of(route: &RouteName, model: &ModelName) -> Self {
        Self { route: route.clone(), model: model.clone() }
    }
}

impl WaitQueues {
    /// Returns empty queues with the bounds `totals` for all together.
    pub fn new(totals: WaitTotals) -> Self {
        Self {
            totals,
            count: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            shed_ms: AtomicU64::new(0),
            started: coarse_clock::now(),
            lines: Mutex::default(),
        }
    }

    /// Returns how many requests wait.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns how many requests were shed with the promise of a slot.
    pub fn promised(&self) -> usize {
        self.promised.load(Ordering::Relaxed)
    }

    /// Returns true if no request waits and no slot is promised, so that any request may take a
    /// free slot.
    pub fn is_quiet(&self) -> bool {
        self.count() == 0 && self.promised() == 0
    }

    /// Returns true if request starts are to be counted: requests wait, or were shed lately.
    pub fn is_busy(&self) -> bool {
        let shed_ms = self.shed_ms.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.now_ms().saturating_sub(shed_ms));
        self.count() > 0 || (shed_ms > 0 && since < BUSY_AFTER_SHED)
    }

    /// Returns how many requests wait for each model.
    pub fn by_model(&self) -> BTreeMap<ModelName, u32> {
        let mut counts = BTreeMap::new();
        if self.count() > 0 {
            for (key, line) in self.lock().iter().filter(|(_, line)| !line.is_empty()) {
                *counts.entry(key.model.clone()).or_default() += clamped(line.len());
            }
        }
        counts
    }

    /// Returns the queue that a request coming now would have to wait for; `rate_per_s` as in
    /// [`Foreseen`].
    pub fn before(&self, asking: &Asking, rate_per_s: impl FnOnce(f32) -> Option<f32>) -> Waiting {
        let has_room = asking.limits.count_max > 0 && self.has_room(asking.asker.bytes);
        // Two atomics spare the lock in the usual case.
        if self.is_quiet() {
            return Waiting { ahead: 0, wait_ms: None, all: 0, has_room };
        }
        let mut waiting = self.on(asking, |line| {
            let now = coarse_clock::now();
            line.expect(&asking.asker, now, rate_per_s);
            line.waiting(&asking.asker, now)
        });
        waiting.has_room &= has_room;
        waiting
    }

    /// Redeems the promise of a slot. Returns true if the request had one that is due.
    pub fn redeem(&self, asking: &Asking) -> bool {
        self.on(asking, |line| line.redeem(asking.asker.fingerprint, coarse_clock::now()))
    }

    /// Sheds a request. Returns the seconds after which the client should retry. A slot is
    /// promised for that time if one can be foreseen.
    pub fn shed(
        &self,
        asking: &Asking,
        known: Foreseen<impl FnOnce(f32) -> Option<f32>>,
        dice: &mut fastrand::Rng,
    ) -> u32 {
        self.shed_ms.store(self.now_ms() + 1, Ordering::Relaxed);
        // The request has used up an earlier promise.
        let asker = Asker { is_promised: false, ..asking.asker };
        self.on(asking, |line| {
            let now = coarse_clock::now();
            line.expect(&asker, now, known.rate_per_s);
            line.shed(&asker, known.refusal, now, dice).seconds
        })
    }

    /// Sheds a request that no replica or region in reach could serve. Returns seconds as
    /// [`Self::shed`].
    pub fn turn_away(&self, asking: &Asking, dice: &mut fastrand::Rng) -> u32 {
        self.shed_ms.store(self.now_ms() + 1, Ordering::Relaxed);
        self.on(asking, |line| line.turn_away(coarse_clock::now(), dice))
    }

    /// Notes that a request took a slot at a replica: these starts give the rate at which others
    /// follow.
    pub fn began(&self, asking: &Asking) {
        self.on(asking, |line| line.began(&asking.asker, coarse_clock::now()));
    }

    /// Lets a request wait. Less urgent ones may have to leave for it.
    ///
    /// # Errors
    /// Returns the limit that the queue has reached.
    pub fn enter(
        self: &Arc<Self>,
        asking: &Asking,
        patience: Patience,
    ) -> Result<QueuedRequest, WaitLimit> {
        // The totals bound all queues of the node together.
        if self.count() >= self.totals.count_max {
            return Err(WaitLimit::Count);
        }
        if !self.has_room(asking.asker.bytes) {
            return Err(WaitLimit::Bytes);
        }
        let now = coarse_clock::now();
        let (word, words) = oneshot::channel();
        let deadline = Deadline::after(now, patience.until.saturating_duration_since(now));
        let Asker { priority, tenant, weight, tokens, bytes, fingerprint, is_promised } =
            asking.asker;
        let entry = WaitEntry {
            priority,
            tenant,
            weight,
            tokens,
            bytes,
            fingerprint,
            is_promised,
            begin_by: patience.begin_by,
            turn_by: patience.turn_by,
            ..WaitEntry::new(word, deadline)
        };
        let (ticket, turn_by) = self.on(asking, |line| {
            let entered = line.enter(entry, now).map_err(|full| full.limit)?;
            for (_, victim) in entered.pushed_out {
                send_away(line, victim, ShedReason::PushedOut, now);
            }
            let turn_by = line.queue().get(entered.ticket).and_then(|entry| entry.turn_by);
            Ok((entered.ticket, turn_by))
        })?;
        Ok(QueuedRequest::new(self, asking.key.clone(), ticket, turn_by, words))
    }

    /// Wakes the first request of each queue, because a slot may have come free.
    pub fn wake(self: &Arc<Self>) {
        if self.count() == 0 {
            return;
        }
        let lines = self.lock();
        let keys = lines.iter().filter(|(_, line)| !line.is_empty()).map(|(key, _)| key.clone());
        let keys: Vec<WaitKey> = keys.collect();
        // Released first: `wake_one` takes the lock again.
        drop(lines);
        keys.iter().for_each(|key| self.wake_one(key));
    }

    /// Takes out requests that cannot be served in time, and wakes the first of each queue. Call it
    /// now and then, even if no request waits: queues that have been empty for long are forgotten.
    pub fn review(self: &Arc<Self>) {
        if self.is_quiet() && self.lock().is_empty() {
            return;
        }
        let now = coarse_clock::now();
        let mut lines = self.lock();
        for line in lines.values_mut() {
            self.counted(line, |line| expire(line, now));
        }
        lines.retain(|_, line| !line.is_idle(now));
        // Released first: `wake` takes the lock again.
        drop(lines);
        self.wake();
    }

    fn wake_one(self: &Arc<Self>, key: &WaitKey) {
        let now = coarse_clock::now();
        let next = {
            let mut lines = self.lock();
            let Some(line) = lines.get_mut(key) else { return };
            self.counted(line, |line| {
                expire(line, now);
                line.pop_next(now)
            })
        };
        if let Some((_, entry)) = next {
            // A request that leaves at this moment drops the turn, which then goes to the next one.
            drop(entry.item.send(QueueMessage::Turn(QueueTurn::new(self, key.clone()))));
        }
    }

    /// Returns how many requests wait whose tenant and class are `wanted`.
    pub fn of_tenants(&self, key: &WaitKey, wanted: impl Fn(u64, u8) -> bool) -> u32 {
        self.lock().get(key).map_or(0, |line| line.waiting_of_tenants(wanted))
    }

    /// Passes an unused turn to the next request whose tenant and class are `wanted`.
    pub fn wake_one_of(self: &Arc<Self>, key: &WaitKey, wanted: impl Fn(u64, u8) -> bool) {
        let now = coarse_clock::now();
        let next = {
            let mut lines = self.lock();
            let Some(line) = lines.get_mut(key) else { return };
            self.counted(line, |line| {
                line.pop_where(|entry| wanted(entry.tenant, entry.priority), now)
            })
        };
        if let Some((_, entry)) = next {
            drop(entry.item.send(QueueMessage::Turn(QueueTurn::new(self, key.clone()))));
        }
    }

    /// Runs `act` on a request's queue, which is created if there is none.
    fn on<R>(&self, asking: &Asking, act: impl FnOnce(&mut Line) -> R) -> R {
        let Asking { key, limits, .. } = asking;
        let limits = *limits;
        let mut lines = self.lock();
        // Checked first, so that only a new queue costs a copy of the key.
        if !lines.contains_key(key) {
            lines.insert(key.clone(), Line::new(limits));
        }
        let Some(line) = lines.get_mut(key) else { return act(&mut Line::new(limits)) };
        line.set_limits(limits);
        self.counted(line, act)
    }

    /// Runs `act` and updates the sums over all queues.
    fn counted<R>(&self, line: &mut Line, act: impl FnOnce(&mut Line) -> R) -> R {
        let before = (line.len(), line.promised(), line.bytes());
        let result = act(line);
        let move_by = |sum: &AtomicUsize, before: usize, after: usize| {
            // Wraps where the number became less, and the sum comes out right.
            sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        };
        move_by(&self.count, before.0, line.len());
        move_by(&self.promised, before.1, line.promised());
        move_by(&self.bytes, before.2, line.bytes());
        result
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(coarse_clock::since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    fn has_room(&self, bytes: usize) -> bool {
        let held = self.bytes.load(Ordering::Relaxed);
        self.count() < self.totals.count_max && held.saturating_add(bytes) <= self.totals.bytes_max
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes out requests whose time has passed.
fn expire(line: &mut Line, now: Instant) {
    while let Some((_, entry)) = line.expire(now) {
        let reason = entry.lapse(now);
        send_away(line, entry, reason, now);
    }
}

/// Ends the wait of a request and reports when the client may retry.
fn send_away(line: &mut Line, entry: Waiter, reason: ShedReason, now: Instant) {
    // The request has used up its promise.
    let asker = Asker { is_promised: false, ..entry.asker() };
    let mut dice = fastrand::Rng::with_seed(asker.fingerprint);
    let retry = line.shed(&asker, Refusal::new(reason, 0.0), now, &mut dice);
    let retry_after = Duration::from_secs(retry.seconds.into());
    // A request that has left needs no answer.
    drop(entry.item.send(QueueMessage::Shed(reason, retry_after)));
}

fn clamped(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
