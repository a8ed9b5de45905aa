//! Requests that wait in this node until one of its replicas has a place for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use spillway_route::{Admission, Asker, ShedReason, WaitEntry, WaitLimit, WaitLimits, Waiting};
use spillway_types::{Deadline, ModelName, RouteName};
use tokio::sync::oneshot;

use crate::queue_spec::WaitTotals;

mod stay;
#[cfg(test)]
mod waiting_test;

pub(crate) use stay::{Stay, Told};
use stay::{Turn, Word};

/// How long after a request was turned away replicas count as busy: where all are turned away at once
/// nothing waits, and the rate of the others would never be learned.
const BUSY_MS: u64 = 1_000;

/// What waits together: requests that the same replicas can serve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitKey {
    route: RouteName,
    model: ModelName,
}

/// All queues of a node.
///
/// The lock is taken by requests that wait or are turned away, and by ends of others while some wait;
/// where nothing waits and nobody was promised a place two atomics say so.
#[derive(Debug)]
pub(crate) struct Waitings {
    totals: WaitTotals,
    count: AtomicUsize,
    promised: AtomicUsize,
    bytes: AtomicUsize,
    /// Milliseconds after `started` at which a request was turned away last, and one more; 0 if none
    /// was.
    shed_ms: AtomicU64,
    started: Instant,
    lines: Mutex<Lines>,
}

type Line = Admission<oneshot::Sender<Word>>;
type Waiter = WaitEntry<oneshot::Sender<Word>>;
/// One for each route and model that had requests waiting lately.
type Lines = BTreeMap<WaitKey, Line>;

/// A request that may have to wait.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) key: WaitKey,
    /// The bounds of its route.
    pub(crate) limits: WaitLimits,
    pub(crate) asker: Asker,
}

/// What is foreseen for a request that is turned away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreseen<R> {
    /// Milliseconds until its turn would have come, as regions are compared.
    pub(crate) wait_ms: f32,
    /// Requests of a mean size in tokens that the replicas are expected to serve in a second; `None`
    /// if nobody knows. Asked only while no rate was measured.
    pub(crate) rate_per_s: R,
}

/// When a request that waits has to have left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Its deadline, or the end of the longest wait.
    pub(crate) until: Instant,
    /// When it must have been sent to a replica to be of use; `None` until the deadline.
    pub(crate) begin_by: Option<Instant>,
    /// When its turn was to come, if it waited before: it does not lose it by finding no place.
    pub(crate) turn_by: Option<Instant>,
}

impl WaitKey {
    pub(crate) fn of(route: &RouteName, model: &ModelName) -> Self {
        Self { route: route.clone(), model: model.clone() }
    }
}

impl Waitings {
    pub(crate) fn new(totals: WaitTotals) -> Self {
        Self {
            totals,
            count: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            shed_ms: AtomicU64::new(0),
            started: Instant::now(),
            lines: Mutex::default(),
        }
    }

    /// Requests that wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Requests that were turned away and promised a place.
    pub(crate) fn promised(&self) -> usize {
        self.promised.load(Ordering::Relaxed)
    }

    /// Whether nothing waits and nothing was promised: then a place is whose it is that comes.
    pub(crate) fn is_quiet(&self) -> bool {
        self.count() == 0 && self.promised() == 0
    }

    /// Whether the rate counts at which requests begin: something waits, or was turned away lately.
    pub(crate) fn is_busy(&self) -> bool {
        let shed_ms = self.shed_ms.load(Ordering::Relaxed);
        self.count() > 0 || (shed_ms > 0 && self.now_ms() < shed_ms + BUSY_MS)
    }

    /// Requests that wait for each model.
    pub(crate) fn by_model(&self) -> BTreeMap<ModelName, u32> {
        let mut counts = BTreeMap::new();
        if self.count() > 0 {
            for (key, line) in self.lock().iter().filter(|(_, line)| !line.is_empty()) {
                *counts.entry(key.model.clone()).or_default() += clamped(line.len());
            }
        }
        counts
    }

    /// What waits that a request which came now would have to wait for; `rate_per_s` as in
    /// [`Foreseen`].
    pub(crate) fn before(
        &self,
        asking: &Asking,
        rate_per_s: impl FnOnce(f32) -> Option<f32>,
    ) -> Waiting {
        let has_room = asking.limits.count_max > 0 && self.has_room(asking.asker.bytes);
        if self.is_quiet() {
            return Waiting { ahead: 0, wait_ms: None, all: 0, has_room };
        }
        let mut waiting = self.on(asking, |line| {
            let now = Instant::now();
            line.expect(&asking.asker, now, rate_per_s);
            line.waiting(&asking.asker, now)
        });
        waiting.has_room &= has_room;
        waiting
    }

    /// Whether this request was promised a place that is due; the promise is kept by that.
    pub(crate) fn redeem(&self, asking: &Asking) -> bool {
        self.on(asking, |line| line.redeem(asking.asker.fingerprint, Instant::now()))
    }

    /// After how many seconds a request that is turned away should come again. It is promised a place
    /// then, where one can be foreseen.
    pub(crate) fn shed(
        &self,
        asking: &Asking,
        known: Foreseen<impl FnOnce(f32) -> Option<f32>>,
        dice: &mut fastrand::Rng,
    ) -> u32 {
        self.shed_ms.store(self.now_ms() + 1, Ordering::Relaxed);
        let asker = Asker { is_promised: false, ..asking.asker };
        self.on(asking, |line| {
            let now = Instant::now();
            line.expect(&asker, now, known.rate_per_s);
            line.shed(&asker, known.wait_ms, now, dice).seconds
        })
    }

    /// The same for a request that nobody in reach could serve.
    pub(crate) fn turn_away(&self, asking: &Asking, dice: &mut fastrand::Rng) -> u32 {
        self.shed_ms.store(self.now_ms() + 1, Ordering::Relaxed);
        self.on(asking, |line| line.turn_away(Instant::now(), dice))
    }

    /// A request took a place at a replica: of such ends the rate is known at which others follow.
    pub(crate) fn began(&self, asking: &Asking) {
        self.on(asking, |line| line.began(&asking.asker, Instant::now()));
    }

    /// Lets a request wait. Less urgent ones may have to leave for it.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) fn enter(
        self: &Arc<Self>,
        asking: &Asking,
        patience: Patience,
    ) -> Result<Stay, WaitLimit> {
        if self.count() >= self.totals.count_max {
            return Err(WaitLimit::Count);
        }
        if !self.has_room(asking.asker.bytes) {
            return Err(WaitLimit::Bytes);
        }
        let now = Instant::now();
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
                send_away(line, victim, (ShedReason::PushedOut, now));
            }
            let turn_by = line.queue().get(entered.ticket).and_then(|entry| entry.turn_by);
            Ok((entered.ticket, turn_by))
        })?;
        Ok(Stay::new(self, asking.key.clone(), (ticket, turn_by), words))
    }

    /// A place has come free somewhere, or may have: the first of each queue looks for itself.
    pub(crate) fn wake(self: &Arc<Self>) {
        if self.count() == 0 {
            return;
        }
        let lines = self.lock();
        let keys = lines.iter().filter(|(_, line)| !line.is_empty()).map(|(key, _)| key.clone());
        let keys: Vec<WaitKey> = keys.collect();
        drop(lines);
        keys.iter().for_each(|key| self.wake_one(key));
    }

    /// The same, and takes those out that can't make it any more. To be called now and then also when
    /// nothing waits: what is known of queues that are long empty is forgotten.
    pub(crate) fn review(self: &Arc<Self>) {
        if self.is_quiet() && self.lock().is_empty() {
            return;
        }
        let now = Instant::now();
        let mut lines = self.lock();
        for line in lines.values_mut() {
            self.counted(line, |line| expire(line, now));
        }
        lines.retain(|_, line| !line.is_idle(now));
        drop(lines);
        self.wake();
    }

    fn wake_one(self: &Arc<Self>, key: &WaitKey) {
        let now = Instant::now();
        let next = {
            let mut lines = self.lock();
            let Some(line) = lines.get_mut(key) else { return };
            self.counted(line, |line| {
                expire(line, now);
                line.pop_next(now)
            })
        };
        if let Some((_, entry)) = next {
            // Whoever left in this very moment drops the turn, which then goes on to the next.
            drop(entry.item.send(Word::Turn(Turn::new(self, key.clone()))));
        }
    }

    /// Requests that wait there of tenants and classes that are `wanted`.
    pub(crate) fn of_tenants(&self, key: &WaitKey, wanted: impl Fn(u64, u8) -> bool) -> u32 {
        self.lock().get(key).map_or(0, |line| line.waiting_of_tenants(wanted))
    }

    /// A turn that was of no use goes to somebody whose tenant and class are `wanted`.
    pub(crate) fn wake_one_of(self: &Arc<Self>, key: &WaitKey, wanted: impl Fn(u64, u8) -> bool) {
        let now = Instant::now();
        let next = {
            let mut lines = self.lock();
            let Some(line) = lines.get_mut(key) else { return };
            self.counted(line, |line| {
                line.pop_where(|entry| wanted(entry.tenant, entry.priority), now)
            })
        };
        if let Some((_, entry)) = next {
            drop(entry.item.send(Word::Turn(Turn::new(self, key.clone()))));
        }
    }

    /// Does something with a request's queue, which is made if there is none.
    fn on<R>(&self, asking: &Asking, act: impl FnOnce(&mut Line) -> R) -> R {
        let Asking { key, limits, .. } = asking;
        let limits = *limits;
        let mut lines = self.lock();
        if !lines.contains_key(key) {
            lines.insert(key.clone(), Line::new(limits));
        }
        let Some(line) = lines.get_mut(key) else { return act(&mut Line::new(limits)) };
        line.set_limits(limits);
        self.counted(line, act)
    }

    /// Keeps the sums over all queues.
    fn counted<R>(&self, line: &mut Line, act: impl FnOnce(&mut Line) -> R) -> R {
        let before = (line.len(), line.promised(), line.bytes());
        let result = act(line);
        let move_by = |sum: &AtomicUsize, before: usize, after: usize| {
            // Wraps where it became less, and comes out right.
            sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        };
        move_by(&self.count, before.0, line.len());
        move_by(&self.promised, before.1, line.promised());
        move_by(&self.bytes, before.2, line.bytes());
        result
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn has_room(&self, bytes: usize) -> bool {
        let held = self.bytes.load(Ordering::Relaxed);
        self.count() < self.totals.count_max && held.saturating_add(bytes) <= self.totals.bytes_max
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes those out that had to leave.
fn expire(line: &mut Line, now: Instant) {
    while let Some((_, entry)) = line.expire(now) {
        let reason = entry.lapse(now);
        send_away(line, entry, (reason, now));
    }
}

/// Tells a request that its wait is over, and when it should come again.
fn send_away(line: &mut Line, entry: Waiter, (reason, now): (ShedReason, Instant)) {
    // It has used up what it was promised.
    let asker = Asker { is_promised: false, ..entry.asker() };
    let mut dice = fastrand::Rng::with_seed(asker.fingerprint);
    let retry = line.shed(&asker, 0.0, now, &mut dice);
    let retry_after = Duration::from_secs(retry.seconds.into());
    // Who has left needs no answer.
    drop(entry.item.send(Word::Shed(reason, retry_after)));
}

fn clamped(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
