//! What lets a client or an operator in.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, RegionName};

use crate::{Hidden, TenantName};

/// What lets a client or an operator in. The secret itself is nowhere: nodes hash what they are
/// shown with the salt, and compare. Limits of a key are records of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// What it is good for.
    pub role: KeyRole,
    /// Hashed before the secret, so that equal secrets differ.
    pub salt: [u8; 16],
    /// The hash of both.
    pub hash: Hidden,
    /// Whose requests they are; every client key has a tenant.
    pub tenant: Option<TenantName>,
    /// Models that it may ask for; empty for all.
    pub models: BTreeSet<ModelName>,
    /// Regions that may serve it; empty for all.
    pub regions: BTreeSet<RegionName>,
    /// Class of its requests: 0 is served first.
    pub priority: u8,
    /// When it ends, milliseconds since 1970. Each node judges by its own clock.
    pub expires_ms: Option<u64>,
    /// It lets nobody in any more, for good.
    pub is_revoked: bool,
}

/// What a key is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyRole {
    /// Requests to models.
    #[default]
    Client,
    /// Reading from the admin API.
    Read,
    /// Draining, weighting and the like.
    Operate,
    /// Everything.
    Admin,
}
