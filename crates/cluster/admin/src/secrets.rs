//! New secrets: shown once, kept as hashes or public keys.

use spillway_cluster_state::{Hidden, KeyId, KeyText, SECRET_BYTES, key_hash};

use crate::error::ApiError;

/// Prefix of join tokens.
const JOIN_TOKEN: &str = "swj_";

/// A new secret, with the parts of it that are kept.
pub(crate) struct Fresh {
    /// Text that is shown, once.
    pub(crate) shown: String,
    pub(crate) salt: [u8; 16],
    pub(crate) hash: Hidden,
}

/// Returns a random id.
pub(crate) fn fresh_id() -> Result<String, ApiError> {
    random::<8>().map(hex::encode)
}

/// Makes a key, `sw_<id>_<secret>`; the secret is kept salted and hashed.
pub(crate) fn fresh_key(id: &str) -> Result<Fresh, ApiError> {
    let (secret, salt) = (random::<SECRET_BYTES>()?, random::<16>()?);
    // Of the text, which is what callers send.
    let hash = key_hash(&salt, hex::encode(secret).as_bytes());
    Ok(Fresh { shown: KeyText::write(&KeyId::from(id), &secret), salt, hash })
}

/// Makes a join token, `swj_<id>_<secret>`.
pub(crate) fn fresh_join_token(id: &str) -> Result<String, ApiError> {
    Ok(format!("{JOIN_TOKEN}{id}_{}", hex::encode(random::<SECRET_BYTES>()?)))
}

/// Returns random bytes of the system.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], ApiError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        ApiError::internal(format!("the system has no random numbers: {error}"))
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_checked_by_what_is_kept_of_it() {
        let fresh = fresh_key("a_b").ok().unwrap();
        let key = KeyText::read(&fresh.shown).unwrap();
        assert_eq!(key.id, "a_b");
        assert!(key.hash(&fresh.salt).matches(&fresh.hash));
        assert_ne!(fresh_key("a_b").ok().unwrap().shown, fresh.shown);
        assert_eq!(KeyText::read(&fresh_join_token("a").ok().unwrap()), None);
    }
}
