//! Scope of a cache entry: what must be equal, besides the prompt, for sharing it.

use highway::{HighwayHash, HighwayHasher, Key};

/// Scope that keeps equal prompts apart that must not or cannot share a cache.
///
/// An empty field means "none". Build it with `..Scope::default()`, since fields may be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// Name of the model, aliases resolved.
    pub model: &'a str,
    /// Name of the adapter (LoRA) on top of the model.
    pub adapter: &'a str,
    /// Salt of the tenant; prompts of different salts have different hashes.
    pub salt: &'a [u8],
}

impl Scope<'_> {
    /// Returns the key for prompts of this scope, derived from the node's key.
    pub(crate) fn derive_key(&self, key: &Key) -> Key {
        let mut hasher = HighwayHasher::new(Key(key.0));
        // The label lets the node's key serve other purposes too.
        append_field(&mut hasher, b"spillway prompt prefix 1");
        append_field(&mut hasher, self.model.as_bytes());
        append_field(&mut hasher, self.adapter.as_bytes());
        append_field(&mut hasher, self.salt);
        Key(hasher.finalize256())
    }
}

/// Appends a field with its length in front, so that bytes cannot move from one field to the next.
pub(crate) fn append_field(hasher: &mut HighwayHasher, field: &[u8]) {
    hasher.append(&(field.len() as u64).to_le_bytes());
    hasher.append(field);
}
