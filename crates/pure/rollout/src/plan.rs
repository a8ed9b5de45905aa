//! Steps of a rollout: how much traffic the candidate gets, and when it gets more.
//!
//! Nodes agree on [`RolloutProgress`] through the log. [`RolloutPlan::next`] proposes a change of it, and
//! [`RolloutPlan::after`] makes one. A proposal names the progress that it was made over, so of two
//! nodes that propose the same change one succeeds, and nothing is done twice.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spillway_types::{ArmName, reasons};

use crate::guard::{Guard, GuardError, Judgement, Margins};

/// A share of 100 %, in thousandths.
const WHOLE: u16 = 1_000;
/// Maximum number of steps: more would get so small a part of the false alarms each that the guard
/// needed far more requests.
pub const STEPS_MAX: usize = 16;
/// Longest hold of a step: a week.
const HOLD_S_MAX: u32 = 7 * 24 * 3600;

/// Plan of a rollout: from a small share of the traffic to all of it, compared with a baseline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutPlan {
    /// Arm that the candidate is compared with, and that gets the traffic after a rollback.
    pub baseline: ArmName,
    /// Arm that is rolled out.
    pub candidate: ArmName,
    /// Steps, each with more traffic than the one before.
    pub steps: Vec<RolloutStep>,
    /// Requests of the candidate that a step needs before the next one, on all nodes together.
    pub requests_min: u32,
    /// Accepted differences from the baseline.
    pub margins: AgreedMargins,
    /// Share of rollouts that may be rolled back although the candidate is as good as the baseline,
    /// in thousandths.
    pub false_alarms_permille: u16,
}

/// A plan and how far it is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// The plan.
    pub plan: RolloutPlan,
    /// How far it is carried out.
    pub progress: RolloutProgress,
}

/// One step of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutStep {
    /// Share of the split's requests that the candidate gets, in thousandths. The other arms share
    /// the rest in proportion to their weights.
    pub candidate_permille: u16,
    /// Time for which the step lasts at least, in seconds.
    pub hold_s: u32,
}

/// Accepted differences from the baseline, in thousandths; `None` does not compare. See
/// [`Margins`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgreedMargins {
    /// Share of failed requests above the baseline's: thousandths of all requests.
    pub failed: Option<u16>,
    /// Time to the first token above the baseline's, in thousandths of it.
    pub first_token: Option<u16>,
    /// Time per token above the baseline's, in thousandths of it.
    pub token_time: Option<u16>,
    /// Tokens of a reply above or below the baseline's, in thousandths of the smaller one.
    pub tokens: Option<u16>,
}

/// RolloutProgress of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutProgress {
    /// Number of changes so far, so that each is made once.
    pub number: u32,
    /// Number of changes of the candidate's share so far. Figures of requests count from the last
    /// one on, and name it.
    pub epoch: u32,
    /// Position of the present step.
    pub step: u16,
    /// Time at which the step began, in milliseconds since 1970 by the cluster's clock.
    pub since_ms: u64,
    /// State of the rollout.
    pub phase: RolloutPhase,
    /// Reason for the last change, with the figures behind it; empty at the beginning.
    pub why: String,
}

reasons! {
    /// State of a rollout.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum RolloutPhase {
        /// The candidate has the share of the present step and gets the next one when the step has
        /// lasted its time, with enough requests, and the guard has no doubt.
        Running = "running";
        /// An operator stopped the rollout at its present step. The guard still watches.
        Paused = "paused";
        /// The candidate has the share of the last step, and the guard watches no more.
        Completed = "completed";
        /// The candidate gets no traffic: the guard found it worse than the baseline, or an operator
        /// took it back.
        RolledBack = "rolled_back";
    }
}

#[expect(clippy::derivable_impls, reason = "the variants are declared by a macro")]
impl Default for RolloutPhase {
    fn default() -> Self {
        Self::Running
    }
}

reasons! {
    /// Change of a rollout.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum RolloutChange {
        /// The next step begins; after the last one, the rollout is complete.
        Advance = "advance";
        /// The present step stays until an operator resumes the rollout.
        Pause = "pause";
        /// A paused rollout goes on.
        Resume = "resume";
        /// The candidate gets the share of the last step at once, and the rollout is complete.
        Complete = "complete";
        /// The candidate gets no more traffic.
        RollBack = "roll_back";
        /// The rollout begins again with its first step.
        Restart = "restart";
    }
}

/// Error for a plan that can't be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolloutPlanError {
    /// The candidate is its own baseline.
    #[error("the candidate {0} is the baseline, too")]
    OneArm(ArmName),
    /// There are no steps, or too many.
    #[error("a rollout has 1 to {STEPS_MAX} steps, not {0}")]
    Steps(usize),
    /// A step has no more traffic than the one before it, or more than all.
    #[error("step {0} does not give the candidate more than the step before, up to 100 %")]
    Share(usize),
    /// A step lasts too long.
    #[error("step {0} holds for longer than a week")]
    Hold(usize),
    /// The guard can't be.
    #[error(transparent)]
    Guard(#[from] GuardError),
}

/// Error for a change that is not possible in the present phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a rollout that is {} can't {}", .phase.name().replace('_', " "), .change.name().replace('_', " "))]
pub struct RolloutChangeError {
    /// The present phase.
    pub phase: RolloutPhase,
    /// The change that was asked for.
    pub change: RolloutChange,
}

impl RolloutPlan {
    /// Checks the plan.
    ///
    /// # Errors
    ///
    /// Returns the first fault.
    pub fn check(&self) -> Result<(), RolloutPlanError> {
        if self.baseline == self.candidate {
            return Err(RolloutPlanError::OneArm(self.candidate.clone()));
        }
        if !(1..=STEPS_MAX).contains(&self.steps.len()) {
            return Err(RolloutPlanError::Steps(self.steps.len()));
        }
        let mut before = 0;
        for (number, step) in (1..).zip(&self.steps) {
            if step.candidate_permille <= before || step.candidate_permille > WHOLE {
                return Err(RolloutPlanError::Share(number));
            }
            if step.hold_s > HOLD_S_MAX {
                return Err(RolloutPlanError::Hold(number));
            }
            before = step.candidate_permille;
        }
        self.guard()?;
        Ok(())
    }

    /// Returns the guard of each step.
    ///
    /// # Errors
    ///
    /// Returns an error if the share of false alarms is 0 or 100 %.
    pub fn guard(&self) -> Result<Guard, GuardError> {
        let share = |permille: u16| f64::from(permille) / f64::from(WHOLE);
        let margins = Margins {
            failed: self.margins.failed.map(share),
            first_token: self.margins.first_token.map(share),
            token_time: self.margins.token_time.map(share),
            tokens: self.margins.tokens.map(share),
        };
        // Only steps with a baseline are judged.
        let judged = self.steps.iter().filter(|step| step.candidate_permille < WHOLE).count();
        let judged = u32::try_from(judged).unwrap_or(u32::MAX);
        Guard::new(margins, share(self.false_alarms_permille), judged)
    }

    /// Returns the candidate's share of the requests, in thousandths.
    #[must_use]
    pub fn candidate_permille(&self, progress: &RolloutProgress) -> u16 {
        match progress.phase {
            RolloutPhase::RolledBack => 0,
            RolloutPhase::Completed => self.steps.last().map_or(0, |step| step.candidate_permille),
            RolloutPhase::Running | RolloutPhase::Paused => {
                self.step(progress).map_or(0, |step| step.candidate_permille)
            }
        }
    }

    /// Returns the weights of a split's arms, in their order, from those that they have without a
    /// rollout. The other arms share what the candidate leaves in proportion to their own weights;
    /// the baseline takes all of it if they have none.
    #[must_use]
    pub fn weights(&self, progress: &RolloutProgress, arms: &[(&ArmName, u32)]) -> Vec<u32> {
        let candidate = u32::from(self.candidate_permille(progress).min(WHOLE));
        let rest = u32::from(WHOLE) - candidate;
        let others = arms.iter().filter(|(name, _)| **name != self.candidate);
        let sum: u32 = others.map(|(_, weight)| weight).sum();
        let weight = |(name, weight): &(&ArmName, u32)| match sum {
            _ if **name == self.candidate => candidate * sum.max(1),
            0 => rest * u32::from(**name == self.baseline),
            _ => rest * weight,
        };
        arms.iter().map(weight).collect()
    }

    /// Returns true while the guard compares the arms.
    #[must_use]
    pub fn is_watched(&self, progress: &RolloutProgress) -> bool {
        matches!(progress.phase, RolloutPhase::Running | RolloutPhase::Paused)
    }

    /// Returns the change that is due, if any.
    ///
    /// `now_ms` is the cluster's time, `judgement` what the guard says, and `requests` the number of
    /// the candidate's requests, all of the present step. A paused rollout is rolled back as well,
    /// since its candidate still serves.
    #[must_use]
    pub fn next(
        &self,
        progress: &RolloutProgress,
        now_ms: u64,
        judgement: &Judgement,
        requests: u64,
    ) -> Option<RolloutChange> {
        let step = self.step(progress).filter(|_| self.is_watched(progress))?;
        if matches!(judgement, Judgement::Worse(_)) {
            return Some(RolloutChange::RollBack);
        }
        let held = Duration::from_millis(now_ms.saturating_sub(progress.since_ms));
        let is_due = progress.phase == RolloutPhase::Running
            && held >= Duration::from_secs(step.hold_s.into())
            && requests >= self.requests_min.into()
            && *judgement == Judgement::Good;
        is_due.then_some(RolloutChange::Advance)
    }

    /// Returns the progress after a change at `now_ms`.
    ///
    /// # Errors
    ///
    /// Returns an error if the phase does not allow the change.
    pub fn after(
        &self,
        progress: &RolloutProgress,
        change: RolloutChange,
        now_ms: u64,
        why: &str,
    ) -> Result<RolloutProgress, RolloutChangeError> {
        let (phase, step) = self.moved(progress, change)?;
        let mut next = RolloutProgress {
            number: progress.number.wrapping_add(1),
            step,
            phase,
            why: why.to_owned(),
            ..progress.clone()
        };
        let is_restart = change == RolloutChange::Restart;
        if is_restart || self.candidate_permille(&next) != self.candidate_permille(progress) {
            next.epoch = progress.epoch.wrapping_add(1);
            next.since_ms = now_ms;
        }
        Ok(next)
    }

    fn moved(
        &self,
        progress: &RolloutProgress,
        change: RolloutChange,
    ) -> Result<(RolloutPhase, u16), RolloutChangeError> {
        let (phase, step) = (progress.phase, progress.step);
        let last = u16::try_from(self.steps.len().saturating_sub(1)).unwrap_or(u16::MAX);
        Ok(match (change, phase) {
            (RolloutChange::Advance, RolloutPhase::Running | RolloutPhase::Paused)
                if step < last =>
            {
                (phase, step + 1)
            }
            (
                RolloutChange::Advance | RolloutChange::Complete,
                RolloutPhase::Running | RolloutPhase::Paused,
            ) => (RolloutPhase::Completed, last),
            (RolloutChange::Pause, RolloutPhase::Running) => (RolloutPhase::Paused, step),
            (RolloutChange::Resume, RolloutPhase::Paused) => (RolloutPhase::Running, step),
            // A fault may show after the last step, too: an operator can still take it back.
            (
                RolloutChange::RollBack,
                RolloutPhase::Running | RolloutPhase::Paused | RolloutPhase::Completed,
            ) => (RolloutPhase::RolledBack, step),
            (RolloutChange::Restart, _) => (RolloutPhase::Running, 0),
            _ => return Err(RolloutChangeError { phase, change }),
        })
    }

    fn step(&self, progress: &RolloutProgress) -> Option<&RolloutStep> {
        self.steps.get(usize::from(progress.step))
    }
}

#[cfg(test)]
#[path = "plan_test.rs"]
mod plan_test;
