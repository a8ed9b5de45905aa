//! Memory for replies that are read ahead of their clients: what all of a node may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room that replies share. Taken and given back without waiting.
///
/// Relaxed everywhere: the count is all that is agreed on, nothing is published through it.
#[derive(Debug)]
pub struct AheadRoom {
    held_bytes: AtomicU64,
    bytes_max: AtomicU64,
    begun: AtomicU64,
    full: AtomicU64,
}

/// A part of the room; given back when dropped.
#[derive(Debug)]
pub(crate) struct AheadHold {
    room: Arc<AheadRoom>,
    bytes: u64,
}

impl AheadRoom {
    /// Room for so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            held_bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(bytes_max),
            begun: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }
    }

    /// Bytes held now, full to the last or not.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Replies since start that were read ahead of their clients, and those of them whose replica had
    /// to wait in the end, since there was no more room.
    #[must_use]
    pub fn replies(&self) -> [(&'static str, u64); 2] {
        let total = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("begun", total(&self.begun)), ("full", total(&self.full))]
    }

    /// Has so many bytes from now on. What is held beyond them is kept until its clients have it.
    pub(crate) fn resize(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Whether [`AheadRoom::take`] would succeed at this moment.
    pub(crate) fn has(&self, bytes: u64) -> bool {
        self.fits(self.held_bytes(), bytes)
    }

    /// Takes so many bytes; `None` if there are not as many.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<AheadHold> {
        let order = Ordering::Relaxed;
        self.held_bytes
            .fetch_update(order, order, |held| self.fits(held, bytes).then(|| held + bytes))
            .is_ok()
            .then(|| AheadHold { room: Arc::clone(self), bytes })
    }

    fn fits(&self, held_bytes: u64, bytes: u64) -> bool {
        held_bytes.saturating_add(bytes) <= self.bytes_max.load(Ordering::Relaxed)
    }

    pub(super) fn count_begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for AheadHold {
    fn drop(&mut self) {
        self.room.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_what_is_dropped_can_be_taken_again() {
        let room = Arc::new(AheadRoom::new(100));
        let first = room.take(60).expect("room");
        assert!(room.has(40) && !room.has(41));
        assert!(room.take(41).is_none());
        assert_eq!(room.held_bytes(), 60, "a refusal takes nothing");
        let second = room.take(40).expect("room");
        assert!(room.take(1).is_none());
        drop(first);
        assert_eq!(room.held_bytes(), 40);
        drop(room.take(60).expect("room"));
        drop(second);
        assert_eq!(room.held_bytes(), 0);
    }

    #[test]
    fn a_smaller_room_refuses_but_takes_nothing_away() {
        let room = Arc::new(AheadRoom::new(100));
        let hold = room.take(80).expect("room");
        room.resize(0);
        assert!(!room.has(1) && room.take(1).is_none());
        assert_eq!(room.held_bytes(), 80);
        drop(hold);
        assert!(room.take(1).is_none());
        room.resize(u64::MAX);
        assert!(room.take(u64::MAX).is_some());
    }

    #[test]
    fn many_at_a_time_never_have_more_than_all_of_it() {
        const EACH: u64 = 7;
        let room = Arc::new(AheadRoom::new(50));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let held: Vec<_> = (0..3).filter_map(|_| room.take(EACH)).collect();
                        assert!(room.held_bytes() <= 50);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(room.held_bytes(), 0);
    }
}
