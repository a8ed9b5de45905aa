//! Rest of a request's body that the gateway does not need, such as that of a refused upload.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use http_body::Body;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body_limits::{REST_FAREWELL_TIME, REST_SILENCE_MAX, REST_TIME_MAX};

/// Treatment of a body that is not read to its end, by the protocol of its connection. Many clients
/// read their reply only after the last byte of their upload, so the rest must be read, or they lose
/// the reply.
#[derive(Clone, Debug)]
pub enum UnreadBody {
    /// HTTP/1.1: true while a part of the last request's body is unread. The connection can serve no
    /// other request then. It reads the rest at its end, since an immediate close would reset it.
    Http1(Arc<AtomicBool>),
    /// HTTP/2: the rest is read while the connection serves other requests. An immediate reset of
    /// the stream is allowed after a whole reply (RFC 9113, section 8.1), but some clients fail at
    /// it, such as curl 7.88 and httpx 0.28.
    Http2(Arc<RestReader>),
}

/// Reads and discards the rests of bodies over HTTP/2, within limits.
#[derive(Debug)]
pub struct RestReader {
    /// Tasks that read.
    tasks: TaskTracker,
    draining: CancellationToken,
    /// Most bytes of one rest.
    bytes_max: u64,
}

impl Default for UnreadBody {
    fn default() -> Self {
        Self::Http1(Arc::default())
    }
}

impl UnreadBody {
    /// Returns true if a part of the last request's body is unread; false over HTTP/2, where it
    /// concerns no other request.
    pub fn is_left(&self) -> bool {
        match self {
            // Relaxed accesses suffice: nothing is published through the flag.
            Self::Http1(is_left) => is_left.load(Ordering::Relaxed),
            Self::Http2(_) => false,
        }
    }

    /// Notes if a part of a body is unread.
    pub(crate) fn note(&self, is_unread: bool) {
        match self {
            Self::Http1(is_left) => is_left.store(is_unread, Ordering::Relaxed),
            Self::Http2(_) => {}
        }
    }

    /// Takes over a body that nothing else reads any more.
    pub(crate) fn take_rest(&self, rest: Incoming) {
        match self {
            // The connection reads it.
            Self::Http1(_) => {}
            Self::Http2(reader) => reader.discard(rest),
        }
    }
}

impl RestReader {
    /// Returns a reader of at most `bytes_max` bytes of each rest. Its tasks are tracked by `tasks`,
    /// and end soon after `draining`.
    #[must_use]
    pub fn new(tasks: &TaskTracker, draining: &CancellationToken, bytes_max: u64) -> Self {
        Self { tasks: tasks.clone(), draining: draining.clone(), bytes_max }
    }

    fn discard(self: &Arc<Self>, mut rest: Incoming) {
        // The rest of a stream that its client has reset is over. A wake-up is not lost: the task
        // polls again.
        let first = Pin::new(&mut rest).poll_frame(&mut Context::from_waker(Waker::noop()));
        let is_over = matches!(first, Poll::Ready(None | Some(Err(_))));
        // Without a runtime the process ends.
        if let Ok(runtime) = Handle::try_current()
            && !is_over
        {
            self.tasks.spawn_on(Arc::clone(self).read(rest), &runtime);
        }
    }

    async fn read(self: Arc<Self>, mut rest: Incoming) {
        let reading = async {
            let mut bytes = 0;
            while bytes <= self.bytes_max {
                let next = poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx));
                let Ok(Some(Ok(frame))) = timeout(REST_SILENCE_MAX, next).await else { break };
                bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            }
        };
        let drained = async {
            self.draining.cancelled().await;
            sleep(REST_FAREWELL_TIME).await;
        };
        tokio::select! {
            () = reading => {}
            () = drained => {}
            () = sleep(REST_TIME_MAX) => {}
        }
    }
}
