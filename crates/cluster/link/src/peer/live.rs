//! Live connection to a peer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Node that has dialled a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// This node.
    Us,
    /// The peer.
    Peer,
}

/// New connection on which both nodes have sent their hello.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) connection: quinn::Connection,
    /// Number of the peer's process at the other end.
    pub(crate) process: u64,
    /// Node that has dialled.
    pub(crate) origin: ConnectionOrigin,
}

/// Live connection to a peer.
#[derive(Debug)]
pub(crate) struct LiveConnection {
    pub(crate) connection: quinn::Connection,
    pub(crate) origin: ConnectionOrigin,
    /// True if the node with the lower name of the two has dialled the connection.
    pub(crate) by_lower: bool,
    pub(crate) since: Instant,
    /// Number that distinguishes the connections to one peer.
    pub(crate) serial: u64,
    /// Number of the peer's process at the other end.
    pub(crate) process: u64,
    streams: AtomicUsize,
}

impl LiveConnection {
    pub(super) fn new(arrival: Arrival, by_lower: bool, serial: u64) -> Self {
        let Arrival { connection, process, origin } = arrival;
        let (since, streams) = (Instant::now(), AtomicUsize::new(0));
        Self { connection, origin, by_lower, since, serial, process, streams }
    }

    /// Returns the number of requests open on the connection, in both directions.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    /// Decides which of two connections of one kind between the same nodes is used for new
    /// requests. Returns true if that is the newcomer. Both nodes decide alike without asking each
    /// other.
    ///
    /// A node dials only if it has no connection. So a connection that comes much later than the
    /// other means that its dialler has lost the other. Two connections at about the same time were
    /// dialled by both nodes, and then that of the lower name stays.
    pub(super) fn is_displaced_by(&self, newcomer: &Self, double: Duration) -> bool {
        // An old process can't have dialled after it ended.
        self.process != newcomer.process
            || displaced((self.since, self.by_lower), (newcomer.since, newcomer.by_lower), double)
    }
}

/// Returns true if the new connection is used; each is a time and true if the lower name dialled.
fn displaced(old: (Instant, bool), new: (Instant, bool), double: Duration) -> bool {
    let (since, by_lower) = old;
    let (new_since, new_by_lower) = new;
    new_since.saturating_duration_since(since) > double || new_by_lower || !by_lower
}

/// Number of requests open on a whole link, and a signal when it falls to 0.
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
            // Registered before the count is read, so that no notification is missed.
            let called = self.none.notified();
            if self.count() == 0 {
                return;
            }
            called.await;
        }
    }
}

/// Open request, which counts until the value is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    live: Arc<LiveConnection>,
    all: Arc<OpenStreams>,
}

impl OpenStream {
    pub(crate) fn on(live: &Arc<LiveConnection>, all: &Arc<OpenStreams>) -> Self {
        live.streams.fetch_add(1, Ordering::Relaxed);
        all.count.fetch_add(1, Ordering::AcqRel);
        Self { live: Arc::clone(live), all: Arc::clone(all) }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.live.streams.fetch_sub(1, Ordering::Relaxed);
        // The last open request wakes a shutdown that waits for it.
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
            // One side sees the lower name's connection first, the other side sees it second.
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
