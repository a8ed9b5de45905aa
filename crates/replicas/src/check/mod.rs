//! Checks: what is asked, how often, and what the answer shows.

mod active;
mod deep;
mod expectation;
mod grpc;
mod notice;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use active::{ActiveCheck, Probe};
pub(crate) use deep::one_token;
pub use deep::{DeepCheck, DeepRequest};
pub use expectation::Expectation;
pub use notice::NoticeCheck;
pub(crate) use notice::notice;

#[cfg(any(test, fuzzing))]
pub(crate) use grpc::decode as status_in;

use crate::http::Failure;

/// Share of an interval by which each pause between checks varies, so that many replicas, and many
/// nodes that check the same one, do not ask all at once.
pub(crate) const JITTER: f64 = 0.2;

/// The kinds of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// Whether it answers at all.
    Active,
    /// Whether it works.
    Deep,
}

impl CheckKind {
    /// Name as it stands in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deep => "deep",
        }
    }
}

/// What a check showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckResult {
    /// All is well.
    Good,
    /// It is up, and says that it is not ready: it loads its model, or shuts down.
    NotReady,
    /// It refused the check for now (429, 503): busy, which is no fault.
    Busy,
    /// It works, but its GPUs have less memory left than they should.
    MemoryFull,
    /// It is down, broken, or wrong.
    Failed(Failure),
}

impl CheckResult {
    /// Name as it stands in metrics; failures by their own names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::NotReady => "not_ready",
            Self::Busy => "busy",
            Self::MemoryFull => "memory_full",
            Self::Failed(failure) => failure.as_str(),
        }
    }
}

impl From<Failure> for CheckResult {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A pause of `interval`, give or take [`JITTER`].
pub(crate) fn pause(interval: Duration, rng: &mut fastrand::Rng) -> Duration {
    crate::pause::jittered(interval, JITTER, rng)
}
