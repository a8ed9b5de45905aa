//! What is made with a secret: keys and join tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control::{JoinToken, TokenOrigin};

use super::KeyRecord;
use crate::patterns::NAME;

/// A key to make.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewKey {
    /// What it is called; drawn if it is left out.
    #[schemars(regex(pattern = NAME))]
    pub(crate) key: Option<String>,
    /// What it may.
    pub(crate) record: KeyRecord,
}

/// What lets a node join.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JoinTokenRecord {
    /// The only region that it is good for, if it is bound to one.
    pub(crate) region: Option<String>,
    /// When it ends, milliseconds since 1970.
    pub(crate) expires_ms: u64,
    /// How many nodes may still join by it.
    pub(crate) uses_left: u32,
    /// Whether operators' orders may come from nodes that join by it.
    pub(crate) operators: bool,
}

/// Where a join token comes from.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TokenOriginInfo {
    /// Index of the entry that made it.
    pub(crate) made: u64,
    /// Whether operators' orders may come from nodes that join by it.
    pub(crate) operators: bool,
}

impl From<&TokenOrigin> for TokenOriginInfo {
    fn from(origin: &TokenOrigin) -> Self {
        Self { made: origin.made, operators: origin.is_operator }
    }
}

/// A join token to make.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewJoinToken {
    /// The only region that it is good for, if it is bound to one.
    #[schemars(regex(pattern = NAME))]
    pub(crate) region: Option<String>,
    /// For how long it is good, in seconds; at most 30 days.
    pub(crate) valid_s: u64,
    /// How many nodes may join by it, at most 512.
    pub(crate) uses: u32,
    /// Whether operators' orders may come from nodes that join by it.
    pub(crate) operators: bool,
}

/// A secret that was made. It is shown this once.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Secret {
    /// Names it in paths.
    pub(crate) key: String,
    /// What the holder presents. The cluster keeps its hash alone.
    pub(crate) secret: String,
    /// Index of the entry that wrote it.
    pub(crate) index: u64,
    /// Its version, for `If-Match`.
    pub(crate) version: u64,
}

impl Default for NewJoinToken {
    /// One node within an hour: what a person needs who starts it now.
    fn default() -> Self {
        Self { region: None, valid_s: 3_600, uses: 1, operators: false }
    }
}

impl From<&JoinToken> for JoinTokenRecord {
    fn from(token: &JoinToken) -> Self {
        Self {
            region: token.region.as_ref().map(ToString::to_string),
            expires_ms: token.expires_ms,
            uses_left: token.uses_left,
            operators: false,
        }
    }
}
