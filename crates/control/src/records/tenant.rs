//! Who pays for and owns requests.

use serde::{Deserialize, Serialize};

/// Who pays for and owns requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// What people call it.
    pub title: String,
    /// None of its keys is let in.
    pub is_suspended: bool,
}
