//! Memory of reads from replicas outside of clients' requests, of all replicas together.
//!
//! The room belongs to the process, as `limits.memory_bytes_max` does. A read may take half of what
//! the others leave, so any number of replicas that send long pages slowly leave room for short
//! ones. To wait for room instead would let them delay the checks of all others.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Room of all reads together, in bytes: twice the longest page and more, or short pages of a thousand
/// replicas. The allocator takes up to twice as much for buffers of many sizes.
const ROOM_BYTES: usize = 10 << 20;
/// Bytes that each read has beside the room: the answer to a check must never lack it.
const OWN_BYTES: usize = 8 << 10;

static PROCESS: ReadRoom = ReadRoom { taken: AtomicUsize::new(0) };

/// Room that reads share.
#[derive(Debug)]
pub(crate) struct ReadRoom {
    taken: AtomicUsize,
}

/// Part of the room that one read has; a drop gives it back.
#[derive(Debug)]
pub(crate) struct ReadHold {
    room: &'static ReadRoom,
    /// Bytes beyond its own.
    bytes: usize,
}

impl Default for ReadHold {
    fn default() -> Self {
        Self { room: &PROCESS, bytes: 0 }
    }
}

impl ReadHold {
    /// Makes the hold one of `bytes` in all, for the buffers of one read. Returns false, and changes
    /// nothing, if there is no room.
    #[must_use]
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let wanted = bytes.saturating_sub(OWN_BYTES);
        let resized = self.room.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            let others = taken.saturating_sub(self.bytes);
            (wanted <= self.bytes || fits(wanted, others)).then_some(others + wanted)
        });
        if resized.is_ok() {
            self.bytes = wanted;
        }
        resized.is_ok()
    }
}

impl Drop for ReadHold {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns true if a read may have `wanted` bytes while others have theirs: as much as it leaves free.
fn fits(wanted: usize, others: usize) -> bool {
    wanted <= ROOM_BYTES.saturating_sub(others) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(room: &'static ReadRoom) -> ReadHold {
        ReadHold { room, bytes: 0 }
    }

    #[test]
    fn many_long_reads_leave_room_for_short_ones_and_keep_within_the_room() {
        let room: &'static ReadRoom = Box::leak(Box::new(ReadRoom { taken: AtomicUsize::new(0) }));
        let mut hogs: Vec<ReadHold> = (0..1_000).map(|_| hold(room)).collect();
        let mut sizes = vec![0; hogs.len()];
        for _ in 0..1_000 {
            for (hog, size) in hogs.iter_mut().zip(&mut sizes) {
                if hog.resize(*size + 4_096) {
                    *size += 4_096;
                }
            }
        }
        let taken: usize = hogs.iter().map(|hog| hog.bytes).sum();
        assert_eq!(taken, room.taken.load(Ordering::Relaxed));
        assert!(taken <= ROOM_BYTES, "{taken}");
        assert!(hold(room).resize(OWN_BYTES), "a check");
        assert!(hold(room).resize(OWN_BYTES + 4_096), "a short page");
        drop(hogs);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
        let mut alone = hold(room);
        assert!(alone.resize(ROOM_BYTES / 2) && !alone.resize(ROOM_BYTES));
        assert!(alone.resize(0));
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }
}
