//! An API key as its holder has it.

use std::fmt;

use crate::{Hidden, KeyId, hex, key_hash};

/// Random bytes in a secret. Guessing one of a million keys takes 2^235 tries.
pub const SECRET_BYTES: usize = 32;

/// What every key begins with, so that people and scanners of leaked secrets know one.
const MARK: &str = "sw_";

/// A key as its holder has it: `sw_<id>_<secret>`, the secret in lower-case hexadecimal. To be shown
/// once, when it is made; `Debug` shows the id alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyText<'t> {
    /// Which key it is; no secret.
    pub id: &'t str,
    /// What only its holder has. Hash it with the key's salt, never store it.
    pub secret: &'t str,
}

impl<'t> KeyText<'t> {
    /// Whether this would be a key of ours, wrong or right.
    #[must_use]
    pub fn is_marked(text: &str) -> bool {
        text.starts_with(MARK)
    }

    /// Takes a key apart; `None` if it can't be one.
    #[must_use]
    pub fn read(text: &'t str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(MARK)?.rsplit_once('_')?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_secret = secret.len() == 2 * SECRET_BYTES && secret.bytes().all(is_digit);
        (is_secret && !id.is_empty()).then_some(Self { id, secret })
    }

    /// The text of a new key. The caller drew the secret.
    #[must_use]
    pub fn write(id: &KeyId, secret: &[u8; SECRET_BYTES]) -> String {
        struct Digits<'s>(&'s [u8]);
        impl fmt::Display for Digits<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex::write(self.0, f)
            }
        }
        format!("{MARK}{id}_{}", Digits(secret))
    }

    /// What a key's record has of the secret.
    #[must_use]
    pub fn hash(&self, salt: &[u8; 16]) -> Hidden {
        key_hash(salt, self.secret.as_bytes())
    }
}

impl fmt::Debug for KeyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyText").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for id in ["a", "team_1", "ci-2.x", "_"] {
            let text = KeyText::write(&KeyId::from(id), &[0xa5; SECRET_BYTES]);
            let read = KeyText::read(&text).unwrap();
            assert_eq!((read.id, read.secret), (id, "a5".repeat(SECRET_BYTES).as_str()));
            assert!(KeyText::is_marked(&text));
        }
    }

    #[test]
    fn nothing_else_is_a_key() {
        let secret = "a5".repeat(SECRET_BYTES);
        let upper = secret.to_uppercase();
        for wrong in [
            String::new(),
            "sw_".to_owned(),
            format!("sw_{secret}"),
            format!("sw__{secret}"),
            format!("sk_a_{secret}"),
            format!("sw_a_{upper}"),
            format!("sw_a_{secret}0"),
            format!("sw_a_{}", &secret[1..]),
            format!("sw_a_{secret} "),
        ] {
            assert_eq!(KeyText::read(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_hash_is_that_of_the_secret_s_text() {
        let text = KeyText::write(&KeyId::from("a"), &[7; SECRET_BYTES]);
        let hash = KeyText::read(&text).unwrap().hash(&[1; 16]);
        assert!(hash.matches(&key_hash(&[1; 16], "07".repeat(SECRET_BYTES).as_bytes())));
    }

    #[test]
    fn nobody_reads_the_secret_in_a_log() {
        let text = KeyText::write(&KeyId::from("a"), &[7; SECRET_BYTES]);
        let shown = format!("{:?}", KeyText::read(&text).unwrap());
        assert_eq!(shown, "KeyText { id: \"a\", .. }");
    }
}
