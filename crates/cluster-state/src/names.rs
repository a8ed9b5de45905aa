//! Ids and names of the control plane.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use spillway_types::{ClusterId, DiskId, NodeId, TenantName};
use spillway_types::{RegionName, ReplicaName, name};

use crate::hex;

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

/// Declares an id of a fixed number of bytes, written as hexadecimal for people and in JSON.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident of $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $bytes]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex::write(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if !deserializer.is_human_readable() {
                    return Deserialize::deserialize(deserializer).map(Self);
                }
                let text = String::deserialize(deserializer)?;
                let wrong = || D::Error::custom(concat!($bytes, " bytes in hexadecimal belong here"));
                hex::read(&text).map(Self).ok_or_else(wrong)
            }
        }
    };
}

id! {
    /// Id of one request and all its retries.
    RequestId of 16
}

impl RequestId {
    /// Bit of the first byte that is set if an operator named the request.
    const KEYED: u8 = 0x80;

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

id! {
    /// SHA-256 of a certificate.
    Fingerprint of 32
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
        assert!(serde_json::from_str::<DiskId>("\"ab\"").is_err());
        let mut bytes = Vec::new();
        spillway_codec::write_payload(&id, &mut bytes).unwrap();
        assert_eq!(bytes, [0xab; 16]);
    }
}
