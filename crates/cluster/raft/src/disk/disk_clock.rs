//! Clock of a node's disk: a disk that hangs reports nothing by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Times that the disk of a node's log has taken since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskTimes {
    /// Number of finished writes, each forced to disk.
    pub writes: u64,
    /// Time that the finished writes took together.
    pub total: Duration,
    /// Time for which the disk has not answered a write or an opening; `None` if none is under way.
    pub waiting: Option<Duration>,
}

/// Clock of a node's disk, read while threads wait for the disk. A log that is opened again goes on
/// with the clock of the one before.
#[derive(Debug)]
pub struct DiskClock {
    started: Instant,
    writes: AtomicU64,
    total_ns: AtomicU64,
    /// Start of the wait under way in nanoseconds since the clock was made, and 1; 0 if none is.
    begun: AtomicU64,
}

impl Default for DiskClock {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { started: Instant::now(), writes: zero(), total_ns: zero(), begun: zero() }
    }
}

impl DiskClock {
    /// Measures a write.
    pub(crate) fn write<T>(&self, write: impl FnOnce() -> T) -> T {
        let begun = self.now_ns();
        let written = self.wait(write);
        self.total_ns.fetch_add(self.now_ns() - begun, Ordering::Relaxed);
        self.writes.fetch_add(1, Ordering::Relaxed);
        written
    }

    /// Calls `work`, which waits for the disk and does not write. Other threads can see the wait
    /// while it lasts. It ends when `work` returns or panics.
    pub fn wait<T>(&self, work: impl FnOnce() -> T) -> T {
        let begun = self.now_ns() + 1;
        let is_first =
            self.begun.compare_exchange(0, begun, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        // Of two waits at a time the longer one counts.
        let _wait = is_first.then_some(Wait(&self.begun));
        work()
    }

    /// Returns the times up to now.
    #[must_use]
    pub fn times(&self) -> DiskTimes {
        let begun = self.begun.load(Ordering::Relaxed).checked_sub(1);
        let waiting = begun.map(|begun| Duration::from_nanos(self.now_ns().saturating_sub(begun)));
        DiskTimes {
            writes: self.writes.load(Ordering::Relaxed),
            total: Duration::from_nanos(self.total_ns.load(Ordering::Relaxed)),
            waiting,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The wait that is shown.
struct Wait<'a>(&'a AtomicU64);

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_can_be_seen_and_only_writes_are_counted() {
        let clock = DiskClock::default();
        clock.wait(|| assert!(clock.times().waiting.is_some()));
        assert_eq!(clock.times(), DiskTimes::default());
        clock.write(|| assert!(clock.times().waiting.is_some()));
        let times = clock.times();
        assert_eq!((times.writes, times.waiting), (1, None));
    }

    #[test]
    fn a_panic_ends_the_wait() {
        let clock = DiskClock::default();
        let panics = || clock.wait(|| panic!("a damaged page"));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
        assert!(panicked.is_err());
        assert_eq!(clock.times().waiting, None);
    }
}
