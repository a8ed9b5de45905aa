//! Health checks of replicas: requests, intervals and results.

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

use crate::http::RequestError;

/// Share of an interval by which each pause between checks varies, so that many replicas, and many
/// nodes that check one replica, are not checked at the same moment.
pub(crate) const JITTER: f64 = 0.2;

/// Kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// Check that the replica is up.
    Active,
    /// Check that the replica works.
    Deep,
}

impl CheckKind {
    /// Returns the kind's name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deep => "deep",
        }
    }
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckResult {
    /// The replica is well.
    Good,
    /// The replica is up and says that it is not ready: it loads its model, or shuts down.
    NotReady,
    /// The replica refused the check for now (429, 503): it is busy, which is no fault.
    Busy,
    /// The replica works, but its GPUs have less memory left than they should.
    MemoryFull,
    /// The replica is down, broken, or gives wrong answers.
    Failed(RequestError),
}

impl CheckResult {
    /// Returns the result's name in metrics; a failure has its own name.
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

impl From<RequestError> for CheckResult {
    fn from(failure: RequestError) -> Self {
        Self::Failed(failure)
    }
}

/// Returns a pause of `interval`, with jitter of [`JITTER`].
pub(crate) fn pause(interval: Duration, rng: &mut fastrand::Rng) -> Duration {
    crate::pause::jittered(interval, JITTER, rng)
}
