//! Who pays for and owns requests.

use serde::{Deserialize, Serialize};

use crate::ResidencyRule;
use crate::state::Valued;

/// Who pays for and owns requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// What people call it.
    pub title: String,
    /// None of its keys is let in.
    pub is_suspended: bool,
    /// Where its requests may be served. On the wire it stands beside the rest, for older nodes know
    /// a tenant without it: see [`crate::Item`].
    #[serde(skip)]
    pub residency: ResidencyRule,
}

impl Valued for Tenant {
    fn residency(&self) -> &ResidencyRule {
        &self.residency
    }
}
