//! How many requests a replica is given at once whose operator has not said.

mod baseline;
mod part;
mod seen_load;
mod standing_queue;
mod step;
mod trial;

use std::time::{Duration, Instant};

use baseline::Baseline;
pub use part::{Sharer, own_part};
pub use seen_load::{SeenLoad, SeenQueue};
use serde::{Deserialize, Serialize};
use standing_queue::StandingQueue;
use step::Step;
use trial::{Remedy, Trial};

/// Finds the number of requests in flight at which a replica is busy and hardly anything waits in it.
///
/// What waits in the node can still go elsewhere, be put behind something more urgent, or be shed; what
/// waits in a replica can't. Engines work on many requests at once and are the better used for it, so
/// how long replies take says nothing: a full batch is slow and right. What tells is that requests
/// wait there. Where the replica reports them, the limit is what it works on plus a few, as TCP Vegas
/// keeps a few packets in a router's queue. Elsewhere the time to the first token is compared with the
/// least of late, as gradient limiters do; since a batch alone makes that several times as long,
/// this only keeps the queue from growing without end.
///
/// The limit is for the requests of all nodes of the region together, each of which finds it for itself
/// by the same reports; [`own_part`] says what that leaves to one of them. So it does not depend on
/// how many nodes there are, and one that was idle knows what the others found.
///
/// It falls only to what is there, and only where requests wait for good: a calm replica keeps the limit it
/// began with, however few requests it has. Not for replicas whose limit is configured.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    tuning: ConcurrencyTuning,
    limit: f32,
    /// Requests waiting in the replica, smoothed.
    queued: Option<f32>,
    /// Whether more waits there than should, and as much as should.
    too_many: StandingQueue,
    enough: StandingQueue,
    /// Replies of this node that begin in a second, smoothed.
    began_per_s: f32,
    step: Step,
    raised_at: Option<Instant>,
    lowered_at: Option<Instant>,
    updated_at: Option<Instant>,
    baseline: Baseline,
    trial: Trial,
    /// The limit before the trial that is under way.
    before_trial: f32,
}

/// Bounds and aims of a [`ConcurrencyLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyTuning {
    /// The limit before anything is known. Where it is too little, each reply that begins makes room for
    /// one more, so that it doubles in the time to a first token. Where it is too much it falls to half
    /// of what is there each second, once requests have waited there for a second.
    pub start: u32,
    /// The least; more keeps a replica busy whose reports are nonsense.
    pub min: u32,
    /// The most, against a replica that takes everything and ends nothing.
    pub max: u32,
    /// Requests that are to wait in the replica, in thousandths of those that it works on, at least one:
    /// so that the next one begins as soon as one ends. More moves the queue into the replica.
    pub queue_permille: u16,
    /// How many times as long as the least the first token may take where nothing else is known. Less
    /// mistakes large batches for a queue: 48 chats at once make it six times as long.
    pub slower_max: f32,
}

impl Default for ConcurrencyTuning {
    fn default() -> Self {
        Self { start: 64, min: 2, max: 4_096, queue_permille: 100, slower_max: 8.0 }
    }
}

impl ConcurrencyLimit {
    /// A limit that knows nothing yet.
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
            step: Step::search(),
            raised_at: None,
            lowered_at: None,
            updated_at: None,
            baseline: Baseline::default(),
            trial: Trial::default(),
            before_trial: limit,
        }
    }

    /// Most requests of the region's nodes together that may be in flight there.
    #[must_use]
    pub fn limit(&self) -> u32 {
        let least = self.tuning.min.max(1);
        (self.limit as u32).clamp(least, self.tuning.max.max(least))
    }

    /// Whether the replica was seen to have too much before: until then the limit is a guess, and less
    /// than what the replica could take for all that is known.
    #[must_use]
    pub fn is_found(&self) -> bool {
        !self.step.is_search()
    }

    /// Takes in what was seen, and says what the limit is from now on. Call it regularly, some times a
    /// second; calls more often than every 50 ms change nothing, so keep for the next one what a call
    /// was not due for.
    pub fn update(&mut self, seen: &SeenLoad, now: Instant) -> u32 {
        let since = self.updated_at.map(|then| now.saturating_duration_since(then));
        if since.is_some_and(|since| since < UPDATE_MIN) {
            return self.limit();
        }
        self.updated_at = Some(now);
        self.count_begun(seen.began, since.unwrap_or(RATE_OVER));
        match seen.queue {
            SeenQueue::New { queued, running } => {
                self.baseline = Baseline::default();
                self.trial = Trial::default();
                self.follow_queue((queued.max(0.0), running), seen, now);
            }
            // What was reported was acted upon.
            SeenQueue::Old => self.search(seen),
            SeenQueue::Untold => {
                self.queued = None;
                (self.too_many, self.enough) = Default::default();
                self.follow_delay(seen, now);
            }
        }
        let (min, max) = (self.tuning.min.max(1) as f32, self.tuning.max.max(1) as f32);
        self.limit = self.limit.clamp(min, max.max(min));
        self.limit()
    }

    /// The replica says what waits in it.
    fn follow_queue(
        &mut self,
        (queued, running): (f32, Option<f32>),
        seen: &SeenLoad,
        now: Instant,
    ) {
        self.search(seen);
        let smooth = self.queued.map_or(queued, |known| known + (queued - known) * QUEUE_SMOOTHING);
        self.queued = Some(smooth);
        let in_flight = seen.in_flight.saturating_add(seen.elsewhere) as f32;
        // Without others' requests, what does not wait is worked on.
        let running = running.unwrap_or(in_flight - queued).max(0.0);
        let own = if running + queued > 0.0 { in_flight / (running + queued) } else { 1.0 };
        let own = own.min(1.0);
        let aim = self.aim(running, own);
        let is_too_much = self.too_many.is_standing(queued, 2.0 * aim, now);
        let is_enough = self.enough.is_standing(queued, aim, now);
        // What others than this region's nodes have sent says nothing of these.
        if is_too_much && in_flight > 0.0 {
            // What it works on of the region's, and its part of what is to wait. Not less each time:
            // what is too much needs time to end.
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
            // Nodes that have come to different limits come together again. Where the replica is full
            // more is of no use,
            self.limit = self.limit.min((running + 2.0 * aim) * own);
        }
        // and what it works on is not too much.
        self.limit = self.limit.max(running * own);
    }

    /// Requests that are to wait in the replica which works on so many, where so much of what is there is
    /// of this region: what keeps it busy, or waits for its next step.
    fn aim(&self, running: f32, own: f32) -> f32 {
        let kept = running * f32::from(self.tuning.queue_permille) / 1_000.0;
        let stepping = self.began_per_s / own.max(OWN_MIN) * STEP.as_secs_f32();
        kept.max(stepping).max(1.0)
    }

    fn count_begun(&mut self, began: u32, since: Duration) {
        let since = since.as_secs_f32().max(UPDATE_MIN.as_secs_f32());
        let part = (since / RATE_OVER.as_secs_f32()).min(1.0);
        self.began_per_s += (began as f32 / since - self.began_per_s) * part;
    }

    /// The replica says nothing, and the time to the first token is all there is.
    fn follow_delay(&mut self, seen: &SeenLoad, now: Instant) {
        let is_late = self.trial.look(seen, now);
        let first_token = seen.first_token.filter(|time| time.is_finite() && *time > 0.0);
        // What was sent before the limit changed, or while there is more than it allows, tells of before.
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
        // Replies begin in time, or all have begun and nothing can be waiting.
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
            let is_searched = self.step.is_search() && seen.unbegun > 0;
            if !is_searched && self.raise(now) {
                self.trial.changed(seen.unbegun);
            }
        }
    }

    /// Replies begin too late: less is given, unless that was tried and did not help.
    fn slow_down(&mut self, share: f32, seen: &SeenLoad, now: Instant) {
        if !self.may_lower(now) {
            return;
        }
        let there = self.limit.min(seen.in_flight as f32);
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

    /// Whether more requests would be there if the limit let them.
    fn keeps_away(&self, seen: &SeenLoad) -> bool {
        seen.in_flight >= seen.allowed.min(self.limit())
    }

    /// As TCP's slow start: what has begun makes room for as many again, until something waits.
    fn search(&mut self, seen: &SeenLoad) {
        if self.step.is_search() && self.keeps_away(seen) {
            self.limit += seen.began as f32;
        }
    }

    fn raise(&mut self, now: Instant) -> bool {
        let after = |then: Option<Instant>, pause: Duration| {
            then.is_none_or(|then| now.saturating_duration_since(then) >= pause)
        };
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

/// Looks in quicker succession show the same reports.
const UPDATE_MIN: Duration = Duration::from_millis(50);

/// Over which the rate of beginnings is smoothed.
const RATE_OVER: Duration = Duration::from_secs(1);

/// Newcomers wait for the next step of the engine for some 50 ms, which is no queue.
const STEP: Duration = Duration::from_millis(100);

/// A smaller part of what is at a replica is counted as this: others' requests say little of its pace.
const OWN_MIN: f32 = 0.1;

/// The part of the newest report in the smoothed queue.
const QUEUE_SMOOTHING: f32 = 0.3;

/// Between two raises, so that the effect of one is reported before the next.
const RAISE_PAUSE: Duration = Duration::from_millis(300);

/// After the limit was lowered: what is too much has to end first.
const LOWER_PAUSE: Duration = Duration::from_secs(1);

/// From this part of the lateness that is too much the limit grows slowly: it takes a while to be seen.
const CAREFUL_FROM: f32 = 0.35;

/// The least that is left of the limit each time: one bad second is no reason to stop ...
const LOWERED_SHARE_MIN: f32 = 0.5;

/// ... and less so where it is not known what made it bad.
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
