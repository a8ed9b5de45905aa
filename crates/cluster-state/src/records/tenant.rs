//! Tenants.

use serde::{Deserialize, Serialize};

use crate::ResidencyRule;

/// A tenant, which owns keys and the requests made with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Name for people.
    pub title: String,
    /// True if requests with the tenant's keys are refused.
    pub is_suspended: bool,
    /// Places where the tenant's requests may be served.
    pub residency: ResidencyRule,
}
