//! Limits on requests, tokens and concurrency.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use spillway_rate_limit::{RequestWindow, Scope};
use spillway_types::{ModelName, RegionName};

use crate::{KeyId, TenantName};

/// Most requests that a limit by the second or minute may have.
pub(crate) const REQUESTS_MAX: u32 = (1 << 31) - 2;
/// Value of [`Limit::requests_per_s`] that means no limit.
pub(crate) const REQUESTS_ANY: u32 = u32::MAX;

/// A limit that holds for all regions together. A field of None limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Requests per second; None if [`Self::requests_per_min`] is set.
    pub requests_per_s: Option<u32>,
    /// Requests per minute.
    pub requests_per_min: Option<u32>,
    /// Tokens per minute.
    pub tokens_per_min: Option<u64>,
    /// Requests in flight.
    pub concurrency: Option<u32>,
    /// Share that each region keeps for itself, in thousandths. All of them together are at most
    /// 1,000; the regions share the rest.
    pub floors_permille: BTreeMap<RegionName, u16>,
}

impl Limit {
    /// Returns the number of requests and its window; None if the rate of requests is not limited.
    #[must_use]
    pub fn requests(&self) -> Option<(u32, RequestWindow)> {
        match (self.requests_per_min, self.requests_per_s) {
            // No record has both: the rules refuse it.
            (Some(count), _) => Some((count, RequestWindow::Minute)),
            (None, Some(count)) => Some((count, RequestWindow::Second)),
            (None, None) => None,
        }
    }
}

/// Scope of a limit: the requests that it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// All requests.
    Global,
    /// Requests of one tenant.
    Tenant(TenantName),
    /// Requests for one model.
    Model(ModelName),
    /// Requests with one key.
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
