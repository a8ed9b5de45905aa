//! Conclusions about a member after each input.

use std::time::{Duration, Instant};

use spillway_types::Admission;

use super::{Effect, FleetShared, Member};
use crate::cache_share::CacheShare;
use crate::change_reason::ChangeReason;
use crate::condition::{Cause, ConditionState, Evidence, Shift};
use crate::life::{Life, LifeStep};
use crate::quantile::Samples;
use crate::slow_start::Ramp;
use crate::verdict::{Vote, Votes};

/// Most steps after one input. An input leads to a few steps and never to a circle; if it ever did,
/// the next tick would continue.
const STEPS_MAX: u32 = 8;

/// Multiple of the 99th percentile of its answer times from which on a replica's silence is
/// unusual.
const UNUSUAL: f32 = 3.0;

/// Shortest silence that proves a stall: a pause of the replica's process may last as long.
const SURE_STALL_MIN: Duration = Duration::from_secs(1);

impl Member {
    /// Draws the conclusions from the state at `now`.
    pub(crate) fn settle(&mut self, now: Instant, shared: &mut FleetShared<'_>) {
        for _ in 0..STEPS_MAX {
            if !self.step(now, shared) {
                return;
            }
        }
    }

    /// Returns true if traffic speaks for ejecting the replica. The caller checks the pool's limit.
    pub(crate) fn wants_ejection(&self) -> bool {
        self.life.is_serving()
            && self.condition.state() == ConditionState::Well
            && self.admission() == Admission::Open
            && self.outliers.complaint(&self.spec.health).is_some()
    }

    /// Ejects the replica because of its traffic.
    pub(crate) fn eject(&mut self, now: Instant, shared: &mut FleetShared<'_>) {
        self.why = self.outliers.complaint(&self.spec.health).unwrap_or(ChangeReason::FaultsInARow);
        self.condition.eject(now, &self.spec.health, shared.rng);
    }

    /// Records that the replica should be ejected, but that too many of its pool are.
    pub(crate) fn spare(&mut self, is_spared: bool) {
        self.is_spared = is_spared;
    }

    /// Carries out a step of the replica's life.
    pub(super) fn take(&mut self, now: Instant, step: LifeStep) {
        match step {
            LifeStep::WarmUp => {
                self.why = ChangeReason::Ready;
                self.effects.push(Effect::WarmUp);
            }
            LifeStep::Serve(why) => {
                self.start_ramp(now);
                self.why = why;
            }
            LifeStep::ServeOnTrial => {
                self.start_ramp(now);
                self.condition.begin_trial(Cause::Check);
                self.why = ChangeReason::WarmUpFailed;
            }
            LifeStep::Drained => {
                self.effects.push(Effect::Drained);
                self.why = ChangeReason::Drained;
            }
        }
    }

    /// Forgets all evidence about the replica's health, because it starts from the beginning.
    pub(super) fn start_over(&mut self, why: ChangeReason) {
        self.condition.reset();
        self.outliers.forgive();
        self.paces.forget();
        self.why = why;
    }

    /// Starts the slow start: a small share of requests and a cold cache.
    pub(super) fn start_ramp(&mut self, now: Instant) {
        self.ramp = Ramp::start(now, self.spec.slow_start);
        self.cache = CacheShare::default();
    }

    pub(super) fn evidence(&self, now: Instant) -> Evidence {
        let votes = Votes {
            active: self.checks.active_vote(now, &self.spec),
            passive: self.outliers.vote(now, &self.spec.health),
            deep: self.checks.deep_vote(now, &self.spec),
            scrape: self.checks.scrape_vote(now, &self.spec),
        };
        Evidence { votes, others: self.others, is_stalled: self.outliers.is_stalled() }
    }

    /// Returns the silence, with requests in flight, after which the replica counts as stalled.
    /// Silence alone proves little: a unary answer may take a minute. But the replica hangs if an
    /// active check has failed too and if it answered in much less time until now.
    pub(super) fn stall(&self, now: Instant) -> Duration {
        let longest = Duration::from_millis(self.spec.health.stall_ms);
        if !self.checks.active.is_failing() {
            return longest;
        }
        // The window of usual times is soon empty once the replica is silent.
        if self.outliers.is_stalled() {
            return longest.min(SURE_STALL_MIN);
        }
        let mut samples = Samples::new();
        self.times.add_to(&mut samples, now);
        let usual = samples.p99_ms().filter(|(_, trust)| *trust >= 1.0);
        usual.map_or(longest, |(p99_ms, _)| {
            let unusual = Duration::from_secs_f32(p99_ms * UNUSUAL / 1e3);
            unusual.max(SURE_STALL_MIN).min(longest)
        })
    }

    fn step(&mut self, now: Instant, shared: &mut FleetShared<'_>) -> bool {
        let is_ready = self.life == Life::Starting && self.is_ready(now);
        if let Some(step) = self.life.advance(now, is_ready, &self.spec) {
            self.take(now, step);
            return true;
        }
        // Before and after its service, votes do not change the condition.
        if !self.life.is_serving() {
            return false;
        }
        let evidence = self.evidence(now);
        let shift = self.condition.advance(now, &evidence, &self.spec.health, shared.rng);
        if let Some(shift) = shift {
            self.follow(now, shift);
        }
        shift.is_some()
    }

    /// Applies a change of the condition to the rest of the member.
    fn follow(&mut self, now: Instant, shift: Shift) {
        match shift {
            Shift::Out(why) => self.leave_out(now, why),
            Shift::Recovered(why) => self.why = why,
            // The requests that got no answer are over, and say nothing of the time from now on.
            Shift::Resumed(why) => {
                self.outliers.forgive();
                self.why = why;
            }
            // The trial is judged by new answers alone.
            Shift::ToTrial(why) => {
                self.was_slow_on_trial = false;
                self.outliers.forgive();
                self.paces.forget();
                self.why = why;
            }
            // A replica that was down starts from the beginning, with warm-up and slow start.
            Shift::Reborn(why) => {
                self.outliers.forgive();
                self.paces.forget();
                let step = self.life.begin(now, &self.spec, why);
                self.take(now, step);
            }
        }
    }

    /// Keeps the reason of an ejection: while nothing is sent there, its evidence fades.
    pub(super) fn leave_out(&mut self, now: Instant, why: ChangeReason) {
        self.why = why;
        self.ejected_for = None;
        self.ejected_for = self.reason(now, &self.evidence(now));
    }

    /// Returns true if the checks show that the replica may begin. A replica without active checks
    /// is ready at once.
    fn is_ready(&self, now: Instant) -> bool {
        let is_checked = self.spec.checks.active.is_some();
        let active = self.checks.active_vote(now, &self.spec);
        let deep = self.checks.deep_vote(now, &self.spec);
        (!is_checked || active == Vote::Good) && !deep.is_bad()
    }
}
