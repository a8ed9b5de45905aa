//! HTTP/2 connections of one worker to one address, each shared by as many requests as the server
//! takes on it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::http2::{Http2Connection, OpenStream};

/// HTTP/2 connections of one worker to one address.
#[derive(Debug)]
pub struct SharedConnections {
    /// Oldest first: later ones take requests beyond the first one's limit, and become idle before
    /// it.
    open: ArcSwap<Vec<Http2Connection>>,
    /// Requests that wait for a stream.
    waiting: AtomicU32,
    /// Connections that requests are opening.
    opening: AtomicU32,
    /// Most streams that the server takes on a connection; `u32::MAX` while it is unknown.
    streams_max: AtomicU32,
    /// Notice that a connection was opened, or could not be.
    opened: Notify,
}

/// Result of looking for a stream.
#[derive(Debug)]
pub enum StreamOrTurn<'a> {
    /// A stream of a connection that was there.
    Stream(OpenStream),
    /// Turn to open a connection.
    Turn(OpeningTurn<'a>),
}

/// Turn of a request to open a connection, while others wait for the result.
#[derive(Debug)]
pub struct OpeningTurn<'a>(&'a SharedConnections);

/// A request that waits, until dropped.
struct WaitCount<'a>(&'a SharedConnections);

impl Default for SharedConnections {
    fn default() -> Self {
        Self {
            open: ArcSwap::default(),
            waiting: AtomicU32::new(0),
            opening: AtomicU32::new(0),
            streams_max: AtomicU32::new(u32::MAX),
            opened: Notify::new(),
        }
    }
}

impl SharedConnections {
    /// Takes a stream on the first connection that has room; `None` if none has.
    pub fn take(&self) -> Option<OpenStream> {
        self.open.load().iter().find_map(Http2Connection::open_stream)
    }

    /// Waits for a stream on a connection that others open, or for the turn to open one. Connections
    /// are opened side by side only as far as more requests wait than the others will take.
    pub async fn find(&self) -> StreamOrTurn<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = WaitCount(self);
        loop {
            let mut opened = pin!(self.opened.notified());
            // Registered first, or a connection that is opened in between would wake no request.
            opened.as_mut().enable();
            if let Some(stream) = self.take() {
                return StreamOrTurn::Stream(stream);
            }
            let order = Ordering::Relaxed;
            let (waiting, each) = (self.waiting.load(order), self.streams_max.load(order));
            let more = |opening: u32| {
                (opening == 0 || opening.saturating_mul(each) < waiting).then(|| opening + 1)
            };
            if self.opening.fetch_update(order, order, more).is_ok() {
                return StreamOrTurn::Turn(OpeningTurn(self));
            }
            opened.await;
        }
    }

    /// Returns a turn to open a connection, whatever the others do.
    pub fn turn(&self) -> OpeningTurn<'_> {
        self.opening.fetch_add(1, Ordering::Relaxed);
        OpeningTurn(self)
    }

    /// Returns the most streams that the server takes on a connection, as it last said; `None` without a
    /// connection.
    pub fn newest_max(&self) -> Option<u32> {
        self.open.load().last().map(Http2Connection::streams_max)
    }

    /// Lets go of connections that take no more requests, and of all but the first once they were idle
    /// for `idle_max`.
    pub fn sweep(&self, idle_max: Duration, now: Instant) {
        let open = self.open.load();
        if let Some(newest) = open.last() {
            self.streams_max.store(newest.streams_max(), Ordering::Relaxed);
        }
        let is_kept = |(number, connection): &(usize, &Http2Connection)| {
            let is_idle = *number > 0 && connection.idle_for(now) >= Some(idle_max);
            connection.is_usable() && !is_idle
        };
        if open.iter().enumerate().all(|numbered| is_kept(&numbered)) {
            return;
        }
        // A request that has just taken a stream keeps its connection until it ends.
        self.open.rcu(|open| {
            let kept = open.iter().enumerate().filter(is_kept);
            Arc::new(kept.map(|(_, connection)| connection.clone()).collect::<Vec<_>>())
        });
    }
}

impl OpeningTurn<'_> {
    /// Adds the connection that was opened, for other requests.
    pub fn add(self, connection: &Http2Connection) {
        self.0.streams_max.store(connection.streams_max(), Ordering::Relaxed);
        self.0.open.rcu(|open| {
            let usable = open.iter().filter(|connection| connection.is_usable());
            usable.chain([connection]).cloned().collect::<Vec<_>>()
        });
    }
}

impl Drop for OpeningTurn<'_> {
    fn drop(&mut self) {
        self.0.opening.fetch_sub(1, Ordering::Relaxed);
        self.0.opened.notify_waiters();
    }
}

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
