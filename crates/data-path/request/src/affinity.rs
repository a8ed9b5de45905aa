//! Affinity hash, which keeps related requests at the same replica.

use spillway_prefix::PrefixHasher;
use spillway_protocol::{HashBy, KeySources, RequestKey};
use spillway_types::BlockHashes;

/// Returns the keyed hash of a request's affinity key; `None` if the route uses none or the request
/// has none.
///
/// A prompt without a full block has none: so short a prompt is computed as fast as it is found in
/// a cache, and spreading it by load is worth more. Block hashes depend on the model, and so do
/// these groups.
pub fn affinity(
    hash_by: Option<&HashBy>,
    hasher: &PrefixHasher,
    sources: KeySources<'_>,
    prefix: &BlockHashes,
) -> Option<u64> {
    match hash_by?.key(sources)? {
        RequestKey::Bytes(bytes) => Some(hasher.hash_request_key(&bytes)),
        RequestKey::PromptBlocks(blocks) => {
            let chain = prefix.as_slice();
            chain[..blocks.min(chain.len())].last().copied()
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use spillway_prefix::PrefixConfig;

    use super::*;

    fn affinity_of(hash_by: &str, user: Option<&str>, prefix: &[u64]) -> Option<u64> {
        let hasher = PrefixHasher::new([1, 2, 3, 4], PrefixConfig::default()).unwrap();
        let client = "192.0.2.7".parse().unwrap();
        let sources = KeySources { headers: &HeaderMap::new(), user, client };
        let hash_by = hash_by.parse().unwrap();
        affinity(Some(&hash_by), &hasher, sources, &BlockHashes::new(prefix.to_vec()))
    }

    #[test]
    fn a_prompt_s_affinity_is_that_of_its_first_blocks() {
        let all = affinity_of("prompt_prefix", None, &[1, 2, 3, 4, 5]);
        assert_eq!(all, Some(4));
        assert_eq!(affinity_of("prompt_prefix:2", None, &[1, 2, 3]), Some(2));
        assert_eq!(affinity_of("prompt_prefix", None, &[1, 2]), Some(2), "as many as there are");
        assert_eq!(affinity_of("prompt_prefix", None, &[]), None);
    }

    #[test]
    fn users_differ_and_nobody_has_none() {
        let ann = affinity_of("user", Some("ann"), &[]);
        assert!(ann.is_some());
        assert_eq!(affinity_of("user", Some("ann"), &[9]), ann);
        assert_ne!(affinity_of("user", Some("bob"), &[]), ann);
        assert_eq!(affinity_of("user", None, &[9]), None);
    }
}
