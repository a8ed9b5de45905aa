//! Hashes of secrets.

use ring::digest::{Context, SHA256};

use crate::Hidden;

/// Returns the SHA-256 hash of `salt` and `secret`. API keys have a salt of 16 bytes. A secret of
/// 32 random bytes that stands alone, such as a join token's, needs none. A slow hash would gain
/// nothing: 32 random bytes can't be guessed, and the data path checks keys on every request.
#[must_use]
pub fn key_hash(salt: &[u8], secret: &[u8]) -> Hidden {
    let mut context = Context::new(&SHA256);
    context.update(salt);
    context.update(secret);
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    Hidden::new(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_sha_256() {
        // The digest of "abc" in FIPS 180-2.
        let known = "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"";
        let known: Hidden = serde_json::from_str(known).unwrap();
        assert!(key_hash(b"", b"abc").matches(&known));
        assert!(key_hash(b"a", b"bc").matches(&known));
    }

    #[test]
    fn salt_and_secret_both_count() {
        let hash = key_hash(&[1; 16], b"secret");
        assert!(!key_hash(&[2; 16], b"secret").matches(&hash));
        assert!(!key_hash(&[1; 16], b"secreT").matches(&hash));
        assert!(key_hash(&[1; 16], b"secret").matches(&hash));
    }
}
