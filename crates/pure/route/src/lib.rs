//! Choice of a replica: pure policies over an immutable view.
//!
//! [`spill()`] decides if a request is served in this region, in another region, later
//! ([`Admission`]), or not at all. In this region [`plan()`] is called once per attempt. Its
//! arguments are all it may know: the inquiry, the prepared [`Group`], the replicas tried before,
//! and the [`Moment`] (time, loads, randomness).
//!
//! [`plan()`] and [`spill()`] keep no state. Types that do, such as [`Admission`],
//! [`ConcurrencyLimit`], [`SloProbes`], [`LatencyModel`] and [`RetryBudget`], belong to their caller. Measured
//! values, [`refill`]ed buckets included, come in through [`Loads`].
//!
//! A new policy is one file in `policy/` and its lines in `policy.rs`; CONTRIBUTING.md has the steps.

mod admission;
mod admitted;
mod alias_table;
mod attempt;
mod bucket;
mod candidate;
mod cohorts;
mod concurrency_limit;
mod explain;
mod fair_share;
mod field;
mod foresee;
mod group;
mod latency;
mod mean;
mod moment;
mod overflow_reason;
mod plan;
mod policy;
mod predict;
mod queue;
mod refusals;
mod rendezvous;
mod reported;
mod retry_after;
mod retry_budget;
mod shed_reason;
mod slo_probes;
mod smooth_schedule;
mod spill;
mod split;
mod tenant_share;
mod terms;
mod tuning;
mod work;

pub use admission::{
    Admission, BUSY_AFTER_SHED, Degraded, HoldTime, Outage, Promise, Promises, Refusal,
    ServiceRate, Turnover, expected_rate, guessed_rate,
};
pub use admitted::{Admitted, admitted};
pub use attempt::{Attempt, Reason};
pub use bucket::{BucketConfig, refill};
pub use candidate::Candidate;
pub use concurrency_limit::{
    ConcurrencyLimit, ConcurrencyTuning, LoadSample, QueueSample, Sharer, own_part,
};
pub use explain::{Obstacle, Weighed, plan_explained};
pub use foresee::{TimeLeft, is_known, late_ms};
pub use group::Group;
pub use latency::{
    Beside, LatencyModel, LatencyModelV1, LatencyModelV2, LearnedReply, ObservedLatency,
    UnsoundModel,
};
pub use moment::{Loads, Moment, Snapshot};
pub use overflow_reason::OverflowReason;
pub use plan::{Plan, PlanError, plan};
pub use policy::{Feedback, Policy, UnknownPolicyError};
pub use predict::{Cost, Fit};
pub use queue::{
    Asker, CLASSES, Entered, Full, WaitEntry, WaitLimit, WaitLimits, WaitQueue, WaitTicket,
};
pub use refusals::{RefusalScope, Refusals};
pub use retry_after::{RetryAfter, retry_after_s};
pub use retry_budget::{RetryBudget, RetryBudgetConfig};
pub use shed_reason::ShedReason;
pub use slo_probes::SloProbes;
pub use spill::{
    Access, ByRegion, CountHistory, Guest, GuestLack, HOPS_MAX, Judged, Objection, OwnRegion,
    RegionCandidate, RegionReport, SpillCost, SpillPlan, SpillReason, SpillTerms, SpillVerdict,
    TrafficHistory, Waiting, admit_guest, ramp_permille, shed_state, spill,
};
pub use split::{ArmChoice, ArmKey, ArmReason, ArmWeight, Split, SplitError};
pub use tenant_share::{KeptShare, TenantShare, TenantShares, TenantUse};
pub use tuning::{
    Goal, LeastLoadedWeights, PredictedTuning, PrefixAwareTuning, PrequalTuning, Push, Tuning,
};
pub use work::Work;

#[cfg(test)]
mod closed_loop_test;
#[cfg(test)]
mod hot_prefix_test;
#[cfg(test)]
mod test_servers;
#[cfg(test)]
mod test_world;
