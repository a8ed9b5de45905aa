//! Guarded rollouts: how an arm of a split compares with its baseline, and what follows.
//!
//! Every node counts what the requests of an arm came to ([`ArmFigures`]). The figures of all nodes
//! are added, and a [`Guard`] compares the candidate's with the baseline's. It may look at any time
//! and as often as it likes: the chance that it ever finds fault with a candidate that is as good as
//! the baseline stays below the configured one. A [`RolloutPlan`] turns the judgement into a change of
//! the candidate's share.

mod evidence;
mod figures;
mod guard;
mod log_histogram;
mod plan;

pub use figures::{ArmFigures, RequestFacts};
pub use guard::{Finding, Guard, GuardError, Judgement, Margins, Measure};
pub use log_histogram::LogHistogram;
pub use plan::{
    AgreedMargins, Rollout, RolloutChange, RolloutChangeError, RolloutPhase, RolloutPlan,
    RolloutPlanError, RolloutProgress, RolloutStep, STEPS_MAX,
};
