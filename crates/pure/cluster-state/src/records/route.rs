//! Routes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

use crate::ResidencyRule;

/// A set of requests, with the replicas and the policy that serve it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RouteLayout", into = "RouteLayout")]
pub struct Route {
    /// Path prefix of the route's requests; None for the built-in endpoints.
    pub path_prefix: Option<String>,
    /// Models that the route serves; empty for all.
    pub models: BTreeSet<ModelName>,
    /// Pool of the replicas that serve the route; empty for all.
    pub pool: String,
    /// Name of the policy that chooses replicas, as in the config file. The admin API checks that
    /// there is such a policy; a node that does not know the name uses its default.
    pub policy: String,
    /// Places where the route's requests may be served.
    pub residency: ResidencyRule,
    /// The other settings that a `[[route]]` of a config file can have: a JSON object with the names
    /// of the file, sorted, without spaces; empty for none. Nodes read it as they read their file,
    /// and the admin API has it checked so. From wire version 2 on.
    pub settings: String,
}

impl Route {
    /// Returns the first wire version that has such a record.
    pub(crate) fn since(&self) -> u16 {
        if self.settings.is_empty() { 1 } else { 2 }
    }
}

/// Fields of a route behind its path prefix, on the wire.
#[derive(Serialize, Deserialize)]
struct RestLayout {
    models: BTreeSet<ModelName>,
    pool: String,
    policy: String,
    residency: ResidencyRule,
}

/// Layout of a route on the wire. One without settings has the bytes of wire version 1, where it
/// began with an option, whose tags are these numbers of variants. Nodes of both versions have equal
/// digests.
#[derive(Serialize, Deserialize)]
enum RouteLayout {
    BuiltIn(RestLayout),
    Prefixed(String, RestLayout),
    WithSettings { path_prefix: Option<String>, rest: RestLayout, settings: String },
}

impl From<RouteLayout> for Route {
    fn from(layout: RouteLayout) -> Self {
        let (path_prefix, rest, settings) = match layout {
            RouteLayout::BuiltIn(rest) => (None, rest, String::new()),
            RouteLayout::Prefixed(prefix, rest) => (Some(prefix), rest, String::new()),
            RouteLayout::WithSettings { path_prefix, rest, settings } => {
                (path_prefix, rest, settings)
            }
        };
        let RestLayout { models, pool, policy, residency } = rest;
        Self { path_prefix, models, pool, policy, residency, settings }
    }
}

impl From<Route> for RouteLayout {
    fn from(route: Route) -> Self {
        let Route { path_prefix, models, pool, policy, residency, settings } = route;
        let rest = RestLayout { models, pool, policy, residency };
        match (path_prefix, settings.is_empty()) {
            (None, true) => Self::BuiltIn(rest),
            (Some(prefix), true) => Self::Prefixed(prefix, rest),
            (path_prefix, false) => Self::WithSettings { path_prefix, rest, settings },
        }
    }
}
