//! What lets a node join.

use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use crate::Hidden;

/// What lets a node join, besides a certificate of the cluster's CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// The public key by which signatures of joining nodes are checked, see
    /// [`crate::JoinText::public_key`]. Of a token that was made up to wire version 4 the hash that is
    /// presented for it, see [`crate::TokenProof`]: no signature fits to that.
    pub key: Hidden,
    /// The only region that it is good for, if it is bound to one.
    pub region: Option<RegionName>,
    /// When it ends, milliseconds since 1970, by the cluster's clock.
    pub expires_ms: u64,
    /// How many nodes may still join by it.
    pub uses_left: u32,
}
