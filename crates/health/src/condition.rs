//! Whether a replica is well enough for requests, and how it comes back.

use std::time::Instant;

use crate::HealthConfig;
use crate::back_off::{BackOff, BackOffLimits};
use crate::time::{jittered, later};
use crate::verdict::{Verdict, Vote, Votes, Witnesses, verdict};

/// The condition of one replica, with its memory of how often it failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    state: State,
    back_off: BackOff,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    // Well => (Ejected | Trial | Down)
    #[default]
    Well,
    // Ejected => (Trial | Down)
    /// This node leaves it out, until then at least.
    Ejected { until: Instant, by: Cause },
    // Trial => (Well | Ejected | Down)
    /// It gets a small share and has given so many good answers.
    Trial { goods: u32, by: Cause },
    // Down => (Well | Trial)
    /// All leave it out. Without active checks it is tried again after that moment.
    Down { until: Instant },
}

/// What an ejection or a trial comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// What requests met with. Limited to a share of the pool.
    Traffic,
    /// A check that looks closer than traffic, or a warm-up that failed.
    Check,
    /// It was down.
    Down,
}

/// What is known about the replica at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    pub(crate) votes: Votes,
    /// What the region's other nodes say.
    pub(crate) others: Witnesses,
    /// No byte comes although requests wait.
    pub(crate) is_stalled: bool,
}

/// How the condition changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// It is left out.
    Out(&'static str),
    /// It is tried again with a small share.
    ToTrial(&'static str),
    /// It is well again, with what it had.
    Recovered(&'static str),
    /// It was down and is up again, and all it had in memory is taken for lost.
    Reborn(&'static str),
}

impl Condition {
    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn repeats(&self) -> u32 {
        self.back_off.repeats()
    }

    /// What follows from the votes in this condition.
    pub(crate) fn verdict(&self, now: Instant, evidence: &Evidence) -> Verdict {
        verdict(self.votes_that_count(now, evidence.votes), evidence.others)
    }

    /// Whether this node's own signals speak against the replica: what it tells the others. Their
    /// word is no part of it, or two nodes could go on believing each other for ever.
    pub(crate) fn is_against(&self, now: Instant, votes: Votes) -> bool {
        self.votes_that_count(now, votes).lean_down()
    }

    /// Follows the evidence one step; call again until it says `None`.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        evidence: &Evidence,
        config: &HealthConfig,
        rng: &mut fastrand::Rng,
    ) -> Option<Shift> {
        let is_down = self.verdict(now, evidence) == Verdict::Down;
        let why = match self.is_against(now, evidence.votes) {
            true => "signals_agree",
            false => "region_agrees",
        };
        let fails_deep = evidence.votes.deep.is_bad();
        match self.state {
            State::Down { .. } if is_down => None,
            State::Down { until } => self.leave_down(now, until, evidence.votes.active),
            State::Ejected { until, .. } if is_down => {
                self.state = State::Down { until };
                Some(Shift::Out(why))
            }
            State::Well | State::Trial { .. } if is_down => {
                self.state = State::Down { until: self.back_at(now, config, rng) };
                Some(Shift::Out(why))
            }
            State::Well | State::Trial { .. } if fails_deep => {
                self.state = State::Ejected { until: now, by: Cause::Check };
                Some(Shift::Out("deep_check_failed"))
            }
            State::Ejected { until, by } => {
                let is_over = now >= until && !fails_deep && !evidence.is_stalled;
                is_over.then(|| {
                    self.begin_trial(by);
                    Shift::ToTrial("ejection_over")
                })
            }
            State::Trial { goods, .. } if goods >= config.trial_goods => {
                self.state = State::Well;
                self.back_off.succeed(now);
                Some(Shift::Recovered("trial_passed"))
            }
            State::Well | State::Trial { .. } => None,
        }
    }

    /// Ejects for what traffic showed; the caller has seen to the pool's limit.
    ///
    /// One on trial goes back to where it was. That takes nothing from the pool, since it was not
    /// open before, and so needs no room within the limit.
    pub(crate) fn eject(&mut self, now: Instant, config: &HealthConfig, rng: &mut fastrand::Rng) {
        let until = self.back_at(now, config, rng);
        let by = if let State::Trial { by, .. } = self.state { by } else { Cause::Traffic };
        self.state = State::Ejected { until, by };
    }

    /// Lets it begin with a small share.
    pub(crate) fn begin_trial(&mut self, by: Cause) {
        self.state = State::Trial { goods: 0, by };
    }

    /// Counts a good answer towards the end of a trial.
    pub(crate) fn on_answer(&mut self) {
        if let State::Trial { goods, .. } = &mut self.state {
            *goods = goods.saturating_add(1);
        }
    }

    pub(crate) fn is_on_trial(&self) -> bool {
        matches!(self.state, State::Trial { .. })
    }

    /// Whether it takes from the share of the pool that traffic may eject. A trial still does, or
    /// the whole pool could come to be either out or on trial.
    pub(crate) fn is_ejected_by_traffic(&self) -> bool {
        matches!(
            self.state,
            State::Ejected { by: Cause::Traffic, .. } | State::Trial { by: Cause::Traffic, .. }
        )
    }

    /// Takes it for well; how often it failed is kept.
    pub(crate) fn reset(&mut self) {
        self.state = State::Well;
    }

    /// With active checks a replica is down until they say otherwise. Without them nothing would
    /// ever say so: after its back-off it is tried.
    fn leave_down(&mut self, now: Instant, until: Instant, active: Vote) -> Option<Shift> {
        match active {
            Vote::Good => {
                self.state = State::Well;
                self.back_off.succeed(now);
                Some(Shift::Reborn("active_checks_rose"))
            }
            Vote::Silent if now >= until => {
                self.begin_trial(Cause::Down);
                Some(Shift::Reborn("back_off_over"))
            }
            Vote::Silent | Vote::Bad | Vote::BadForLong => None,
        }
    }

    /// While a replica is tried, or is due to be, what traffic showed before is out of date, and a
    /// lone vote can't be contradicted by the traffic that it prevents.
    fn votes_that_count(&self, now: Instant, votes: Votes) -> Votes {
        match self.state {
            State::Trial { .. } => votes.brief(),
            State::Down { until } if now >= until && votes.active == Vote::Silent => {
                votes.for_a_trial()
            }
            State::Well | State::Ejected { .. } | State::Down { .. } => votes,
        }
    }

    fn back_at(&mut self, now: Instant, config: &HealthConfig, rng: &mut fastrand::Rng) -> Instant {
        let limits = BackOffLimits {
            first_ms: config.eject_ms,
            max_ms: config.eject_max_ms,
            forget_ms: config.eject_forget_ms,
        };
        later(now, jittered(self.back_off.fail(now, limits), rng))
    }
}

#[cfg(test)]
#[path = "condition_test.rs"]
mod condition_test;
