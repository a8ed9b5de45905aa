//! Scopes of limits.

use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, TenantName};

/// Scope of a limit: the requests that it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// All requests.
    Global,
    /// Requests of one tenant.
    Tenant(TenantName),
    /// Requests for one model.
    Model(ModelName),
    /// Requests with one key, by the id of the key.
    Key(String),
}

impl Scope {
    /// Returns the name in paths and labels: `global`, `tenant:NAME`, `model:NAME` or `key:ID`.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Global => "global".to_owned(),
            Self::Tenant(name) => format!("tenant:{name}"),
            Self::Model(name) => format!("model:{name}"),
            Self::Key(id) => format!("key:{id}"),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Global => f.write_str("everything"),
            Self::Tenant(name) => write!(f, "tenant {name}"),
            Self::Model(name) => write!(f, "model {name}"),
            Self::Key(id) => write!(f, "key {id}"),
        }
    }
}
