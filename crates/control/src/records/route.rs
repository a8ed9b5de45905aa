//! A set of requests and how they are served.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::ModelName;

use crate::ResidencyRule;
use crate::state::Valued;

/// A set of requests and how they are served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Serves every path below this one; without it, the built-in endpoints.
    pub path_prefix: Option<String>,
    /// Serves only these models; empty serves all.
    pub models: BTreeSet<ModelName>,
    /// Uses only replicas of this pool; empty uses all.
    pub pool: String,
    /// How a replica is chosen, by its name in the config file. The admin API checks that there
    /// is such a policy; a node that does not know it uses its default.
    pub policy: String,
    /// Where its requests may be served. On the wire it stands beside the rest, for older nodes know
    /// a route without it: see [`crate::Item`].
    #[serde(skip)]
    pub residency: ResidencyRule,
}

impl Valued for Route {
    fn residency(&self) -> &ResidencyRule {
        &self.residency
    }
}
