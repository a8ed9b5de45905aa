//! HTTP/1.1 connection that the request itself drives.
//!
//! hyper's connection future is usually spawned as a task. Then every piece of a reply crosses from
//! that task to the request's, and each token gets a write of its own: measured at 1.6 times the
//! CPU on saturated streams. Here the request polls the connection itself.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;

use crate::connection::body::OutboundBody;
use crate::connection::error::AttemptError;
use crate::connection::guarded_stream::{GuardedStream, HeadRoom};
use crate::connection::news::WakeFlag;
use crate::connection_count::ConnectionCount;
use crate::stream::Stream;
use crate::wake;

/// Next frame of a body, as a poll returns it.
type NextFrame<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

type Driver = http1::Connection<TokioIo<GuardedStream>, OutboundBody>;

/// HTTP/1.1 connection, idle or with the one request that it serves.
///
/// Dropping it closes the socket, which tells a replica that a request was abandoned.
#[derive(Debug)]
pub struct Http1Connection {
    sender: SendRequest<OutboundBody>,
    driver: Driver,
    driver_ended: bool,
    news: WakeFlag,
    head_room: HeadRoom,
    idle_since: Instant,
    _count: ConnectionCount,
}

impl Http1Connection {
    /// Takes over a connected stream.
    ///
    /// # Errors
    /// Returns an error if hyper refuses the stream, which it has no reason to.
    pub async fn new(stream: Stream, count: ConnectionCount) -> Result<Self, AttemptError> {
        let head_room = HeadRoom::new();
        let stream = GuardedStream::http1(stream, head_room.clone());
        // Nothing was sent yet, so after a failure another attempt is safe.
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| AttemptError::of_exchange(error, true))?;
        let idle_since = wake::now();
        Ok(Self {
            sender,
            driver,
            driver_ended: false,
            news: WakeFlag::new(),
            head_room,
            idle_since,
            _count: count,
        })
    }

    /// Sends the request and waits for the reply's head.
    ///
    /// Dropping the returned future leaves the connection unusable: drop it too.
    ///
    /// # Errors
    /// Returns an error if the connection breaks or the reply is malformed.
    pub async fn exchange(
        &mut self,
        request: Request<OutboundBody>,
    ) -> Result<Response<Incoming>, AttemptError> {
        let Self { sender, driver, driver_ended, news, head_room, .. } = self;
        // An idle connection was polled without the gate's waker.
        news.expect();
        head_room.begin();
        let mut reply = pin!(sender.try_send_request(request));
        let response = poll_fn(|cx| {
            news.poll(cx, |cx| {
                // The driver writes the request and reads the head, which readies the reply.
                drive(driver, driver_ended, cx);
                reply.as_mut().poll(cx)
            })
        })
        .await
        .map_err(|mut failed| {
            let unsent = failed.take_message().is_some();
            AttemptError::of_exchange(failed.into_error(), unsent)
        })?;
        head_room.end();
        Ok(response)
    }

    /// Returns true if a failed exchange left part of a reply's head behind, or got informational
    /// replies only.
    pub fn saw_bytes(self) -> bool {
        self.head_room.is_used_up() || !self.driver.into_parts().read_buf.is_empty()
    }

    /// Polls the next piece of the reply that the last exchange began.
    pub fn poll_body<B: Body + Unpin>(
        &mut self,
        body: &mut B,
        cx: &Context<'_>,
    ) -> Poll<NextFrame<B>> {
        let Self { driver, driver_ended, news, .. } = self;
        news.poll(cx, |cx| {
            // The first poll tells the connection that the body is wanted.
            let first = Pin::new(&mut *body).poll_frame(cx);
            if first.is_ready() {
                return first;
            }
            drive(driver, driver_ended, cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
    }

    /// Marks the connection as idle after the last byte of a reply; returns true if it can serve
    /// another request.
    pub fn becomes_idle(&mut self, now: Instant) -> bool {
        self.idle_since = now;
        self.is_usable()
    }

    /// Returns true if a request can be sent now: the server has not closed, and no bytes are left
    /// over.
    pub fn is_usable(&mut self) -> bool {
        // Nobody waits: the poll shows if the server has closed, or sent bytes that nobody asked
        // for.
        let mut nobody = Context::from_waker(Waker::noop());
        drive(&mut self.driver, &mut self.driver_ended, &mut nobody);
        !self.driver_ended && self.sender.is_ready()
    }

    /// Returns the time without a request at `now`.
    pub fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.idle_since)
    }
}

/// Moves bytes between the socket and the current exchange.
fn drive(driver: &mut Driver, has_ended: &mut bool, cx: &mut Context<'_>) {
    if !*has_ended {
        *has_ended = Pin::new(driver).poll(cx).is_ready();
    }
}
