//! Ids and names of the control plane.

use std::fmt;

use serde::{Deserialize, Serialize};
pub use spillway_types::{ClusterId, DiskId, NodeId, TenantName};
use spillway_types::{RegionName, ReplicaName, hex_id, name};

name! {
    /// Id of an API key: the part of the key that is no secret.
    KeyId
}
name! {
    /// Id of a join token: the part of the token that is no secret.
    TokenId
}

name! {
    /// The serial number of a certificate: hexadecimal digits in lower case, without leading zeros.
    CertificateSerial
}

/// Id of one request and all its retries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub [u8; 16]);

hex_id!(RequestId of 16);

impl RequestId {
    /// Bit of the first byte that is set if an operator named the request.
    const KEYED: u8 = 0x80;

    const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns the id of a request with an `Idempotency-Key`, from a hash of that key. Its outcome
    /// is remembered for an hour, see [`crate::REQUESTS_KEYED_MAX`].
    #[must_use]
    pub fn keyed(mut hash: [u8; 16]) -> Self {
        hash[0] |= Self::KEYED;
        Self(hash)
    }

    /// Returns the id of a request without an `Idempotency-Key`, from random bytes; it serves
    /// retries between nodes.
    #[must_use]
    pub fn unkeyed(mut random: [u8; 16]) -> Self {
        random[0] &= !Self::KEYED;
        Self(random)
    }

    /// Returns true if an operator named the request.
    #[must_use]
    pub fn is_keyed(self) -> bool {
        self.0[0] & Self::KEYED != 0
    }
}

/// SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

hex_id!(Fingerprint of 32);

impl Fingerprint {
    const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    const fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

/// Id of a replica in the cluster: the name alone is unique only in its region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    /// Region of the replica.
    pub region: RegionName,
    /// Name of the replica in its region.
    pub name: ReplicaName,
}

impl ReplicaId {
    /// Returns the id of the replica `name` of `region`.
    #[must_use]
    pub fn new(region: RegionName, name: ReplicaName) -> Self {
        Self { region, name }
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.region, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_nodes_read_back_what_they_write() {
        let id = DiskId::from_bytes([0xab; 16]);
        let text = serde_json::to_string(&id).unwrap();
        assert_eq!(text, format!("\"{}\"", "ab".repeat(16)));
        assert_eq!(serde_json::from_str::<DiskId>(&text).unwrap(), id);
        let plus = format!("+{}", "1".repeat(31));
        for wrong in ["", "ab", &"1".repeat(31), &"1".repeat(33), &plus, &"g".repeat(32)] {
            assert!(serde_json::from_value::<DiskId>(wrong.into()).is_err(), "{wrong}");
        }
        let mut bytes = Vec::new();
        spillway_codec::write_payload(&id, &mut bytes).unwrap();
        assert_eq!(bytes, [0xab; 16]);
    }
}
