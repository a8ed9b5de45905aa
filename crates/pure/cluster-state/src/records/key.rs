//! API keys of clients and operators.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, RegionName};

use crate::{Hidden, TenantName};

/// An API key. The secret itself is stored nowhere: a node hashes the salt with the
/// secret that a client shows, and compares. Limits of a key are records of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Rights of the key.
    pub role: KeyRole,
    /// Random bytes that are hashed before the secret, so that equal secrets have different hashes.
    pub salt: [u8; 16],
    /// Hash of salt and secret, see [`crate::key_hash`].
    pub hash: Hidden,
    /// Tenant that the key's requests belong to; every client key has one.
    pub tenant: Option<TenantName>,
    /// Models that the key may ask for; empty for all.
    pub models: BTreeSet<ModelName>,
    /// Regions that may serve the key's requests; empty for all.
    pub regions: BTreeSet<RegionName>,
    /// Priority class of the key's requests: 0 is served first.
    pub priority: u8,
    /// End of the key's life, milliseconds since 1970; None for no end. Each node judges by its own
    /// clock.
    pub expires_ms: Option<u64>,
    /// True if the key is revoked for good.
    pub is_revoked: bool,
}

/// Rights of a key.
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
    /// All of the admin API.
    Admin,
}
