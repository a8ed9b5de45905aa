//! Hasher of prompts: a secret key and the block settings.

use std::fmt;

use highway::Key;
use spillway_types::BlockHashes;

use crate::{PrefixConfig, PrefixConfigError, PrefixStream, Scope};

/// Hasher of prompts into chained block hashes under one secret key.
///
/// Without the key, an attacker can neither recognise a prompt by its hashes nor make two prompts
/// collide.
#[derive(Clone)]
pub struct PrefixHasher {
    pub(crate) key: Key,
    config: PrefixConfig,
}

impl PrefixHasher {
    /// Creates a hasher with `key`, which all nodes that share hashes must have in common.
    ///
    /// # Errors
    /// Returns an error if a value of `config` is outside its limits.
    pub fn new(key: [u64; 4], config: PrefixConfig) -> Result<Self, PrefixConfigError> {
        Ok(Self { key: Key(key), config: config.checked()? })
    }

    /// Returns the hashes of a complete prompt: one per full block, first block first.
    #[must_use]
    pub fn hash(&self, scope: &Scope<'_>, prompt: &[u8]) -> BlockHashes {
        let mut stream = self.start(scope);
        stream.reserve(prompt.len());
        stream.update(prompt);
        stream.finish()
    }

    /// Starts hashing a prompt that arrives in pieces.
    #[must_use]
    pub fn start(&self, scope: &Scope<'_>) -> PrefixStream {
        PrefixStream::new(scope.derive_key(&self.key), self.config)
    }
}

// Written by hand: the key must never reach a log.
impl fmt::Debug for PrefixHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixHasher").field("config", &self.config).finish_non_exhaustive()
    }
}
