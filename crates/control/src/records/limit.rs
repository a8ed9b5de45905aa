//! How much somebody may use.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_quota::Scope;
use spillway_types::{ModelName, RegionName};

use crate::{KeyId, TenantName};

/// How much somebody may use, in all regions together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Requests a second.
    pub requests_per_s: Option<u32>,
    /// Tokens a minute.
    pub tokens_per_min: Option<u64>,
    /// Requests at a time.
    pub concurrency: Option<u32>,
    /// The share that a region has for itself whatever happens, in thousandths. They make 1,000 at
    /// most; what is left is shared.
    pub floors_permille: BTreeMap<RegionName, u16>,
}

/// Whose limit it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// Everybody's together.
    Global,
    /// One tenant's.
    Tenant(TenantName),
    /// One model's.
    Model(ModelName),
    /// One key's.
    Key(KeyId),
}

impl From<&LimitScope> for Scope {
    fn from(scope: &LimitScope) -> Self {
        match scope {
            LimitScope::Global => Self::Global,
            LimitScope::Tenant(name) => Self::Tenant(name.clone()),
            LimitScope::Model(name) => Self::Model(name.clone()),
            LimitScope::Key(id) => Self::Key(id.as_str().to_owned()),
        }
    }
}

impl From<&Scope> for LimitScope {
    fn from(scope: &Scope) -> Self {
        match scope {
            Scope::Global => Self::Global,
            Scope::Tenant(name) => Self::Tenant(name.clone()),
            Scope::Model(name) => Self::Model(name.clone()),
            Scope::Key(id) => Self::Key(id.as_str().into()),
        }
    }
}

impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Scope::from(self).fmt(f)
    }
}
