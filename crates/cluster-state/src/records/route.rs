//! Routes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

use crate::ResidencyRule;

/// A set of requests, with the replicas and the policy that serve it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
}
