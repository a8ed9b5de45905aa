//! Chooses a replica: pure policies over an immutable view.
//!
//! [`plan()`] is called once per attempt with everything it may know as arguments: the inquiry, the
//! prepared [`Group`], the replicas tried before, and the [`Moment`] (time, loads, randomness).
//! Nothing here keeps state between calls but the [`RetryBudget`], which is arithmetic on atomics.
//!
//! A new policy is one file in `policy/` and one line in `policy.rs`.

mod admitted;
mod alias_table;
mod candidate;
mod field;
mod group;
mod moment;
mod plan;
mod policy;
mod rendezvous;
mod retry_budget;
mod smooth_schedule;
mod tuning;

pub use admitted::{Admitted, admitted};
pub use candidate::Candidate;
pub use group::Group;
pub use moment::{Loads, Moment};
pub use plan::{Attempt, Plan, Reason, Refusal, plan};
pub use policy::{Policy, UnknownPolicy};
pub use tuning::{LeastLoadedWeights, Tuning};
pub use retry_budget::{RetryBudget, RetryBudgetConfig};

#[cfg(test)]
mod test_world;
