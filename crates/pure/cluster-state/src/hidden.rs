//! Bytes that are never shown to people.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq;

/// Text that is shown in place of the bytes.
const SHOWN: &str = "hidden";

/// 32 bytes that are compared, stored and sent between nodes, but never shown: `Debug` and JSON
/// have the word "hidden" instead. JSON input has 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hidden([u8; 32]);

impl Hidden {
    /// Hides `bytes`.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes. Compare secrets with [`Self::matches`], which takes constant time.
    #[must_use]
    pub fn reveal(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns true if both have the same bytes, in a time that does not depend on the bytes.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(SHOWN)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <[u8; 32]>::deserialize(deserializer).map(Self);
        }
        let text = String::deserialize(deserializer)?;
        let mut bytes = [0; 32];
        hex::decode_to_slice(&text, &mut bytes)
            .map_err(|_| D::Error::custom("64 hexadecimal digits belong here"))?;
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_sees_it_but_nodes() {
        let hidden = Hidden::new([0xab; 32]);
        assert_eq!(format!("{hidden:?}"), "hidden");
        assert_eq!(serde_json::to_string(&hidden).unwrap(), "\"hidden\"");
        let mut bytes = Vec::new();
        spillway_codec::write_payload(&hidden, &mut bytes).unwrap();
        assert_eq!(bytes, [0xab; 32]);
    }

    #[test]
    fn it_is_read_as_hexadecimal() {
        let text = format!("\"{}\"", "ab".repeat(32));
        assert_eq!(serde_json::from_str::<Hidden>(&text).unwrap(), Hidden::new([0xab; 32]));
        for wrong in ["\"hidden\"", "\"ab\"", &format!("\"{}\"", "xy".repeat(32))] {
            assert!(serde_json::from_str::<Hidden>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_bit_makes_another() {
        let mut other = [7; 32];
        assert!(Hidden::new([7; 32]).matches(&Hidden::new(other)));
        other[31] ^= 1;
        assert!(!Hidden::new([7; 32]).matches(&Hidden::new(other)));
    }
}
