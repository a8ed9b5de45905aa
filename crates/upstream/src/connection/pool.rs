//! Connections of one worker to one replica that wait for requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use crossbeam_queue::ArrayQueue;

use crate::connection::http1::Http1Connection;
use crate::connection::http2::Http2Connection;
use crate::connection::line::LineKind;

/// Most idle connections per worker and replica; further ones are closed after use.
const IDLE_MAX: usize = 512;

/// Connections of a worker to one replica. Lock-free: only its own worker uses it, except with the
/// "shared" worker layout.
#[derive(Debug)]
pub struct Pool {
    /// Idle connections, first in, first out, so that a sweep meets the oldest first.
    idle: ArrayQueue<Box<Http1Connection>>,
    shared: ArcSwapOption<Http2Connection>,
    /// HTTP/2 connection to the separate address for gRPC, if there is one.
    grpc: ArcSwapOption<Http2Connection>,
}

impl Pool {
    /// Returns an empty pool for at most `in_flight_max` requests at a time.
    pub fn new(in_flight_max: u32) -> Self {
        let places = usize::try_from(in_flight_max).unwrap_or(IDLE_MAX).clamp(1, IDLE_MAX);
        Self {
            idle: ArrayQueue::new(places),
            shared: ArcSwapOption::empty(),
            grpc: ArcSwapOption::empty(),
        }
    }

    /// Takes an idle HTTP/1.1 connection that is usable; `None` if there is none.
    pub fn take(&self, idle_max: Duration, now: Instant) -> Option<Box<Http1Connection>> {
        while let Some(mut connection) = self.idle.pop() {
            if connection.idle_for(now) < idle_max && connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose reply has ended, if it can serve again.
    pub fn put(&self, mut connection: Box<Http1Connection>, now: Instant) {
        if connection.becomes_idle(now) {
            // A full pool returns the connection, and dropping it closes it.
            drop(self.idle.push(connection));
        }
    }

    /// Returns the worker's HTTP/2 connection, if it still takes requests.
    pub fn shared(&self, kind: LineKind) -> Option<Http2Connection> {
        let shared = self.place(kind).load();
        shared.as_deref().filter(|connection| connection.is_usable()).cloned()
    }

    /// Makes this connection the one that later requests share.
    pub fn share(&self, kind: LineKind, connection: Http2Connection) {
        self.place(kind).store(Some(Arc::new(connection)));
    }

    fn place(&self, kind: LineKind) -> &ArcSwapOption<Http2Connection> {
        match kind {
            LineKind::Http1 | LineKind::Http2 => &self.shared,
            LineKind::Grpc => &self.grpc,
        }
    }

    /// Closes connections that were idle for `idle_max` or that the server closed.
    pub fn sweep(&self, idle_max: Duration, now: Instant) {
        // Each connection is taken out once, and put back if it is kept.
        for _ in 0..self.idle.len() {
            let Some(mut connection) = self.idle.pop() else { return };
            if connection.idle_for(now) < idle_max && connection.is_usable() {
                drop(self.idle.push(connection));
            }
        }
    }
}
