//! What a node does with the state that all nodes agree on.
//!
//! [`Agreement`] brings `spillway-control`, which says what an entry does, and `spillway-consensus`,
//! which brings the same entries to all nodes, together: it forms the cluster, proposes, keeps who
//! votes as the rule wants it, remembers what changed for those who watch, and publishes the applied
//! state for the data path, which never waits for any of this.

mod agreement;
mod beginning;
mod changes;
mod clock;
mod config;
mod formation;
mod hand_over;
mod hints;
mod join;
mod machine;
mod membership;
mod publish;
mod settling;

pub use agreement::{Agreement, NoSuchNode};
pub use changes::{Changed, TooOld};
pub use config::AgreementConfig;
pub use hints::HintCounts;
#[cfg(any(test, fuzzing))]
pub use join::fuzz;

#[cfg(test)]
mod agreement_test;
#[cfg(test)]
mod hints_test;
