//! Slots for streams at a server that limits them on each connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most connections over which one node spreads its streams to an address, and so the most times that
/// a server's limit of streams counts. Over HTTP/1.1 each request has a connection.
const CONNECTIONS_MAX: u32 = 64;

/// Streams of a node at one address of a server.
#[derive(Debug)]
pub(crate) struct StreamSlots {
    taken: AtomicU32,
    max: AtomicU32,
}

/// Slot of one stream; released when dropped. A request over HTTP/1.1 has an empty one.
#[derive(Debug)]
pub struct StreamSlot(Option<Arc<StreamSlots>>);

impl Default for StreamSlots {
    fn default() -> Self {
        Self { taken: AtomicU32::new(0), max: AtomicU32::new(u32::MAX) }
    }
}

impl StreamSlots {
    /// Notes the most streams that the server takes on a connection; `u32::MAX` for no limit.
    pub(crate) fn note_max(&self, each: u32) {
        // A server that takes none for now is asked again with the next request.
        self.max.store(each.max(1).saturating_mul(CONNECTIONS_MAX), Ordering::Relaxed);
    }

    /// Returns how many streams fit now.
    pub(crate) fn free(&self) -> u32 {
        let max = self.max.load(Ordering::Relaxed);
        // Most servers have room for all that a replica may have in flight.
        if max == u32::MAX { max } else { max.saturating_sub(self.taken.load(Ordering::Relaxed)) }
    }

    /// Takes a slot; `None` if there is none.
    pub(crate) fn take(self: &Arc<Self>) -> Option<StreamSlot> {
        let max = self.max.load(Ordering::Relaxed);
        let more = |taken: u32| (taken < max).then(|| taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(StreamSlot(Some(Arc::clone(self))))
    }
}

impl StreamSlot {
    /// Slot of a request that needs no stream.
    pub(crate) const NONE: Self = Self(None);
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        if let Some(slots) = &self.0 {
            slots.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_limit_counts_once_for_each_connection() {
        let slots = Arc::new(StreamSlots::default());
        assert_eq!(slots.free(), u32::MAX, "nothing is known");
        slots.note_max(2);
        let held: Vec<_> = std::iter::from_fn(|| slots.take()).collect();
        assert_eq!((held.len(), slots.free()), (128, 0));
        slots.note_max(1);
        drop(held);
        assert_eq!(slots.free(), 64);
        slots.note_max(0);
        assert_eq!(slots.free(), 64, "it may take some again");
        slots.note_max(u32::MAX);
        assert_eq!(slots.free(), u32::MAX);
    }
}
