//! Adaptive concurrency limit of a replica whose limit is not configured.

mod baseline;
mod load_sample;
mod part;
mod standing_queue;
mod step;
mod trial;

use std::time::{Duration, Instant};

use baseline::Baseline;
pub use load_sample::{LoadSample, QueueSample};
pub use part::{Sharer, own_part};
use serde::{Deserialize, Serialize};
use standing_queue::StandingQueue;
use step::LimitStep;
use trial::{Remedy, Trial};

use crate::spill::GuestLack;

/// Concurrency limit of a replica: the number of requests in flight at which it is busy and hardly
/// anything waits in it.
///
/// A request that waits in the node can still go elsewhere, be put behind a more urgent one, or be
/// shed; a request that waits in a replica can't. Engines work on many requests at once and are
/// better used for it, so slow replies prove nothing: a full batch is slow and right. Waiting
/// requests do prove an overload. Where the replica reports them, the limit is the number of
/// running requests plus a few, as TCP Vegas keeps a few packets in a router's queue. Elsewhere the
/// time to first token is compared with its recent minimum, as gradient limiters do. Since a batch
/// alone makes that time several times as long, this rule only keeps the queue from growing without
/// end.
///
/// The limit is for the requests of all nodes of the region together. Each node finds it by the
/// same reports, and [`own_part`] computes the part of one node. So the limit does not depend on
/// the number of nodes, and a node that was idle knows the limit that the others found.
///
/// The limit falls only to the present load, and only if there is a standing queue: a calm replica
/// keeps its first limit, however few requests it has.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    tuning: ConcurrencyTuning,
    limit: f32,
    /// Requests waiting in the replica, smoothed.
    queued: Option<f32>,
    /// Detects that more requests wait in the replica than should, and that as many wait as should.
    too_many: StandingQueue,
    enough: StandingQueue,
    /// Replies to this node that begin per second, smoothed.
    began_per_s: f32,
    step: LimitStep,
    raised_at: Option<Instant>,
    lowered_at: Option<Instant>,
    updated_at: Option<Instant>,
    baseline: Baseline,
    trial: Trial,
    /// Requests of this node without a first token at which the replica takes no guests.
    guests_unbegun_max: f32,
    /// Limit before the trial that is under way.
    before_trial: f32,
}

/// Bounds and aims of a [`ConcurrencyLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyTuning {
    /// Limit of a replica that nothing is known of. If it is too small, each reply that begins
    /// makes room for one more, so that the limit doubles in one time to first token. If it is too
    /// large, it falls to half of the present load each second, once requests have waited for a
    /// second.
    pub start: u32,
    /// Smallest limit; a larger value keeps a replica busy whose reports are nonsense.
    pub min: u32,
    /// Largest limit, against a replica that accepts everything and finishes nothing.
    pub max: u32,
    /// Requests that should wait in the replica, in thousandths of those that run, at least one: so
    /// that the next one begins as soon as one ends. A larger value moves the queue into the
    /// replica.
    pub queue_permille: u16,
    /// Largest time to first token, as a multiple of the recent minimum, where nothing else is
    /// known. A smaller value mistakes large batches for a queue: 48 chats at once make the time
    /// six times as long.
    pub slower_max: f32,
}

impl Default for ConcurrencyTuning {
    fn default() -> Self {
        Self { start: 64, min: 2, max: 4_096, queue_permille: 100, slower_max: 8.0 }
    }
}

impl ConcurrencyLimit {
    /// Returns a limit without any knowledge of the replica.
    #[must_use]
    pub fn new(tuning: ConcurrencyTuning) -> Self {
        let limit = tuning.start.clamp(tuning.min, tuning.max.max(tuning.min)) as f32;
        Self {
            tuning,
            limit,
            queued: None,
            too_many: StandingQueue::default(),
            enough: StandingQueue::default(),
            began_per_s: 0.0,
            step: LimitStep::search(),
            raised_at: None,
            lowered_at: None,
            updated_at: None,
            baseline: Baseline::default(),
            trial: Trial::default(),
            guests_unbegun_max: GUESTS_UNBEGUN_START,
            before_trial: limit,
        }
    }

    /// Returns the most requests that all nodes of the region together may have in flight there.
    #[must_use]
    pub fn limit(&self) -> u32 {
        let least = self.tuning.min.max(1);
        (self.limit as u32).clamp(least, self.tuning.max.max(least))
    }

    /// Returns true if the replica was overloaded before. Until then the limit is a guess, and the
    /// replica may be able to take more.
    #[must_use]
    pub fn is_found(&self) -> bool {
        !self.step.is_search()
    }

    /// Returns the requests of this node without a first token at which the replica takes no more
    /// guests; `None` once the limit is found, which bounds guests well enough.
    ///
    /// A guess can be many times what the replica works on at once. A flood of guests would fill it
    /// within one round trip, and own clients would wait behind them in the replica. Requests that
    /// wait there have no first token yet, so guests come as fast as those before them begin.
    #[must_use]
    pub fn guests_unbegun_max(&self) -> Option<u32> {
        (!self.is_found()).then_some(self.guests_unbegun_max as u32)
    }

    /// Updates the limit by the observations since the last call, and returns it.
    pub fn update(&mut self, seen: &LoadSample, now: Instant) -> u32 {
        let since = self.updated_at.map(|then| now.saturating_duration_since(then));
        if since.is_some_and(|since| since < UPDATE_MIN) {
            return self.limit();
        }
        self.updated_at = Some(now);
        self.count_begun(seen.began, since.unwrap_or(RATE_OVER));
        self.pace_guests(seen);
        match seen.queue {
            QueueSample::New { queued, running, kv_use } => {
                // A reported queue says more than delays: what these taught is dropped.
                self.baseline = Baseline::default();
                self.trial = Trial::default();
                self.follow_queue((queued.max(0.0), running, kv_use), seen, now);
            }
            // The last report has had its effect already.
            QueueSample::Old => self.search(seen),
            QueueSample::Untold => {
                self.queued = None;
                (self.too_many, self.enough) = Default::default();
                self.follow_delay(seen, now);
            }
        }
        let (min, max) = (self.tuning.min.max(1) as f32, self.tuning.max.max(1) as f32);
        self.limit = self.limit.clamp(min, max.max(min));
        self.limit()
    }

    /// Paces guests as TCP's slow start does: each reply that begins makes room for one more. After
    /// a pause it starts again from the beginning, since the replica may have other work then.
    fn pace_guests(&mut self, seen: &LoadSample) {
        let start = GUESTS_UNBEGUN_START;
        let more = if seen.guest_lack == Some(GuestLack::Pace) {
            seen.began as f32
        } else {
            (start - self.guests_unbegun_max) * PACE_LOST
        };
        let most = self.tuning.max.max(1) as f32;
        self.guests_unbegun_max = (self.guests_unbegun_max + more).clamp(start.min(most), most);
    }

    /// Adjusts the limit by the queue that the replica reports.
    fn follow_queue(
        &mut self,
        (queued, running, kv_use): (f32, Option<f32>, Option<f32>),
        seen: &LoadSample,
        now: Instant,
    ) {
        self.search(seen);
        let smooth = self.queued.map_or(queued, |known| known + (queued - known) * QUEUE_SMOOTHING);
        self.queued = Some(smooth);
        let in_flight = seen.in_flight.saturating_add(seen.elsewhere) as f32;
        // Without a reported number, all requests of this region that don't wait are taken as
        // running.
        let running = running.unwrap_or(in_flight - queued).max(0.0);
        // The rest of the load is of clients outside of this region.
        let own = if running + queued > 0.0 { in_flight / (running + queued) } else { 1.0 };
        let own = own.min(1.0);
        let aim = self.aim(running, kv_use, own);
        // The limit falls at twice the aim and stops growing at the aim: hysteresis between the
        // two.
        let is_too_much = self.too_many.is_standing(queued, 2.0 * aim, now);
        let is_enough = self.enough.is_standing(queued, aim, now);
        // A queue of requests from outside this region is no reason to give fewer from here.
        if is_too_much && in_flight > 0.0 {
            // The region's part of the running requests and of those that should wait, but no steep
            // fall: what is too much needs time to end.
            let enough = (running + aim) * own;
            let there = self.limit.min(in_flight);
            if enough < self.limit && self.may_lower(now) {
                self.lowered(now);
                self.limit = enough.max(there * LOWERED_SHARE_MIN);
            }
        } else if smooth < aim && self.keeps_away(seen) {
            self.raise(now);
        } else if is_enough && (self.keeps_away(seen) || seen.is_kept_away_elsewhere()) {
            self.step.shorten();
            // Nodes with different limits converge here: where the replica is full, more than this
            // is of no use,
            self.limit = self.limit.min((running + 2.0 * aim) * own);
        }
        // and running requests are never too many.
        self.limit = self.limit.max(running * own);
    }

    /// Returns the number of requests that should wait in a replica with so many `running`, of
    /// which the part `own` is this region's: those that keep it busy, or that wait for its next
    /// step.
    ///
    /// Where the KV cache has room, requests wait because an engine reads so many tokens in a step:
    /// they keep no slot from others, and with fewer of them its steps are not full.
    fn aim(&self, running: f32, kv_use: Option<f32>, own: f32) -> f32 {
        let reads = kv_use.is_some_and(|share| share < KV_FULL);
        let permille = if reads { 1_000 } else { self.tuning.queue_permille };
        let kept = running * f32::from(permille) / 1_000.0;
        let stepping = self.began_per_s / own.max(OWN_MIN) * STEP.as_secs_f32();
        kept.max(stepping).max(1.0)
    }

    fn count_begun(&mut self, began: u32, since: Duration) {
        let since = since.as_secs_f32().max(UPDATE_MIN.as_secs_f32());
        let part = (since / RATE_OVER.as_secs_f32()).min(1.0);
        self.began_per_s += (began as f32 / since - self.began_per_s) * part;
    }

    /// Adjusts the limit by the time to first token, for a replica that reports no queue.
    fn follow_delay(&mut self, seen: &LoadSample, now: Instant) {
        let is_late = self.trial.look(seen, now);
        let first_token = seen.first_token.filter(|time| time.is_finite() && *time > 0.0);
        // Replies to requests sent before the limit changed, or while more were in flight than it
        // allows, show the effect of the old limit.
        let is_draining = is_late || seen.in_flight > self.limit();
        let first_token = first_token.filter(|_| !is_draining);
        let slower = first_token.map(|time| self.baseline.slower(time, now));
        let slower_max = self.tuning.slower_max.max(1.0);
        if let Some(slower) = slower.filter(|slower| *slower > slower_max) {
            return self.slow_down(slower_max / slower, seen, now);
        }
        if slower.is_some() {
            self.trial.in_time();
        }
        // Replies begin in time, or all of them have begun and no request can be waiting.
        let is_flowing =
            slower.is_some() || seen.unbegun == 0 || self.baseline.is_in_time(slower_max);
        if is_flowing
            && !is_draining
            && self.keeps_away(seen)
            && (seen.began > 0 || seen.unbegun == 0)
        {
            if slower.is_some_and(|slower| slower > slower_max * CAREFUL_FROM) {
                self.step.shorten();
            }
            self.search(seen);
            // Slow start has raised the limit already, as long as replies are still to begin.
            let is_searched = self.step.is_search() && seen.unbegun > 0;
            if !is_searched && self.raise(now) {
                self.trial.changed(seen.unbegun);
            }
        }
    }

    /// Lowers the limit because replies begin too late, unless a trial showed that this does not
    /// help.
    fn slow_down(&mut self, share: f32, seen: &LoadSample, now: Instant) {
        if !self.may_lower(now) {
            return;
        }
        // Lowered from the present load: the loss of an unused part would not be felt.
        let there = self.limit.min(seen.in_flight as f32);
        // First step of a trial: keep the limit to return to if the trial fails.
        if !self.trial.is_lowering() {
            self.before_trial = self.limit;
        }
        match self.trial.late(there, now) {
            Remedy::Lower => {
                let least =
                    if self.step.is_search() { LOWERED_SHARE_MIN } else { SLOWED_SHARE_MIN };
                self.lowered(now);
                self.limit = there * share.max(least);
                self.trial.changed(seen.unbegun);
            }
            Remedy::Wait => {}
            Remedy::Restore => self.limit = self.before_trial,
        }
    }

    /// Returns true if the limit keeps requests away from the replica.
    fn keeps_away(&self, seen: &LoadSample) -> bool {
        // Guests stop at the reserve, which is below the limit.
        seen.guest_lack == Some(GuestLack::Reserve)
            || seen.in_flight >= seen.allowed.min(self.limit())
    }

    /// Raises the limit as TCP's slow start does: each reply that begins makes room for one more,
    /// until requests wait.
    fn search(&mut self, seen: &LoadSample) {
        if self.step.is_search() && self.keeps_away(seen) {
            self.limit += seen.began as f32;
        }
    }

    fn raise(&mut self, now: Instant) -> bool {
        let after = |then: Option<Instant>, pause: Duration| {
            then.is_none_or(|then| now.saturating_duration_since(then) >= pause)
        };
        // The effects of the last raise and of the last reduction must show first.
        let may = after(self.raised_at, RAISE_PAUSE) && after(self.lowered_at, LOWER_PAUSE);
        if may {
            self.raised_at = Some(now);
            self.limit += (self.limit * self.step.take()).max(1.0);
        }
        may
    }

    fn may_lower(&self, now: Instant) -> bool {
        let last = self.lowered_at.map(|then| now.saturating_duration_since(then));
        last.is_none_or(|since| since >= LOWER_PAUSE)
    }

    fn lowered(&mut self, now: Instant) {
        self.lowered_at = Some(now);
        self.step.shorten();
    }
}

/// Least time between updates: sooner, the reports are still the same.
const UPDATE_MIN: Duration = Duration::from_millis(50);

/// Requests without a first token that a replica may have when the first guests come: enough to keep
/// an engine busy that reads one prompt after the other.
const GUESTS_UNBEGUN_START: f32 = 8.0;

/// Part of what guests have gained that each look without a refused guest takes: most of it within
/// five seconds.
const PACE_LOST: f32 = 0.02;

/// Use of a KV cache from which on a queue waits for room in it.
const KV_FULL: f32 = 0.7;

/// Time over which the rate of beginning replies is smoothed.
const RATE_OVER: Duration = Duration::from_secs(1);

/// Time that a new request may wait for the engine's next step, about 50 ms with room to spare;
/// that wait is no queue.
const STEP: Duration = Duration::from_millis(100);

/// Least own part of a replica's load that counts: other requests show little of its pace.
const OWN_MIN: f32 = 0.1;

/// Weight of the newest report in the smoothed queue.
const QUEUE_SMOOTHING: f32 = 0.3;

/// Least time between two raises, so that the effect of one is reported before the next.
const RAISE_PAUSE: Duration = Duration::from_millis(300);

/// Pause after the limit was lowered: what is too much has to end first.
const LOWER_PAUSE: Duration = Duration::from_secs(1);

/// Part of the largest allowed slowness from which the limit grows slowly, since an effect takes a
/// while to show.
const CAREFUL_FROM: f32 = 0.35;

/// Least part of the limit that is left each time: one bad second is no reason to stop.
const LOWERED_SHARE_MIN: f32 = 0.5;

/// Least part that is left each time where the cause is unknown.
const SLOWED_SHARE_MIN: f32 = 0.9;

#[cfg(test)]
#[path = "concurrency_limit/concurrency_limit_test.rs"]
mod concurrency_limit_test;
#[cfg(test)]
#[path = "concurrency_limit/nodes_test.rs"]
mod nodes_test;
#[cfg(test)]
#[path = "concurrency_limit/test_engine.rs"]
mod test_engine;
