//! The entry point: a key and a block size.

use std::fmt;

use highway::Key;
use spillway_types::BlockHashes;

use crate::{PrefixConfig, PrefixConfigError, PrefixStream, Scope};

/// Turns prompts into chained block hashes under one secret key.
///
/// Without the key nobody can tell a prompt from its hashes nor make two prompts collide.
#[derive(Clone)]
pub struct PrefixHasher {
    pub(crate) key: Key,
    config: PrefixConfig,
}

impl PrefixHasher {
    /// A hasher under `key`, which all nodes that share hashes have in common.
    ///
    /// # Errors
    /// A value of `config` is outside its limits.
    pub fn new(key: [u64; 4], config: PrefixConfig) -> Result<Self, PrefixConfigError> {
        Ok(Self { key: Key(key), config: config.checked()? })
    }

    /// The hashes of a prompt that is there as a whole: one per full block, first block first.
    #[must_use]
    pub fn hash(&self, scope: &Scope<'_>, prompt: &[u8]) -> BlockHashes {
        let mut stream = self.start(scope);
        stream.reserve(prompt.len());
        stream.update(prompt);
        stream.finish()
    }

    /// Begins a prompt that comes in pieces.
    #[must_use]
    pub fn start(&self, scope: &Scope<'_>) -> PrefixStream {
        PrefixStream::new(scope.derive_key(&self.key), self.config)
    }
}

// By hand: the key must never reach a log.
impl fmt::Debug for PrefixHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixHasher").field("config", &self.config).finish_non_exhaustive()
    }
}
