//! Streams of one HTTP/2 connection: how many are open, and how many its server takes.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use atomic_waker::AtomicWaker;
use spillway_transport::{FrameFacts, coarse_clock};

/// Streams that are opened before the server has named its limit, as many as the HTTP library opens.
const UNKNOWN_MAX: u32 = 100;

/// Streams of a connection, shared by its socket and its requests.
#[derive(Clone, Debug)]
pub(crate) struct StreamCount(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    open: AtomicU32,
    max: AtomicU32,
    /// True once the server has sent its settings, or the connection has ended.
    is_settled: AtomicBool,
    /// True once the server takes no more streams.
    is_leaving: AtomicBool,
    /// Milliseconds after `since` at which the last stream ended.
    idle_ms: AtomicU64,
    since: Instant,
    /// Task that waits for the settings.
    waiting: AtomicWaker,
}

/// A stream that counts as open until dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit(Arc<Counted>);

impl Default for StreamCount {
    fn default() -> Self {
        Self(Arc::new(Counted {
            open: AtomicU32::new(0),
            max: AtomicU32::new(UNKNOWN_MAX),
            is_settled: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            idle_ms: AtomicU64::new(0),
            since: coarse_clock::now(),
            waiting: AtomicWaker::new(),
        }))
    }
}

impl StreamCount {
    /// Counts one more stream; `None` if the server takes no more.
    pub(crate) fn open(&self) -> Option<StreamPermit> {
        if self.is_leaving() {
            return None;
        }
        let max = self.max();
        let more = |open: u32| (open < max).then(|| open + 1);
        self.0.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(StreamPermit(Arc::clone(&self.0)))
    }

    /// Counts the first stream of a new connection, even if the server takes none for now.
    pub(crate) fn open_first(&self) -> StreamPermit {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        StreamPermit(Arc::clone(&self.0))
    }

    /// Returns the most streams that the server takes at a time.
    pub(crate) fn max(&self) -> u32 {
        self.0.max.load(Ordering::Relaxed)
    }

    /// Returns true once the server takes no more streams.
    pub(crate) fn is_leaving(&self) -> bool {
        self.0.is_leaving.load(Ordering::Relaxed)
    }

    /// Takes over what the server's frames have shown.
    pub(crate) fn note(&self, facts: FrameFacts) {
        if facts.is_leaving {
            self.0.is_leaving.store(true, Ordering::Relaxed);
        }
        if let Some(max) = facts.streams_max {
            self.0.max.store(max, Ordering::Relaxed);
            self.settle();
        }
    }

    /// Notes that no settings will come any more, if none have come.
    pub(crate) fn settle(&self) {
        if !self.0.is_settled.swap(true, Ordering::Release) {
            self.0.waiting.wake();
        }
    }

    /// Waits for the server's settings, or the end of the connection.
    pub(crate) async fn settled(&self) {
        poll_fn(|cx| {
            self.0.waiting.register(cx.waker());
            let is_settled = self.0.is_settled.load(Ordering::Acquire);
            if is_settled { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Returns the time without a stream at `now`; `None` while there is one.
    pub(crate) fn idle_for(&self, now: Instant) -> Option<Duration> {
        if self.0.open.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let since = self.0.since + Duration::from_millis(self.0.idle_ms.load(Ordering::Relaxed));
        Some(now.saturating_duration_since(since))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let passed_ms = coarse_clock::since(self.0.since).as_millis();
        self.0.idle_ms.store(u64::try_from(passed_ms).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
