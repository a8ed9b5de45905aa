//! Connections of one worker to one replica that wait for requests.

use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use crate::http1::{Http1Connection, NotUsable};
use crate::line::LineKind;
use crate::shared_connections::SharedConnections;

/// Most idle connections per worker and replica; further ones are closed after use.
const IDLE_MAX: usize = 512;

/// Connections of a worker to one replica. Lock-free: only its own worker uses it, except with the
/// "shared" worker layout.
#[derive(Debug)]
pub struct Pool {
    /// Idle connections, first in, first out, so that a sweep meets the oldest first.
    idle: ArrayQueue<Box<Http1Connection>>,
    http2: SharedConnections,
    /// HTTP/2 connections to the separate address for gRPC, if there is one.
    grpc: SharedConnections,
}

/// A replica sent bytes that no request had asked for on a kept connection, which is closed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnaskedBytes;

impl Pool {
    /// Returns an empty pool for at most `in_flight_max` requests at a time.
    pub fn new(in_flight_max: u32) -> Self {
        let places = usize::try_from(in_flight_max).unwrap_or(IDLE_MAX).clamp(1, IDLE_MAX);
        Self {
            idle: ArrayQueue::new(places),
            http2: SharedConnections::default(),
            grpc: SharedConnections::default(),
        }
    }

    /// Takes an idle HTTP/1.1 connection that is usable; `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if a connection had bytes that belong to no request: the others can't be
    /// trusted either.
    pub fn take(
        &self,
        idle_max: Duration,
        now: Instant,
    ) -> Result<Option<Box<Http1Connection>>, UnaskedBytes> {
        while let Some(mut connection) = self.idle.pop() {
            if connection.idle_for(now) < idle_max && is_usable(connection.check_idle())? {
                return Ok(Some(connection));
            }
        }
        Ok(None)
    }

    /// Keeps a connection whose reply has ended, if it can serve again.
    ///
    /// # Errors
    /// Returns an error if more came than the reply.
    pub fn put(
        &self,
        mut connection: Box<Http1Connection>,
        now: Instant,
    ) -> Result<(), UnaskedBytes> {
        if is_usable(connection.becomes_idle(now))? {
            // A full pool returns the connection, and dropping it closes it.
            drop(self.idle.push(connection));
        }
        Ok(())
    }

    /// Returns the worker's HTTP/2 connections for this kind of line.
    pub fn shared(&self, kind: LineKind) -> &SharedConnections {
        match kind {
            LineKind::Http1 | LineKind::Http2 => &self.http2,
            LineKind::Grpc => &self.grpc,
        }
    }

    /// Closes all idle HTTP/1.1 connections.
    pub fn close_idle(&self) {
        while let Some(connection) = self.idle.pop() {
            drop(connection);
        }
    }

    /// Closes connections that were idle for `idle_max`, that the server closed, or that lead to an
    /// address that the replica's name no longer has. Requests on a shared one finish undisturbed.
    ///
    /// # Errors
    /// Returns an error if a connection had bytes that belong to no request.
    pub fn sweep(&self, idle_max: Duration, now: Instant) -> Result<(), UnaskedBytes> {
        self.http2.sweep(idle_max, now);
        self.grpc.sweep(idle_max, now);
        // Each connection is taken out once, and put back if it is kept.
        for _ in 0..self.idle.len() {
            let Some(mut connection) = self.idle.pop() else { break };
            if connection.idle_for(now) < idle_max && is_usable(connection.check_idle())? {
                drop(self.idle.push(connection));
            }
        }
        Ok(())
    }
}

fn is_usable(checked: Result<(), NotUsable>) -> Result<bool, UnaskedBytes> {
    match checked {
        Ok(()) => Ok(true),
        Err(NotUsable::Over) => Ok(false),
        Err(NotUsable::Unasked) => Err(UnaskedBytes),
    }
}
