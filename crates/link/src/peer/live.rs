//! A connection to a peer that stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Arrival;

/// Which of the two nodes has dialled a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This node.
    Us,
    /// The peer.
    Peer,
}

/// A connection to a peer that stands.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) connection: quinn::Connection,
    pub(crate) origin: Origin,
    /// Whether the one with the lower name of the two nodes has dialled it.
    pub(crate) by_lower: bool,
    pub(crate) since: Instant,
    /// Tells the connections of one peer apart.
    pub(crate) serial: u64,
    /// Which of the peer's processes it is to.
    pub(crate) process: u64,
    streams: AtomicUsize,
}

impl Live {
    pub(super) fn new(arrival: Arrival, by_lower: bool, serial: u64) -> Self {
        let Arrival { connection, process, origin } = arrival;
        let (since, streams) = (Instant::now(), AtomicUsize::new(0));
        Self { connection, origin, by_lower, since, serial, process, streams }
    }

    /// Requests open on it, either way.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Which of two connections of one kind between the same nodes is used for what is new: both
    /// nodes come to the same answer without asking each other.
    ///
    /// A node dials only if it has no connection. So one that comes much later than the other
    /// means that its dialler has lost that other; and two at about the same time were dialled by
    /// both, and then the lower name's stands.
    pub(super) fn is_displaced_by(&self, newcomer: &Self, double: Duration) -> bool {
        // The process before can't have dialled after it ended.
        self.process != newcomer.process
            || displaced((self.since, self.by_lower), (newcomer.since, newcomer.by_lower), double)
    }
}

fn displaced(old: (Instant, bool), new: (Instant, bool), double: Duration) -> bool {
    let (since, by_lower) = old;
    let (new_since, new_by_lower) = new;
    new_since.saturating_duration_since(since) > double || new_by_lower || !by_lower
}

/// How many requests are open on a whole link, and a call when there are none.
#[derive(Debug, Default)]
pub(crate) struct OpenStreams {
    count: AtomicUsize,
    none: Notify,
}

impl OpenStreams {
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Waits until no request is open.
    pub(crate) async fn none(&self) {
        loop {
            let called = self.none.notified();
            if self.count() == 0 {
                return;
            }
            called.await;
        }
    }
}

/// One open request: it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    live: Arc<Live>,
    all: Arc<OpenStreams>,
}

impl OpenStream {
    pub(crate) fn on(live: &Arc<Live>, all: &Arc<OpenStreams>) -> Self {
        live.streams.fetch_add(1, Ordering::Relaxed);
        all.count.fetch_add(1, Ordering::AcqRel);
        Self { live: Arc::clone(live), all: Arc::clone(all) }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.live.streams.fetch_sub(1, Ordering::Relaxed);
        if self.all.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all.none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_dialled_at_once_both_sides_keep_the_lower_names() {
        let double = Duration::from_secs(2);
        let start = Instant::now();
        for gap_ms in [0, 5, 300, 1_999] {
            let later = start + Duration::from_millis(gap_ms);
            // One side sees the lower's first, the other side sees it second.
            assert!(!displaced((start, true), (later, false), double), "gap {gap_ms}");
            assert!(displaced((start, false), (later, true), double), "gap {gap_ms}");
        }
    }

    #[test]
    fn a_much_later_one_displaces_since_its_dialler_has_lost_the_other() {
        let double = Duration::from_secs(2);
        let start = Instant::now();
        let later = start + Duration::from_secs(3);
        for (old, new) in [(true, false), (true, true), (false, false), (false, true)] {
            assert!(displaced((start, old), (later, new), double), "{old} {new}");
        }
    }

    #[test]
    fn of_two_by_the_same_dialler_the_newer_is_kept() {
        let start = Instant::now();
        let later = start + Duration::from_millis(10);
        for by_lower in [true, false] {
            assert!(displaced((start, by_lower), (later, by_lower), Duration::from_secs(2)));
        }
    }
}
