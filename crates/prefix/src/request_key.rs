//! A hash of what requests have in common when they belong together.

use highway::{HighwayHash, HighwayHasher, Key};

use crate::PrefixHasher;
use crate::scope::append_field;

impl PrefixHasher {
    /// The keyed hash of a request's key, e.g. a session's name.
    ///
    /// Whoever could compute it could choose names that all fall to one replica. So it is made
    /// with the secret that prompts are hashed with, which all nodes of a region have in common:
    /// they have to agree on where a key belongs.
    #[must_use]
    pub fn hash_request_key(&self, request_key: &[u8]) -> u64 {
        let mut hasher = HighwayHasher::new(Key(self.key.0));
        append_field(&mut hasher, b"spillway request key 1");
        hasher.append(request_key);
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
    fn a_prompt_as_a_key_does_not_look_like_its_blocks() {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let prompt = [7; 256];
        let blocks = hasher.hash(&Scope::default(), &prompt);
        assert_ne!(blocks.as_slice(), [hasher.hash_request_key(&prompt)]);
    }
}
