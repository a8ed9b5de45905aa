//! The conclusions that are drawn after each input.

use std::time::{Duration, Instant};

use spillway_types::Admission;

use super::{Effect, Member, Shared};
use crate::cache_share::CacheShare;
use crate::condition::{Cause, Evidence, Shift, State};
use crate::life::{Life, LifeStep};
use crate::quantile::Samples;
use crate::ramp::Ramp;
use crate::verdict::{Vote, Votes};

/// An input leads to a few steps and never in a circle; should it, the next tick goes on.
const STEPS_MAX: u32 = 8;

/// So many times as long as all but a hundredth of its answers took is no slow answer any more.
const UNUSUAL: f32 = 3.0;

/// A shorter silence proves nothing, however quick it is: a pause of its process is as long.
const SURE_STALL_MIN: Duration = Duration::from_secs(1);

impl Member {
    /// Draws the conclusions from what is known at `now`.
    pub(crate) fn settle(&mut self, now: Instant, shared: &mut Shared<'_>) {
        for _ in 0..STEPS_MAX {
            if !self.step(now, shared) {
                return;
            }
        }
    }

    /// Whether traffic speaks for ejecting it. The pool's limit is for the caller to see to.
    pub(crate) fn wants_ejection(&self) -> bool {
        self.life.is_serving()
            && self.condition.state() == State::Well
            && self.admission() == Admission::Open
            && self.passive.complaint(&self.spec.health).is_some()
    }

    /// Ejects it for what traffic showed.
    pub(crate) fn eject(&mut self, now: Instant, shared: &mut Shared<'_>) {
        self.why = self.passive.complaint(&self.spec.health).unwrap_or("faults_in_a_row");
        self.condition.eject(now, &self.spec.health, shared.rng);
    }

    /// Notes whether it should be ejected and can't be.
    pub(crate) fn spare(&mut self, is_spared: bool) {
        self.is_spared = is_spared;
    }

    /// Takes a step of its life.
    pub(super) fn take(&mut self, now: Instant, step: LifeStep) {
        match step {
            LifeStep::WarmUp => {
                self.why = "ready";
                self.effects.push(Effect::WarmUp);
            }
            LifeStep::Serve(why) => {
                self.start_ramp(now);
                self.why = why;
            }
            LifeStep::ServeOnTrial => {
                self.start_ramp(now);
                self.condition.begin_trial(Cause::Check);
                self.why = "warm_up_failed";
            }
            LifeStep::Drained => {
                self.effects.push(Effect::Drained);
                self.why = "drained";
            }
        }
    }

    /// It is as good as new: nothing that was known of its health holds any more.
    pub(super) fn start_over(&mut self, why: &'static str) {
        self.condition.reset();
        self.passive.forgive();
        self.paces.forget();
        self.why = why;
    }

    pub(super) fn start_ramp(&mut self, now: Instant) {
        self.ramp = Ramp::start(now, self.spec.slow_start);
        self.cache = CacheShare::default();
    }

    pub(super) fn evidence(&self, now: Instant) -> Evidence {
        let votes = Votes {
            active: self.checks.active_vote(now, &self.spec),
            passive: self.passive.vote(now, &self.spec.health),
            deep: self.checks.deep_vote(now, &self.spec),
            scrape: self.checks.scrape_vote(now, &self.spec),
        };
        Evidence { votes, others: self.others, is_stalled: self.passive.is_stalled() }
    }

    /// How long it may be silent while requests wait for it. By itself silence proves little: a unary
    /// answer may take a minute. But where a check has failed too, and it answered within a part of
    /// that time a moment ago, it hangs.
    pub(super) fn stall(&self, now: Instant) -> Duration {
        let longest = Duration::from_millis(self.spec.health.stall_ms);
        if !self.checks.active.is_failing() {
            return longest;
        }
        // Of what was usual before it fell silent soon nothing is left.
        if self.passive.is_stalled() {
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

    fn step(&mut self, now: Instant, shared: &mut Shared<'_>) -> bool {
        let is_ready = self.life == Life::Starting && self.is_ready(now);
        if let Some(step) = self.life.advance(now, is_ready, &self.spec) {
            self.take(now, step);
            return true;
        }
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

    fn follow(&mut self, now: Instant, shift: Shift) {
        match shift {
            Shift::Out(why) | Shift::Recovered(why) => self.why = why,
            Shift::ToTrial(why) => {
                self.passive.forgive();
                self.paces.forget();
                self.why = why;
            }
            Shift::Reborn(why) => {
                self.passive.forgive();
                self.paces.forget();
                let step = self.life.begin(now, &self.spec, why);
                self.take(now, step);
            }
        }
    }

    /// Whether its checks show that it may begin. One that has none is taken at its word.
    fn is_ready(&self, now: Instant) -> bool {
        let is_checked = self.spec.checks.active.is_some();
        let active = self.checks.active_vote(now, &self.spec);
        let deep = self.checks.deep_vote(now, &self.spec);
        (!is_checked || active == Vote::Good) && !deep.is_bad()
    }
}
