//! Secret key of prompt hashes, shared by all nodes of a cluster.

use std::fmt;

use thiserror::Error;

/// Key of prompt hashes: 32 random bytes, the same on every node. The hash of a prompt's beginning
/// means the same everywhere, and without the key no prompt can be guessed from its hash.
#[derive(Clone, PartialEq, Eq)]
pub struct PrefixKey([u8; 32]);

/// Error: the text is no prefix key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a prefix key is 64 hexadecimal digits")]
pub struct PrefixKeyError;

impl PrefixKey {
    /// Draws a key from the operating system's randomness.
    ///
    /// # Errors
    /// Returns an error if the system has no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        Ok(Self(key))
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Returns the key as its file has it: 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// Reads a key that [`Self::to_hex`] wrote; space around it is ignored.
    ///
    /// # Errors
    /// Returns an error for any other text.
    pub fn from_hex(text: &str) -> Result<Self, PrefixKeyError> {
        let mut key = [0; 32];
        hex::decode_to_slice(text.trim(), &mut key).map_err(|_| PrefixKeyError)?;
        Ok(Self(key))
    }
}

impl fmt::Debug for PrefixKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrefixKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_file() {
        let key = PrefixKey::random().unwrap();
        assert_ne!(key, PrefixKey::random().unwrap());
        assert_eq!(PrefixKey::from_hex(&format!("{}\n", key.to_hex())).unwrap(), key);
        assert_eq!(PrefixKey::from_hex(&key.to_hex().to_uppercase()).unwrap(), key);
        assert_eq!(PrefixKey::from_hex(&"0f".repeat(32)).unwrap().bytes(), [0x0f; 32]);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "00", &"0g".repeat(32), &"00".repeat(33), &"é".repeat(32)] {
            assert_eq!(PrefixKey::from_hex(text), Err(PrefixKeyError), "{text}");
        }
    }

    #[test]
    fn a_key_is_not_shown_by_mistake() {
        assert_eq!(
            format!("{:?}", PrefixKey::from_hex(&"0f".repeat(32)).unwrap()),
            "PrefixKey(..)"
        );
    }
}
