//! Causes of failed and refused requests, in the words of an operator.

use std::fmt;
use std::sync::Arc;

use spillway_types::{Outcome, RegionName, ReplicaName, TenantName};

/// Cause for which requests failed or were refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestCause {
    /// A replica, a region or this node answered with this status.
    Status(u16, FailureSite),
    /// The reply broke off, stopped for too long, or passed its deadline, as
    /// [`spillway_types::End::name`].
    Reply(&'static str, FailureSite),
    /// The node refused, for this reason of [`spillway_route::ShedReason`].
    Refused(&'static str),
    /// One of many further causes.
    Other,
}

/// Place at which a request failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureSite {
    /// A replica of this region.
    Replica(ReplicaName),
    /// Another region.
    Region(RegionName),
    /// This node, before any replica was asked.
    Node,
}

/// A client, by the key and tenant of its requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientName {
    /// Id of the key; `None` if the client has none.
    pub key: Option<Arc<str>>,
    /// Tenant; `None` if the client has none.
    pub tenant: Option<TenantName>,
}

/// A client whose requests a limit of its own refuses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitedClient {
    /// The client.
    pub client: ClientName,
    /// Reason of the refusals, of [`spillway_route::ShedReason`].
    pub reason: &'static str,
}

impl RequestCause {
    /// Returns the cause of a request that failed in this manner, of [`Outcome::failure`].
    pub(super) fn of_failure(outcome: &Outcome, failure: &'static str) -> Self {
        let place = match (&outcome.region, &outcome.replica) {
            (Some(region), _) => FailureSite::Region(region.clone()),
            (None, Some(replica)) => FailureSite::Replica(replica.clone()),
            (None, None) => FailureSite::Node,
        };
        match failure {
            "status" => Self::Status(outcome.status, place),
            failure => Self::Reply(failure, place),
        }
    }
}

impl ClientName {
    pub(super) fn of(outcome: &Outcome) -> Self {
        Self { key: outcome.key.clone(), tenant: outcome.tenant.clone() }
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.key, &self.tenant) {
            (Some(key), _) => write!(f, "key {key}"),
            (None, Some(tenant)) => write!(f, "tenant {}", tenant.as_str()),
            (None, None) => f.write_str("clients without a key"),
        }
    }
}

impl fmt::Display for RequestCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status, place) => write!(f, "{status} from {place}"),
            Self::Reply("cut", place) => write!(f, "replies of {place} break off"),
            Self::Reply("stalled", place) => write!(f, "replies of {place} stop"),
            Self::Reply(_, place) => write!(f, "replies of {place} pass their deadline"),
            Self::Refused(reason) => f.write_str(reason),
            Self::Other => f.write_str("other causes"),
        }
    }
}

impl fmt::Display for FailureSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(name) => f.write_str(name.as_str()),
            Self::Region(name) => write!(f, "region {}", name.as_str()),
            Self::Node => f.write_str("this node"),
        }
    }
}
