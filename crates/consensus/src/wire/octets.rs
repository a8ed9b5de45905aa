//! Bytes inside a message, carried as one piece instead of number by number.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Any bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Octets(pub(crate) Bytes);

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(OctetsVisitor)
    }
}

struct OctetsVisitor;

impl<'de> Visitor<'de> for OctetsVisitor {
    type Value = Octets;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Octets, E> {
        Ok(Octets(Bytes::copy_from_slice(bytes)))
    }

    // Some formats have no bytes of their own and give numbers.
    fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Octets, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = numbers.next_element()? {
            bytes.push(byte);
        }
        Ok(Octets(bytes.into()))
    }
}
