//! Trials of lower limits.

use std::time::{Duration, Instant};

use super::LoadSample;

/// Trial of a lower limit, when late replies lower the limit again and again.
///
/// If a queue makes replies late, the replica gets as much done with half of the limit. If the
/// cause is something else, such as larger requests or a slower server, it gets less done and
/// replies stay late. The trial has failed then, and the limit is left alone for some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trial {
    phase: TrialPhase,
    meter: Meter,
    /// Requests that were sent before the limit changed and whose reply has not begun.
    late: u32,
    /// Looks since the limit changed.
    looks: u32,
    /// Failed trials in a row.
    vain: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum TrialPhase {
    /// Replies come in time, or the limit was not lowered yet. => Lowering
    #[default]
    Watching,
    /// The limit is lowered step by step from `limit`, at which `rate_per_s` replies began.
    // => (Watching | Judging)
    Lowering { limit: f32, rate_per_s: f32 },
    /// Half of the limit is left, and the rate of beginning replies is measured. => (Watching |
    /// Lowering | Resting)
    Judging { rate_per_s: f32 },
    /// The trial has failed. => Watching
    Resting { until: Instant },
}

/// Reaction to late replies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Remedy {
    /// Lower the limit.
    Lower,
    /// Keep the limit for now.
    Wait,
    /// Restore the limit from before the trial: lowering it did not help.
    Restore,
}

/// Rate at which replies begin.
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    since: Option<Instant>,
    count: u32,
    /// Rate of the last full window.
    last_per_s: f32,
}

impl Trial {
    /// Takes in what was seen. Returns true if replies that began since the last look may belong to
    /// requests that were sent before the limit changed.
    pub(super) fn look(&mut self, seen: &LoadSample, now: Instant) -> bool {
        let is_judging = matches!(self.phase, TrialPhase::Judging { .. });
        self.meter.add(seen.began, now, !is_judging);
        if let TrialPhase::Resting { until } = self.phase
            && now >= until
        {
            self.phase = TrialPhase::Watching;
        }
        let is_late = self.late > 0;
        // Requests that were given up never begin.
        self.late = self.late.saturating_sub(seen.began).min(seen.unbegun);
        is_late
    }

    /// Returns true while the limit is lowered on trial.
    pub(super) fn is_lowering(&self) -> bool {
        matches!(self.phase, TrialPhase::Lowering { .. } | TrialPhase::Judging { .. })
    }

    /// Chooses the reaction to late replies at this limit.
    pub(super) fn late(&mut self, limit: f32, now: Instant) -> Remedy {
        self.looks = self.looks.saturating_add(1);
        // The smoothed times still include times under the limit before.
        if self.looks < LOOKS_MIN {
            return Remedy::Wait;
        }
        match self.phase {
            // The cause is something else, so a lower limit would only cost throughput.
            TrialPhase::Resting { .. } => return Remedy::Wait,
            TrialPhase::Watching => {
                self.phase = TrialPhase::Lowering { limit, rate_per_s: self.meter.highest(now) };
            }
            // The limit is low enough for the rates to be compared.
            TrialPhase::Lowering { limit: before, rate_per_s } if limit <= before * JUDGED_AT => {
                self.phase = TrialPhase::Judging { rate_per_s };
                self.meter.restart(now);
                return Remedy::Wait;
            }
            // Not low enough yet for a difference between the rates to show.
            TrialPhase::Lowering { .. } => {}
            TrialPhase::Judging { rate_per_s } => {
                let Some(now_per_s) = self.meter.certain(now) else { return Remedy::Wait };
                if now_per_s < rate_per_s * VAIN_BELOW {
                    // Each failed trial makes further trials rarer.
                    let pause = PAUSE.saturating_mul(1 << self.vain.min(PAUSE_DOUBLINGS));
                    self.vain += 1;
                    self.phase = TrialPhase::Resting { until: now + pause };
                    return Remedy::Restore;
                }
                // The replica did as much with less: the trial goes on from here.
                self.phase = TrialPhase::Lowering { limit, rate_per_s: now_per_s };
            }
        }
        Remedy::Lower
    }

    /// Ends the trial: replies are in time again.
    pub(super) fn in_time(&mut self) {
        self.looks = self.looks.saturating_add(1);
        // A limit that was lowered shortly before may not show an effect yet.
        if self.looks >= LOOKS_MIN && !matches!(self.phase, TrialPhase::Watching) {
            self.phase = TrialPhase::Watching;
            self.vain = 0;
        }
    }

    /// Notes that the limit was changed while `unbegun` requests had no reply yet.
    pub(super) fn changed(&mut self, unbegun: u32) {
        self.late = unbegun;
        self.looks = 0;
    }
}

impl Meter {
    fn add(&mut self, began: u32, now: Instant, is_rolling: bool) {
        let since = *self.since.get_or_insert(now);
        self.count = self.count.saturating_add(began);
        // While a trial is judged, one window covers all of it.
        if is_rolling && now.saturating_duration_since(since) >= WINDOW {
            self.last_per_s = self.per_s(now);
            self.restart(now);
        }
    }

    fn restart(&mut self, now: Instant) {
        (self.since, self.count) = (Some(now), 0);
    }

    /// Returns the higher rate of the last window and the present one, so that a drop against the
    /// past is not missed.
    fn highest(&self, now: Instant) -> f32 {
        if self.passed(now) < RATE_AFTER {
            self.last_per_s
        } else {
            self.last_per_s.max(self.per_s(now))
        }
    }

    /// Returns the rate once enough replies have begun to rule out chance, or once it took too
    /// long.
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

/// Fewest looks before the next step: as many as the smoothed mean needs to follow.
const LOOKS_MIN: u32 = 10;

/// Part of the limit that is left when the trial is judged.
const JUDGED_AT: f32 = 0.55;

/// Part of the rate below which a trial has failed. At half of the limit, half as many replies
/// begin if nothing waits, and as many as before if the rest only waited; this is between the two.
const VAIN_BELOW: f32 = 0.75;

/// Length of the window for rates before a trial.
const WINDOW: Duration = Duration::from_secs(3);

/// Shortest time for a rate to mean something.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// Replies that make a rate exact to a fifth.
const COUNT_CERTAIN: u32 = 30;

/// Longest measurement: a replica that begins with fewer replies in this time is slow, whatever the
/// cause.
const JUDGING_MAX: Duration = Duration::from_secs(30);

/// Pause after the first failed trial; it doubles with each further one.
const PAUSE: Duration = Duration::from_secs(60);

/// Most doublings of the pause, which is then about an hour.
const PAUSE_DOUBLINGS: u32 = 6;
