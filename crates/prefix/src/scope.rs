//! What, besides the prompt, decides whether a cache entry can be shared.

use highway::{HighwayHash, HighwayHasher, Key};

/// Keeps equal prompts apart that must not or can not share a cache.
///
/// An empty field means "none". Build it with `..Scope::default()`: fields may be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The model, aliases resolved.
    pub model: &'a str,
    /// The adapter (LoRA) on top of it.
    pub adapter: &'a str,
    /// A tenant's salt; prompts of different salts never look alike.
    pub salt: &'a [u8],
}

impl Scope<'_> {
    /// The key under which prompts of this scope are hashed, derived from the node's key.
    pub(crate) fn derive_key(&self, key: &Key) -> Key {
        let mut hasher = HighwayHasher::new(Key(key.0));
        // A label of its own, so that the node's key may serve other purposes too.
        append_field(&mut hasher, b"spillway prompt prefix 1");
        append_field(&mut hasher, self.model.as_bytes());
        append_field(&mut hasher, self.adapter.as_bytes());
        append_field(&mut hasher, self.salt);
        Key(hasher.finalize256())
    }
}

/// Appends a field with its length in front, so that bytes can't move from one field to the next.
pub(crate) fn append_field(hasher: &mut HighwayHasher, field: &[u8]) {
    hasher.append(&(field.len() as u64).to_le_bytes());
    hasher.append(field);
}
