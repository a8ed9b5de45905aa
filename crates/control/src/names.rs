//! Ids and names that only the control plane has.

use std::fmt;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use spillway_types::TenantName;
use spillway_types::{RegionName, ReplicaName};

use crate::hex;

/// Declares a name: an immutable shared string that is compared by its text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<&$name> for Arc<str> {
            fn from(name: &$name) -> Self {
                Self::clone(&name.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// The part of an API key that is no secret: which one it is.
    KeyId
}
name! {
    /// The part of a join token that is no secret: which one it is.
    TokenId
}

name! {
    /// The serial number of a certificate: hexadecimal digits in lower case, without leading zeros.
    CertificateSerial
}

/// Declares bytes that stand for something: hexadecimal for people and in JSON.
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

/// Ids that other parts of the program have as one number.
macro_rules! number {
    ($name:ident) => {
        impl From<u128> for $name {
            fn from(number: u128) -> Self {
                Self(number.to_be_bytes())
            }
        }

        impl From<$name> for u128 {
            fn from(id: $name) -> Self {
                Self::from_be_bytes(id.0)
            }
        }
    };
}

id! {
    /// One cluster, from its formation on.
    ClusterId of 16
}
number!(ClusterId);
id! {
    /// One data folder: made when it is, so that a wiped one is another.
    DiskId of 16
}
number!(DiskId);
id! {
    /// Chosen by a client for one request and all its retries.
    RequestId of 16
}
number!(RequestId);

impl RequestId {
    /// The first bit tells whether an operator named the request.
    const KEYED: u8 = 0x80;

    /// The id of a request that an operator named, from a hash of that name. Its outcome is
    /// remembered for an hour, see [`crate::REQUESTS_KEYED_MAX`].
    #[must_use]
    pub fn keyed(mut hash: [u8; 16]) -> Self {
        hash[0] |= Self::KEYED;
        Self(hash)
    }

    /// The id of a request without a name, for its retries on the way, from random bytes.
    #[must_use]
    pub fn unkeyed(mut random: [u8; 16]) -> Self {
        random[0] &= !Self::KEYED;
        Self(random)
    }

    /// Whether an operator named the request.
    #[must_use]
    pub fn is_keyed(self) -> bool {
        self.0[0] & Self::KEYED != 0
    }
}

id! {
    /// SHA-256 of a certificate.
    Fingerprint of 32
}

/// A node as Raft knows it. Given by the state, never twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A replica in the cluster: its name is unique in its region.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaId {
    /// Whose it is.
    pub region: RegionName,
    /// What it is called there.
    pub name: ReplicaName,
}

impl ReplicaId {
    /// The replica `name` of `region`.
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
        let id = DiskId([0xab; 16]);
        let text = serde_json::to_string(&id).unwrap();
        assert_eq!(text, format!("\"{}\"", "ab".repeat(16)));
        assert_eq!(serde_json::from_str::<DiskId>(&text).unwrap(), id);
        assert!(serde_json::from_str::<DiskId>("\"ab\"").is_err());
        let mut bytes = Vec::new();
        spillway_codec::write_payload(&id, &mut bytes).unwrap();
        assert_eq!(bytes, [0xab; 16]);
    }
}
