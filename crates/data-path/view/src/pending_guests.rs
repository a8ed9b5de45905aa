//! Guest requests that were accepted and have no slot yet: their bodies are still in transit.
//! Without this count, all guests that arrive within a round trip would be promised the same free
//! slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of accepted guests of one model without a slot.
#[derive(Clone, Debug, Default)]
pub struct PendingGuests(Arc<AtomicU32>);

/// Accepted guest; dropped when it has its slot or ended without one.
#[derive(Debug)]
pub struct PendingGuest(Arc<AtomicU32>);

impl PendingGuests {
    /// Adds a guest, and returns it with the number of guests that were already without a slot.
    pub fn welcome(&self) -> (PendingGuest, u32) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        (PendingGuest(Arc::clone(&self.0)), before)
    }
}

impl Drop for PendingGuest {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counts_until_it_is_dropped() {
        let coming = PendingGuests::default();
        let (first, before) = coming.welcome();
        assert_eq!(before, 0);
        let (_second, before) = coming.welcome();
        assert_eq!(before, 1);
        drop(first);
        assert_eq!(coming.welcome().1, 1);
    }
}
