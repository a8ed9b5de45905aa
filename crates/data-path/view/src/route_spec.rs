//! Settings of a route.

use spillway_protocol::{EngineFields, HashBy, Protocol};
use spillway_route::{Policy, Tuning};
use spillway_types::{ModelName, Residency, RouteName};
use spillway_upstream::Timeouts;

use crate::continuations::ContinuationSpec;
use crate::hedging::HedgeSpec;
use crate::queue_spec::QueueSpec;
use crate::session::SessionSpec;
use crate::usage_reports::InjectUsage;

/// Configuration of a route: a set of requests and their service.
#[derive(Clone, Debug)]
pub struct RouteSpec {
    /// Unique name, as in metrics.
    pub name: RouteName,
    /// Path prefix whose requests the route serves; `None` for the built-in endpoints.
    pub path_prefix: Option<String>,
    /// Replacement of the prefix in requests to the replica.
    pub replace_prefix: Option<String>,
    /// Format of requests and errors below `path_prefix`.
    pub protocol: Protocol,
    /// Models that the route serves; empty for all.
    pub models: Vec<ModelName>,
    /// Model of requests that name none.
    pub default_model: Option<ModelName>,
    /// Pool whose replicas the route uses; `None` for all replicas.
    pub pool: Option<String>,
    /// Policy that chooses a replica.
    pub policy: Policy,
    /// Settings of policies that have some.
    pub tuning: Tuning,
    /// Affinity key of requests; `Some` exactly if the policy hashes.
    pub hash_by: Option<HashBy>,
    /// Session affinity; `None` leaves it to the policy.
    pub session: Option<SessionSpec>,
    /// Replicas that are asked to report usage in streams; the report is removed again if the client
    /// did not ask for it.
    pub inject_usage: InjectUsage,
    /// True if the client's `Authorization` is passed on to the replica.
    pub forward_authorization: bool,
    /// Request fields by which clients may steer the model server.
    pub engine_fields: EngineFields,
    /// Limits of continuing a completion stream at another replica if its own fails; `None` sends
    /// an error instead.
    pub continuation: Option<ContinuationSpec>,
    /// Queue of the route's requests, with its limits.
    pub queue: QueueSpec,
    /// Hedging at a second replica; `None` disables it.
    pub hedge: Option<HedgeSpec>,
    /// Time-outs for replicas.
    pub timeouts: Timeouts,
    /// Residency rules of the route's requests.
    pub residency: Residency,
    /// True if requests may go to overflow replicas.
    pub overflow: bool,
}
