//! Properties of a request that the queue looks at.

use super::class::cost;
use super::entry::WaitEntry;

/// Properties that decide the place of a request in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// Class of the request: 0 is the most urgent.
    pub priority: u8,
    /// Tenant of the request; see [`WaitEntry::tenant`].
    pub tenant: u64,
    /// Weight of the tenant's share; 0 counts as 1.
    pub weight: u16,
    /// Tokens that the request takes of that share; 0 if unknown.
    pub tokens: u32,
    /// Bytes that the request holds while it waits.
    pub bytes: usize,
    /// Identifies the request when it comes back: for example a keyed hash of its tenant and body.
    /// Several requests may have the same fingerprint.
    pub fingerprint: u64,
    /// True if the request was refused before and promised a place for now.
    pub is_promised: bool,
}

impl Asker {
    /// Returns the tokens that count, at least 1.
    pub(crate) fn cost(&self) -> u32 {
        cost(self.tokens)
    }
}

impl<T> WaitEntry<T> {
    /// Returns the properties that decide the place of this entry.
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
