//! Inputs of a fleet besides signs and load reports.

use std::time::Duration;

use spillway_route::BucketConfig;
use spillway_types::{ModelName, PoolName, ReplicaName, TlsFault};

use crate::change_reason::ChangeReason;
use crate::{HealthConfig, StandbyConfig};

/// Description of one replica from the config or from discovery.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberSpec {
    /// Name, unique in the fleet.
    pub name: ReplicaName,
    /// Pool whose members share the replica's load and may take its place.
    pub pool: PoolName,
    /// Capacity relative to the other members of the pool, at least 1.
    pub weight: u32,
    /// Models that the replica serves; empty for any. Circuit breakers are kept for these.
    pub models: Vec<ModelName>,
    /// Rules for a replica that is kept in reserve; `None` for a replica that always takes part.
    pub standby: Option<StandbyConfig>,
    /// True if the replica is to be warmed up with prompts before its first request.
    pub needs_warm_up: bool,
    /// Checks of the replica.
    pub checks: CheckPeriods,
    /// Rules for its health.
    pub health: HealthConfig,
    /// Slow start: time from its first request to its full share; zero for none.
    pub slow_start: Duration,
    /// Token bucket of the replica, for policies that use buckets.
    pub bucket: BucketConfig,
}

/// Time between two checks of each kind; `None` for a kind that the replica does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckPeriods {
    /// Period of the checks of the health endpoint.
    pub active: Option<Duration>,
    /// Period of the deep checks, which ask for a known answer.
    pub deep: Option<Duration>,
    /// Period of the scrapes of the metrics.
    pub scrape: Option<Duration>,
}

/// Kind of check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Request to the health endpoint.
    Active,
    /// Prompt whose answer is known.
    Deep,
    /// Scrape of the metrics.
    Scrape,
}

/// Reason for which a check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum CheckError {
    /// The replica's name has no address.
    #[error("its name does not resolve")]
    NameUnresolved,
    /// No name server answered for the replica's name.
    #[error("no name server answers for its name")]
    NameServer,
    /// Nothing listens at the replica's port.
    #[error("connection refused")]
    Refused,
    /// No way leads to the replica's address.
    #[error("its address can't be reached")]
    Unreachable,
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Tls(TlsFault),
    /// The connection broke before the answer, or the answer was not HTTP.
    #[error("the connection broke")]
    Broken,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The check got this HTTP status.
    #[error("its check got status {0}")]
    Status(u16),
    /// The replica said that it is not well.
    #[error("reports that it is not well")]
    Unhealthy,
    /// The replica said that it is still loading.
    #[error("loads its model")]
    NotReady,
    /// The reply could not be understood.
    #[error("its answer can't be understood")]
    Malformed,
    /// The answer was not the known one.
    #[error("its answer was not the expected one")]
    WrongAnswer,
    /// Too little memory is left.
    #[error("its memory is full")]
    MemoryFull,
}

/// The data path's view of a replica at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requests that this node sent there and that have not ended.
    pub in_flight: u32,
    /// Requests of the region's other nodes in flight there, by their last report.
    pub elsewhere: u32,
    /// Requests that this node ever sent there.
    pub started: u64,
    /// Time without a byte from the replica while requests were in flight; `None` if none are.
    pub silent_for: Option<Duration>,
}

impl Live {
    /// Returns the number of requests in flight there from all nodes of the region, as far as
    /// known.
    #[must_use]
    pub fn known(&self) -> u32 {
        self.in_flight.saturating_add(self.elsewhere)
    }
}

/// Order of an operator or of the platform about a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The replica gets no new requests and finishes those it has; [`crate::Action::Drained`]
    /// reports when that is done.
    Drain {
        /// Time after which the replica counts as drained even with requests left.
        limit: Duration,
        /// Origin of the order.
        why: DrainReason,
    },
    /// The replica returns as if it were new.
    Resume,
}

/// Origin of an order to drain a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DrainReason {
    /// A person or a deployment.
    Operator,
    /// The platform takes the machine away.
    Preemption,
}

impl DrainReason {
    /// Returns the reason in the form that [`crate::Action::Changed`] carries.
    pub(crate) fn why(self) -> ChangeReason {
        match self {
            Self::Operator => ChangeReason::DrainOrdered,
            Self::Preemption => ChangeReason::PreemptionNotice,
        }
    }
}

impl CheckError {
    /// Returns true if the fault proves that the replica answered, whatever it said.
    pub(crate) fn is_answer(self) -> bool {
        matches!(
            self,
            Self::Status(_)
                | Self::Unhealthy
                | Self::NotReady
                | Self::Malformed
                | Self::WrongAnswer
                | Self::MemoryFull
        )
    }

    /// Returns the name of the fault in metrics and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NameUnresolved => "name_unresolved",
            Self::NameServer => "name_server",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Tls(_) => "tls",
            Self::Broken => "broken",
            Self::Timeout => "timeout",
            Self::Status(_) => "status",
            Self::Unhealthy => "unhealthy",
            Self::NotReady => "not_ready",
            Self::Malformed => "malformed",
            Self::WrongAnswer => "wrong_answer",
            Self::MemoryFull => "memory_full",
        }
    }
}

impl Check {
    /// Returns the name of the check in metrics and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deep => "deep",
            Self::Scrape => "scrape",
        }
    }
}
