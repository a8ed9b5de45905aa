//! Text form of an API key.

use std::fmt;

use crate::{Hidden, KeyId, key_hash};

/// Random bytes in a secret. Guessing one of a million keys takes 2^235 tries.
pub const SECRET_BYTES: usize = 32;

/// Prefix of every key, so that people and scanners of leaked secrets recognise one.
const MARK: &str = "sw_";

/// Text form of a key, as its holder has it: `sw_<id>_<secret>`, the secret in lower-case
/// hexadecimal. Show it once, when it is made; `Debug` shows the id alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyText<'t> {
    /// Id of the key, which is no secret.
    pub id: &'t str,
    /// Secret of the key in hexadecimal. Hash it with the salt of the key's record, never store it.
    pub secret: &'t str,
}

impl<'t> KeyText<'t> {
    /// Returns true if `text` has the prefix of Spillway's keys, right or wrong otherwise.
    #[must_use]
    pub fn is_marked(text: &str) -> bool {
        text.starts_with(MARK)
    }

    /// Splits the text of a key; returns None if the text is no key.
    #[must_use]
    pub fn read(text: &'t str) -> Option<Self> {
        // From the end, since an id may have underscores.
        let (id, secret) = text.strip_prefix(MARK)?.rsplit_once('_')?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_secret = secret.len() == 2 * SECRET_BYTES && secret.bytes().all(is_digit);
        (is_secret && !id.is_empty()).then_some(Self { id, secret })
    }

    /// Returns the text of a new key with a secret that the caller drew at random.
    #[must_use]
    pub fn write(id: &KeyId, secret: &[u8; SECRET_BYTES]) -> String {
        format!("{MARK}{id}_{}", hex::encode(secret))
    }

    /// Returns the hash of the secret with `salt`, to compare with the hash in the key's record.
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
