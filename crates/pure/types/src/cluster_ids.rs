//! Ids of clusters, their nodes and the disks of these.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hex_id;

/// Number of a node in its cluster, which gives it once and never to another node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for NodeId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// Declares an id that is drawn at random: 32 hexadecimal digits for people and in JSON, 16 bytes
/// with the highest first elsewhere.
macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            /// Returns the id that is written as `bytes`, the highest first.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(u128::from_be_bytes(bytes))
            }

            /// Returns the bytes of the id, the highest first.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }
        }

        impl From<u128> for $name {
            fn from(number: u128) -> Self {
                Self(number)
            }
        }

        impl From<$name> for u128 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        hex_id!($name of 16);
    };
}

random_id! {
    /// Id of a cluster, drawn when the cluster is formed, so that clusters that were formed apart
    /// have different ids.
    ClusterId
}
random_id! {
    /// Id of the disk that holds a node's log, drawn when the folder is made. A node whose disk was
    /// wiped has a new one and counts as another voter: the votes and entries that it promised to
    /// keep are gone.
    DiskId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_an_id_are_its_digits() {
        let id = DiskId(0xab);
        assert_eq!(id.to_string(), format!("{}ab", "0".repeat(30)));
        assert_eq!((id.to_bytes()[15], DiskId::from_bytes(id.to_bytes())), (0xab, id));
    }
}
