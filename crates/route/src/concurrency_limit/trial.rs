//! Whether a lower limit helps.

use std::time::{Duration, Instant};

use super::SeenLoad;

/// Follows a limit that is lowered again and again for late replies.
///
/// If a queue makes them late, the replica gets as much done with half of the limit. If it is something
/// else, as larger requests or a slower server, it gets less done and replies are as late as before:
/// then the limit was lowered in vain, and is left alone for some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    phase: Phase,
    meter: Meter,
    /// Requests that were sent before the limit changed, and whose reply has not begun.
    late: u32,
    /// Looks that told of the time since.
    looks: u32,
    /// Trials in a row that were in vain.
    vain: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    /// Replies come in time, or nothing was done about it yet. => Lowering
    #[default]
    Watching,
    /// Less is given step by step, from this limit on, with which so many began each second.
    // => (Watching | Judging)
    Lowering { limit: f32, rate_per_s: f32 },
    /// Half of it is left: how many begin with that? => (Watching | Lowering | Resting)
    Judging { rate_per_s: f32 },
    /// It was in vain. => Watching
    Resting { until: Instant },
}

/// What to do about late replies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Remedy {
    /// Give less.
    Lower,
    /// Wait and see.
    Wait,
    /// Give as much as before: less did not help.
    Restore,
}

/// How many replies begin in a second.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    since: Option<Instant>,
    count: u32,
    /// Of the last full window.
    last_per_s: f32,
}

impl Trial {
    /// Takes in what was seen; whether replies that began since the last look may be those of requests
    /// that were sent before the limit changed.
    pub(super) fn look(&mut self, seen: &SeenLoad, now: Instant) -> bool {
        let is_judging = matches!(self.phase, Phase::Judging { .. });
        self.meter.add(seen.began, now, !is_judging);
        if let Phase::Resting { until } = self.phase
            && now >= until
        {
            self.phase = Phase::Watching;
        }
        let is_late = self.late > 0;
        // Those that were given up never begin.
        self.late = self.late.saturating_sub(seen.began).min(seen.unbegun);
        is_late
    }

    /// Whether less is given by now, to see whether it helps.
    pub(super) fn is_lowering(&self) -> bool {
        matches!(self.phase, Phase::Lowering { .. } | Phase::Judging { .. })
    }

    /// Replies are late at this limit.
    pub(super) fn late(&mut self, limit: f32, now: Instant) -> Remedy {
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS_MIN {
            return Remedy::Wait;
        }
        match self.phase {
            Phase::Resting { .. } => return Remedy::Wait,
            Phase::Watching => {
                self.phase = Phase::Lowering { limit, rate_per_s: self.meter.highest(now) };
            }
            Phase::Lowering { limit: before, rate_per_s } if limit <= before * JUDGED_AT => {
                self.phase = Phase::Judging { rate_per_s };
                self.meter.restart(now);
                return Remedy::Wait;
            }
            Phase::Lowering { .. } => {}
            Phase::Judging { rate_per_s } => {
                let Some(now_per_s) = self.meter.certain(now) else { return Remedy::Wait };
                if now_per_s < rate_per_s * VAIN_BELOW {
                    let pause = PAUSE.saturating_mul(1 << self.vain.min(PAUSE_DOUBLINGS));
                    self.vain += 1;
                    self.phase = Phase::Resting { until: now + pause };
                    return Remedy::Restore;
                }
                self.phase = Phase::Lowering { limit, rate_per_s: now_per_s };
            }
        }
        Remedy::Lower
    }

    /// Replies are not late any more.
    pub(super) fn in_time(&mut self) {
        self.looks = self.looks.saturating_add(1);
        // What was lowered shortly before may not show yet.
        if self.looks >= LOOKS_MIN && !matches!(self.phase, Phase::Watching) {
            self.phase = Phase::Watching;
            self.vain = 0;
        }
    }

    /// The limit was changed while so many had not begun.
    pub(super) fn changed(&mut self, unbegun: u32) {
        self.late = unbegun;
        self.looks = 0;
    }
}

impl Meter {
    fn add(&mut self, began: u32, now: Instant, is_rolling: bool) {
        let since = *self.since.get_or_insert(now);
        self.count = self.count.saturating_add(began);
        if is_rolling && now.saturating_duration_since(since) >= WINDOW {
            self.last_per_s = self.per_s(now);
            self.restart(now);
        }
    }

    fn restart(&mut self, now: Instant) {
        (self.since, self.count) = (Some(now), 0);
    }

    /// The higher one of the last window and the one under way: so that less than before is not taken
    /// for as much.
    fn highest(&self, now: Instant) -> f32 {
        if self.passed(now) < RATE_AFTER {
            self.last_per_s
        } else {
            self.last_per_s.max(self.per_s(now))
        }
    }

    /// The rate, once enough have begun for it to be no coincidence, or it took too long.
    fn certain(&self, now: Instant) -> Option<f32> {
        let passed = self.passed(now);
        let is_certain = self.count >= COUNT_CERTAIN && passed >= RATE_AFTER;
        (is_certain || passed >= JUDGING_MAX).then(|| self.per_s(now))
    }

    fn per_s(&self, now: Instant) -> f32 {
        self.count as f32 / self.passed(now).as_secs_f32().max(0.001)
    }

    fn passed(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Looks that tell of times before the next step: as many as it takes for their smoothed mean to follow.
const LOOKS_MIN: u32 = 10;

/// The part of the limit that is left when it is judged.
const JUDGED_AT: f32 = 0.55;

/// With half of the limit half as many begin if nothing waits, and as many as before if the rest only
/// waited; something between.
const VAIN_BELOW: f32 = 0.75;

/// Over which rates are taken before a trial.
const WINDOW: Duration = Duration::from_secs(3);

/// Before that a rate says little.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// So many make a rate that is right to a fifth.
const COUNT_CERTAIN: u32 = 30;

/// A replica that begins with fewer in this time is slow, whatever the reason.
const JUDGING_MAX: Duration = Duration::from_secs(30);

/// Until the next trial after one that was in vain, doubled with each.
const PAUSE: Duration = Duration::from_secs(60);

/// At most about an hour.
const PAUSE_DOUBLINGS: u32 = 6;
