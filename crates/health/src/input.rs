//! What a fleet is told, besides signs and load reports.

use std::time::Duration;

use spillway_route::BucketConfig;
use spillway_types::{ModelName, PoolName, ReplicaName};

use crate::{HealthConfig, StandbyConfig};

/// One replica as the config or discovery has it.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberSpec {
    /// Its name, unique in the fleet.
    pub name: ReplicaName,
    /// The pool whose members share its load and may take its place.
    pub pool: PoolName,
    /// Its capacity against the others of its pool, at least 1.
    pub weight: u32,
    /// The models it serves; if empty, any. Breakers are kept for these.
    pub models: Vec<ModelName>,
    /// Set if it is kept in reserve until it is needed.
    pub standby: Option<StandbyConfig>,
    /// Whether it is to be warmed up with prompts before its first request.
    pub needs_warm_up: bool,
    /// The checks it has.
    pub checks: CheckPeriods,
    /// How its health is judged.
    pub health: HealthConfig,
    /// How long it takes from its first request to its full share; zero for at once.
    pub slow_start: Duration,
    /// Its bucket, for policies that go by buckets.
    pub bucket: BucketConfig,
}

/// Time between two checks of each kind; `None` for a check that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckPeriods {
    /// Of its health endpoint.
    pub active: Option<Duration>,
    /// Of known answers.
    pub deep: Option<Duration>,
    /// Of its metrics.
    pub scrape: Option<Duration>,
}

/// A kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Its health endpoint is asked.
    Active,
    /// It is given a prompt whose answer is known.
    Deep,
    /// Its metrics are read.
    Scrape,
}

/// Why a check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum CheckFault {
    /// No connection, or it broke.
    #[error("unreachable")]
    Unreachable,
    /// No answer in time.
    #[error("timeout")]
    Timeout,
    /// It said that it is not well.
    #[error("unhealthy")]
    Unhealthy,
    /// It said that it is still loading.
    #[error("not ready")]
    NotReady,
    /// What came back could not be understood.
    #[error("malformed")]
    Malformed,
    /// The answer was not the known one.
    #[error("wrong answer")]
    WrongAnswer,
    /// Too little memory is left.
    #[error("memory full")]
    MemoryFull,
}

/// What the data path knows of a replica at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requests sent there by this node and not yet ended.
    pub in_flight: u32,
    /// The same of the region's other nodes, by their last word.
    pub elsewhere: u32,
    /// Requests ever sent there by this node.
    pub started: u64,
    /// How long no byte has come back from it while requests were in flight; `None` if none are.
    pub silent_for: Option<Duration>,
}

impl Live {
    /// Requests in flight there, as far as known.
    #[must_use]
    pub fn known(&self) -> u32 {
        self.in_flight.saturating_add(self.elsewhere)
    }
}

/// What an operator or the platform wants of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It gets nothing more, finishes what it has, and [`crate::Action::Drained`] says when that
    /// is done.
    Drain {
        /// After this it counts as drained whatever it still has.
        limit: Duration,
        /// Who wants it.
        why: DrainReason,
    },
    /// It comes back, as if it were new.
    Resume,
}

/// Who wants a replica drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DrainReason {
    /// A person or a deployment.
    Operator,
    /// The platform takes the machine away.
    Preemption,
}

impl DrainReason {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Operator => "drain_ordered",
            Self::Preemption => "preemption_notice",
        }
    }
}

impl CheckFault {
    /// Name as it stands in metrics and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Unhealthy => "unhealthy",
            Self::NotReady => "not_ready",
            Self::Malformed => "malformed",
            Self::WrongAnswer => "wrong_answer",
            Self::MemoryFull => "memory_full",
        }
    }
}

impl Check {
    /// Name as it stands in metrics and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deep => "deep",
            Self::Scrape => "scrape",
        }
    }
}
