//! Condition of a replica: ejection, trial and return.

use std::time::Instant;

use spillway_types::DownCause;

use crate::HealthConfig;
use crate::back_off::{BackOff, BackOffLimits};
use crate::change_reason::ChangeReason;
use crate::time::{jittered, later};
use crate::verdict::{PeerReports, Verdict, Vote, Votes, verdict};

/// Condition of one replica, with the memory of its failures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    state: ConditionState,
    back_off: BackOff,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConditionState {
    // Well => (Ejected | Trial | Down)
    #[default]
    Well,
    // Ejected => (Trial | Down)
    /// This node leaves the replica out, at least until `until`.
    Ejected { until: Instant, by: Cause },
    // Trial => (Well | Ejected | Down)
    /// The replica gets a small share of requests and has given `goods` good answers.
    Trial { goods: u32, by: Cause },
    // Down => (Well | Trial)
    /// Every node leaves the replica out. Without active checks it is tried again after `until`.
    Down { until: Instant, cause: DownCause },
}

/// Reason for an ejection or a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Faults of requests. Such ejections are limited to a share of the pool.
    Traffic,
    /// A deep check or a warm-up that failed.
    Check,
    /// The replica was down.
    Down,
}

/// Evidence about the replica at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence {
    pub(crate) votes: Votes,
    /// Votes of the region's other nodes.
    pub(crate) others: PeerReports,
    /// True if no byte comes although requests wait for one.
    pub(crate) is_stalled: bool,
}

/// Change of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    /// The replica is left out.
    Out(ChangeReason),
    /// The replica is tried again with a small share.
    ToTrial(ChangeReason),
    /// The replica is well again and has kept its cache.
    Recovered(ChangeReason),
    /// The replica was silent, answers again, and has kept its cache.
    Resumed(ChangeReason),
    /// The replica was down and is up again; its cache is taken for lost.
    Reborn(ChangeReason),
}

impl Condition {
    pub(crate) fn state(&self) -> ConditionState {
        self.state
    }

    pub(crate) fn repeats(&self) -> u32 {
        self.back_off.repeats()
    }

    /// Returns the verdict that follows from the votes in this condition.
    pub(crate) fn verdict(&self, now: Instant, evidence: &Evidence) -> Verdict {
        verdict(self.votes_that_count(now, evidence.votes), evidence.others)
    }

    /// Returns true if this node's own signals speak against the replica. The node reports this to
    /// the other nodes. Their votes are not counted here, or two nodes could confirm each other for
    /// ever.
    pub(crate) fn is_against(&self, now: Instant, votes: Votes) -> bool {
        self.votes_that_count(now, votes).lean_down()
    }

    /// Follows the evidence by one step; call again until the result is `None`.
    pub(crate) fn advance(
        &mut self,
        now: Instant,
        evidence: &Evidence,
        config: &HealthConfig,
        rng: &mut fastrand::Rng,
    ) -> Option<Shift> {
        let is_down = self.verdict(now, evidence) == Verdict::Down;
        let why = match self.is_against(now, evidence.votes) {
            true => ChangeReason::SignalsAgree,
            false => ChangeReason::RegionAgrees,
        };
        let fails_deep = evidence.votes.deep.is_bad();
        match self.state {
            ConditionState::Down { until, cause } if is_down => {
                // A silent replica that then refuses connections has died after all.
                let cause = cause.max(evidence.votes.down_cause());
                self.state = ConditionState::Down { until, cause };
                None
            }
            ConditionState::Down { until, cause } => {
                self.leave_down(now, until, cause, evidence.votes.active)
            }
            // The backoff of the ejection goes on: one failure must not count twice.
            ConditionState::Ejected { until, .. } if is_down => {
                self.state = ConditionState::Down { until, cause: evidence.votes.down_cause() };
                Some(Shift::Out(why))
            }
            ConditionState::Well | ConditionState::Trial { .. } if is_down => {
                let until = self.back_at(now, config, rng);
                self.state = ConditionState::Down { until, cause: evidence.votes.down_cause() };
                Some(Shift::Out(why))
            }
            // No backoff is needed: the next good deep check ends this ejection.
            ConditionState::Well | ConditionState::Trial { .. } if fails_deep => {
                self.state = ConditionState::Ejected { until: now, by: Cause::Check };
                Some(Shift::Out(ChangeReason::DeepCheckFailed))
            }
            // A stalled replica or one that fails deep checks stays ejected after its time is over.
            ConditionState::Ejected { until, by } => {
                let is_over = now >= until && !fails_deep && !evidence.is_stalled;
                is_over.then(|| {
                    self.begin_trial(by);
                    Shift::ToTrial(ChangeReason::EjectionOver)
                })
            }
            ConditionState::Trial { goods, .. } if goods >= config.trial_goods => {
                self.state = ConditionState::Well;
                self.back_off.succeed(now);
                Some(Shift::Recovered(ChangeReason::TrialPassed))
            }
            ConditionState::Well | ConditionState::Trial { .. } => None,
        }
    }

    /// Ejects the replica because of its traffic. The caller has checked the pool's limit.
    ///
    /// A replica on trial returns to its ejection without a check of the limit: it was not open, so
    /// the pool loses nothing.
    pub(crate) fn eject(&mut self, now: Instant, config: &HealthConfig, rng: &mut fastrand::Rng) {
        let until = self.back_at(now, config, rng);
        let by =
            if let ConditionState::Trial { by, .. } = self.state { by } else { Cause::Traffic };
        self.state = ConditionState::Ejected { until, by };
    }

    /// Starts a trial with a small share of requests.
    pub(crate) fn begin_trial(&mut self, by: Cause) {
        self.state = ConditionState::Trial { goods: 0, by };
    }

    /// Counts a good answer towards the end of a trial.
    pub(crate) fn on_answer(&mut self) {
        if let ConditionState::Trial { goods, .. } = &mut self.state {
            *goods = goods.saturating_add(1);
        }
    }

    /// Takes in a slow answer: a trial needs good answers in a row.
    pub(crate) fn on_slow_answer(&mut self) {
        if let ConditionState::Trial { goods, .. } = &mut self.state {
            *goods = 0;
        }
    }

    /// Returns what is known of a replica that is down; `None` if it is not.
    pub(crate) fn down_cause(&self) -> Option<DownCause> {
        match self.state {
            ConditionState::Down { cause, .. } => Some(cause),
            _ => None,
        }
    }

    pub(crate) fn is_on_trial(&self) -> bool {
        matches!(self.state, ConditionState::Trial { .. })
    }

    /// Returns true if the replica counts towards the share of the pool that traffic may eject. A
    /// trial counts too, or the whole pool could be either ejected or on trial.
    pub(crate) fn is_ejected_by_traffic(&self) -> bool {
        matches!(
            self.state,
            ConditionState::Ejected { by: Cause::Traffic, .. }
                | ConditionState::Trial { by: Cause::Traffic, .. }
        )
    }

    /// Sets the condition to well and keeps the number of failures.
    pub(crate) fn reset(&mut self) {
        self.state = ConditionState::Well;
    }

    /// Leaves the state "down". With active checks, a replica is down until they succeed. Without
    /// them, no signal would ever end it, so the replica is tried after its backoff.
    fn leave_down(
        &mut self,
        now: Instant,
        until: Instant,
        cause: DownCause,
        active: Vote,
    ) -> Option<Shift> {
        match active {
            Vote::Good => {
                self.state = ConditionState::Well;
                self.back_off.succeed(now);
                Some(match cause {
                    DownCause::Silence => Shift::Resumed(ChangeReason::AnswersAgain),
                    DownCause::Failure => Shift::Reborn(ChangeReason::ActiveChecksRose),
                })
            }
            Vote::Silent if now >= until => {
                self.begin_trial(Cause::Down);
                Some(match cause {
                    DownCause::Silence => Shift::ToTrial(ChangeReason::BackOffOver),
                    DownCause::Failure => Shift::Reborn(ChangeReason::BackOffOver),
                })
            }
            _ => None,
        }
    }

    /// Returns the votes that count in this state. A replica on trial, or due for one, is not
    /// judged by the traffic before, and a lone vote of a check counts less, because no traffic
    /// could contradict it.
    fn votes_that_count(&self, now: Instant, votes: Votes) -> Votes {
        match self.state {
            ConditionState::Trial { .. } => votes.brief(),
            ConditionState::Down { until, .. } if now >= until && votes.active == Vote::Silent => {
                votes.for_a_trial()
            }
            ConditionState::Well | ConditionState::Ejected { .. } | ConditionState::Down { .. } => {
                votes
            }
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
