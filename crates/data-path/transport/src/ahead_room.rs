//! Memory limit of all replies that are read ahead of their clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that replies share for reading ahead. Never blocks.
///
/// All accesses are relaxed: only the count matters, nothing is published through it.
#[derive(Debug)]
pub struct AheadRoom {
    held_bytes: AtomicU64,
    bytes_max: AtomicU64,
    begun: AtomicU64,
    full: AtomicU64,
}

/// Part of the memory; released when dropped.
#[derive(Debug)]
pub struct AheadHold {
    room: Arc<AheadRoom>,
    bytes: u64,
}

impl AheadRoom {
    /// Returns room for `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            held_bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(bytes_max),
            begun: AtomicU64::new(0),
            full: AtomicU64::new(0),
        }
    }

    /// Returns the bytes held now. A partly filled block counts as a whole one.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns two totals since start: replies that were read ahead of their clients (`begun`), and
    /// those of them whose replica had to wait because there was no more room (`full`).
    #[must_use]
    pub fn replies(&self) -> [(&'static str, u64); 2] {
        let total = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [("begun", total(&self.begun)), ("full", total(&self.full))]
    }

    /// Changes the limit. Bytes beyond it are kept until clients have taken them.
    pub fn resize(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Returns true if [`AheadRoom::take`] would succeed at this moment.
    pub fn has(&self, bytes: u64) -> bool {
        self.fits(self.held_bytes(), bytes)
    }

    /// Takes `bytes` bytes; `None` if fewer are free.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Option<AheadHold> {
        let order = Ordering::Relaxed;
        self.held_bytes
            .fetch_update(order, order, |held| self.fits(held, bytes).then(|| held + bytes))
            .is_ok()
            .then(|| AheadHold { room: Arc::clone(self), bytes })
    }

    fn fits(&self, held_bytes: u64, bytes: u64) -> bool {
        held_bytes.saturating_add(bytes) <= self.bytes_max.load(Ordering::Relaxed)
    }

    /// Counts a reply that began to be read ahead.
    pub fn count_begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reply for which there was no room.
    pub fn count_full(&self) {
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
