//! Keyed hashes of requests: by a key such as a session, or as a whole.

use highway::{HighwayHash, HighwayHasher, Key};

use crate::PrefixHasher;
use crate::scope::append_field;

impl PrefixHasher {
    /// Returns the keyed hash of a request's key, e.g. of a session's name.
    ///
    /// Without the secret, a client cannot choose names that all fall to one replica. The secret is
    /// that of the prompt hashes, which all nodes of a region share, because the nodes have to
    /// agree on the replica of a key.
    #[must_use]
    pub fn hash_request_key(&self, request_key: &[u8]) -> u64 {
        let mut hasher = HighwayHasher::new(Key(self.key.0));
        // The label keeps these hashes apart from others under the same secret.
        append_field(&mut hasher, b"spillway request key 1");
        hasher.append(request_key);
        hasher.finalize64()
    }

    /// Returns the salt that separates cache entries in engines, for prompts that share none with
    /// others: 64 hexadecimal digits.
    ///
    /// The salt cannot be guessed without the secret, so a client cannot probe another client's
    /// cache with prompts of its own. Nodes with the same secret return the same salt.
    #[must_use]
    pub fn engine_salt(&self, scope: &[u8]) -> String {
        let mut hasher = HighwayHasher::new(Key(self.key.0));
        append_field(&mut hasher, b"spillway engine salt 1");
        append_field(&mut hasher, scope);
        let parts = hasher.finalize256();
        parts.iter().map(|part| format!("{part:016x}")).collect()
    }

    /// Returns the keyed hash of a whole request: of `fields`, and of a body that may be in pieces.
    /// Equal requests have equal hashes, however their bodies are cut.
    ///
    /// The hash identifies a refused request when its client retries it. Without the secret, no
    /// other client can pretend to repeat that request.
    #[must_use]
    pub fn hash_request<'b>(
        &self,
        fields: &[&[u8]],
        body: impl IntoIterator<Item = &'b [u8]>,
    ) -> u64 {
        let mut hasher = HighwayHasher::new(Key(self.key.0));
        append_field(&mut hasher, b"spillway request 1");
        fields.iter().for_each(|field| append_field(&mut hasher, field));
        body.into_iter().for_each(|piece| hasher.append(piece));
        hasher.finalize64()
    }
}

#[cfg(test)]
mod tests {
    use crate::{PrefixConfig, PrefixHasher, Scope};

    #[test]
    fn the_hash_depends_on_every_byte_and_on_the_secret_alone() {
        let hasher = |key| PrefixHasher::new(key, PrefixConfig::default()).unwrap();
        let hash = |key, text: &[u8]| hasher(key).hash_request_key(text);
        assert_eq!(hash([1, 2, 3, 4], b"session-1"), hash([1, 2, 3, 4], b"session-1"));
        assert_ne!(hash([1, 2, 3, 4], b"session-1"), hash([1, 2, 3, 4], b"session-2"));
        assert_ne!(hash([1, 2, 3, 4], b"session-1"), hash([1, 2, 3, 5], b"session-1"));
        assert_ne!(hash([1, 2, 3, 4], b"a"), hash([1, 2, 3, 4], b"a\0"));
    }

    #[test]
    fn a_request_is_known_again_however_its_body_is_cut() {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let other = PrefixHasher::new([1, 2, 3, 5], PrefixConfig::default()).unwrap();
        let body = [b'x'; 100];
        let whole = hasher.hash_request(&[b"tenant", b"/path"], [&body[..]]);
        for cut in 0..100 {
            let pieces = [&body[..cut], &body[cut..]];
            assert_eq!(hasher.hash_request(&[b"tenant", b"/path"], pieces), whole);
        }
        for changed in [
            hasher.hash_request(&[b"tenant", b"/path"], [&body[1..]]),
            hasher.hash_request(&[b"tenan", b"t/path"], [&body[..]]),
            hasher.hash_request(&[b"tenant", b"/pat", b"h"], [&body[..]]),
            other.hash_request(&[b"tenant", b"/path"], [&body[..]]),
        ] {
            assert_ne!(changed, whole);
        }
    }

    #[test]
    fn an_engine_salt_depends_on_scope_and_secret() {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let other = PrefixHasher::new([1, 2, 3, 5], PrefixConfig::default()).unwrap();
        let salt = hasher.engine_salt(b"a");
        assert_eq!((salt.len(), &salt), (64, &hasher.engine_salt(b"a")));
        assert_ne!(salt, hasher.engine_salt(b"b"));
        assert_ne!(salt, other.engine_salt(b"a"));
    }

    #[test]
    fn a_prompt_as_a_key_does_not_look_like_its_blocks() {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let prompt = [7; 256];
        let blocks = hasher.hash(&Scope::default(), &prompt);
        assert_ne!(blocks.as_slice(), [hasher.hash_request_key(&prompt)]);
    }
}
