//! Forms of records with a secret: keys and join tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{JoinToken, TokenOrigin};

use super::KeyRecord;
use crate::patterns::{HASH, NAME, SALT};

/// A key to make.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NewKey {
    /// Id of the key; drawn at random if it is left out.
    #[schemars(regex(pattern = NAME))]
    pub(crate) key: Option<String>,
    /// Rights and terms of the key.
    pub(crate) record: KeyRecord,
    /// Salt and hash of a secret that its holder has already, as in `[[key]]` of a config file. A new
    /// secret is drawn if they are left out.
    pub(crate) secret: Option<KnownSecret>,
}

/// Salt and hash of a key's secret.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KnownSecret {
    /// Salt: 16 bytes as hexadecimal digits.
    #[schemars(regex(pattern = SALT))]
    pub(crate) salt: String,
    /// SHA-256 of salt and secret: 32 bytes as hexadecimal digits.
    #[schemars(regex(pattern = HASH))]
    pub(crate) hash: String,
}

impl std::fmt::Debug for KnownSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Hashes of secrets stay out of logs.
        f.write_str("KnownSecret")
    }
}

/// A join token.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JoinTokenRecord {
    /// The only region that the token is valid for; null for any.
    pub(crate) region: Option<String>,
    /// Time when the token expires, in milliseconds since 1970.
    pub(crate) expires_ms: u64,
    /// Number of nodes that may still join by the token.
    pub(crate) uses_left: u32,
    /// True if operators' orders may come from nodes that join by the token.
    pub(crate) operators: bool,
}

/// Origin of a join token.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TokenOriginInfo {
    /// Index of the entry that made the token.
    pub(crate) made: u64,
    /// True if operators' orders may come from nodes that join by the token.
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
    /// The only region that the token is valid for; any, if it is left out.
    #[schemars(regex(pattern = NAME))]
    pub(crate) region: Option<String>,
    /// Validity in seconds; at most 30 days.
    pub(crate) valid_s: u64,
    /// Number of nodes that may join by the token, at most 512.
    pub(crate) uses: u32,
    /// True if operators' orders may come from nodes that join by the token.
    pub(crate) operators: bool,
}

/// A secret that was made. It is shown this once.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Secret {
    /// Name of the record in paths.
    pub(crate) key: String,
    /// Secret that the holder presents. The cluster keeps only its hash. Null if the request gave that
    /// hash.
    pub(crate) secret: Option<String>,
    /// Index of the entry that wrote the record.
    pub(crate) index: u64,
    /// Version of the record, for `If-Match`.
    pub(crate) version: u64,
}

impl Default for NewJoinToken {
    /// Returns the terms for one node within an hour: enough for a person who starts it now.
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
            // Filled in by `records::item`, which knows the token's origin.
            operators: false,
        }
    }
}
