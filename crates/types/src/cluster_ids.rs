//! Ids of clusters, their nodes and the disks of these.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
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
                    self.to_bytes().serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if !deserializer.is_human_readable() {
                    return Deserialize::deserialize(deserializer).map(Self::from_bytes);
                }
                let text = String::deserialize(deserializer)?;
                let wrong = || D::Error::custom("16 bytes in hexadecimal belong here");
                parse(&text).map(Self).ok_or_else(wrong)
            }
        }
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

/// Returns the number that exactly 32 hexadecimal digits stand for.
fn parse(text: &str) -> Option<u128> {
    let is_plain = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_plain.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_digits_are_an_id() {
        let text = "00ffA0".to_owned() + &"1".repeat(26);
        assert_eq!(
            parse(&text).map(u128::to_be_bytes).map(|bytes| bytes[..3].to_vec()),
            Some(vec![0, 255, 160])
        );
        let plus = format!("+{}", "1".repeat(31));
        for wrong in ["", "ab", &"1".repeat(31), &"1".repeat(33), &plus, &"g".repeat(32)] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_bytes_of_an_id_are_its_digits() {
        let id = DiskId(0xab);
        assert_eq!(id.to_string(), format!("{}ab", "0".repeat(30)));
        assert_eq!((id.to_bytes()[15], DiskId::from_bytes(id.to_bytes())), (0xab, id));
    }
}
