//! Join tokens, by which new nodes join.

use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use crate::Hidden;

/// A token that lets new nodes join. They need a certificate of the cluster's CA besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Public key that checks the signatures of joining nodes, see [`crate::JoinText::public_key`].
    pub key: Hidden,
    /// The only region whose nodes may use the token; None for every region.
    pub region: Option<RegionName>,
    /// End of the token's life, milliseconds since 1970, by the cluster's clock.
    pub expires_ms: u64,
    /// Number of nodes that may still join by the token.
    pub uses_left: u32,
}
