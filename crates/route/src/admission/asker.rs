//! A request as the queue sees it.

use crate::{WaitEntry, waiting::cost};

/// What decides about a request's place in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// Its class: 0 is the most urgent.
    pub priority: u8,
    /// Whose it is; see [`WaitEntry::tenant`].
    pub tenant: u64,
    /// The tenant's share; 0 counts as 1.
    pub weight: u16,
    /// What it takes of that share; 0 if unknown.
    pub tokens: u32,
    /// Bytes that it would hold while it waits.
    pub bytes: usize,
    /// By which it is known again when it comes back: e.g. a keyed hash of its tenant and body. Several
    /// requests may have the same one.
    pub fingerprint: u64,
    /// It was turned away before, and told to come now.
    pub is_promised: bool,
}

impl Asker {
    /// Tokens that count, at least 1.
    pub(crate) fn cost(&self) -> u32 {
        cost(self.tokens)
    }
}

impl<T> WaitEntry<T> {
    /// What decides about its place.
    #[must_use]
    pub fn asker(&self) -> Asker {
        Asker {
            priority: self.priority,
            tenant: self.tenant,
            weight: self.weight,
            tokens: self.tokens,
            bytes: self.bytes,
            fingerprint: self.fingerprint,
            is_promised: self.is_promised,
        }
    }
}
