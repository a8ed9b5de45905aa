//! HTTP/1.1 to a replica, driven by the request itself.
//!
//! A connection serves one request at a time, so that request can poll it: nothing is spawned, and
//! no piece of a reply crosses from one task to another. All bytes that have arrived by a wake-up
//! are handed over as one piece, however the replica cut them into chunks. hyper's client hands
//! over each chunk separately, and each chunk has to pass the relay and be written to the client.
//! With it, a saturated stream took two writes for each read.

mod body_decoder;
#[cfg(test)]
mod body_decoder_test;
mod error;
#[cfg(test)]
mod http1_test;
mod reply_head;
#[cfg(test)]
mod reply_head_test;
mod request_writer;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use spillway_resolver::ConnectionAddress;
use spillway_transport::{Received, Stream, coarse_clock};
use tokio::io::AsyncReadExt;

use crate::body::OutboundBody;
use crate::connection_count::ConnectionCount;
use crate::error::AttemptError;
use crate::http1::body_decoder::{BodyDecoder, BodyRead};
use crate::http1::reply_head::{ReplyHead, take_head};
use crate::http1::request_writer::RequestWriter;

pub use error::Http1Error;
pub(crate) use reply_head::plain_length;

/// Most bytes that a replica may send until the head of its reply is complete, informational replies
/// (1xx) included; also of trailers.
pub(crate) const HEAD_BYTES_MAX: usize = 512 << 10;
/// Room for the first read.
const READ_BYTES_MIN: usize = 8 << 10;
/// Most room for a read.
const READ_BYTES_MAX: usize = 64 << 10;

/// HTTP/1.1 connection, idle or with the one request that it serves. With a request it is the body
/// of the reply.
///
/// Dropping it closes the socket, which shows the replica that a request was abandoned.
#[derive(Debug)]
pub struct Http1Connection {
    stream: Stream,
    address: ConnectionAddress,
    /// Bytes that were read and not handed over.
    buffer: BytesMut,
    /// Room for the next read; it follows what reads bring.
    read_bytes: usize,
    request: RequestWriter,
    method: Method,
    /// Map of the request's fields, emptied for those of the reply.
    spare: HeaderMap,
    reply: BodyDecoder,
    keeps_alive: bool,
    /// Fault of the client's part, to be returned after what has arrived of the reply.
    fault: Option<Http1Error>,
    idle_since: Instant,
    _count: ConnectionCount,
}

impl Http1Connection {
    /// Takes over a connected stream.
    pub fn new(stream: Stream, address: ConnectionAddress, count: ConnectionCount) -> Self {
        Self {
            stream,
            address,
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            request: RequestWriter::default(),
            method: Method::GET,
            spare: HeaderMap::new(),
            reply: BodyDecoder::Over,
            keeps_alive: true,
            fault: None,
            idle_since: coarse_clock::now(),
            _count: count,
        }
    }

    /// Sends the request and waits for the head of its reply, whose body is the connection.
    ///
    /// # Errors
    /// The returned future ends with an error if the connection breaks or the reply is malformed.
    pub fn exchange(
        mut self: Box<Self>,
        request: Request<OutboundBody>,
    ) -> impl Future<Output = Result<Response<Box<Self>>, AttemptError>> {
        self.method = request.method().clone();
        self.keeps_alive = false;
        // Begun here and not in the future, which so does not hold the request.
        self.spare = self.request.begin(request);
        async move {
            let mut read = HeadBytes::default();
            let head = poll_fn(|cx| self.poll_head(&mut read, cx)).await;
            let head = head.map_err(|error| {
                AttemptError::of_http1(error, !self.request.has_written(), read.all > 0)
            })?;
            self.reply = head.body;
            self.keeps_alive = head.keeps_alive;
            Ok(Response::from_parts(head.parts, self))
        }
    }

    fn poll_head(
        &mut self,
        read: &mut HeadBytes,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReplyHead, Http1Error>> {
        self.send(cx)?;
        loop {
            if read.may_be_whole(&self.buffer)
                && let Some(head) = take_head(&mut self.buffer, &self.method, &mut self.spare)?
            {
                if head.is_interim() {
                    read.parsed = 0;
                    continue;
                }
                return Poll::Ready(Ok(head));
            }
            read.parsed = self.buffer.len();
            if read.all > HEAD_BYTES_MAX {
                return Poll::Ready(Err(Http1Error::LongHead));
            }
            match ready!(self.poll_read(cx)) {
                Ok(0) => return Poll::Ready(Err(Http1Error::Closed)),
                Ok(bytes) => read.all += bytes,
                Err(error) => return Poll::Ready(Err(Http1Error::Socket(error))),
            }
        }
    }

    /// Writes as much of the request as there is and the socket takes.
    ///
    /// # Errors
    /// Returns an error if the client's part of the request failed.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Http1Error> {
        // Most requests are written by the time that their reply comes.
        if self.request.is_done() {
            return Ok(());
        }
        match self.request.poll(&mut self.stream, cx) {
            Poll::Ready(Err(error)) if error.is_of_client() => Err(error),
            Poll::Ready(Err(error)) => {
                // A replica may refuse a request before it has read all of it, and close. Then its
                // reply is worth more than this error.
                tracing::debug!(%error, "the rest of a request can't be sent");
                self.request.give_up();
                Ok(())
            }
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Less room would end a read early, and cost another.
        if self.buffer.capacity() - self.buffer.len() < self.read_bytes / 2 {
            self.buffer.reserve(self.read_bytes);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let read = ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(cx))?;
        self.read_bytes = match read {
            read if read == room => (self.read_bytes * 2).min(READ_BYTES_MAX),
            read if read < self.read_bytes / 4 => (self.read_bytes / 2).max(READ_BYTES_MIN),
            _ => self.read_bytes,
        };
        Poll::Ready(Ok(read))
    }

    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http1Error>>> {
        // A replica may reply before the upload ends: a fault of the rest must not hide that reply.
        if let Err(fault) = self.send(cx) {
            self.request.give_up();
            self.fault = Some(fault);
        }
        match self.poll_reply(cx) {
            Poll::Pending => match self.fault.take() {
                Some(fault) => Poll::Ready(Some(Err(fault))),
                None => Poll::Pending,
            },
            next @ Poll::Ready(_) => next,
        }
    }

    fn poll_reply(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http1Error>>> {
        loop {
            match self.reply.take(&mut self.buffer)? {
                BodyRead::Data(piece) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                BodyRead::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                BodyRead::End => return Poll::Ready(None),
                BodyRead::More => {}
            }
            match ready!(self.poll_read(cx)) {
                Ok(0) => self.reply.end()?,
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(Http1Error::Socket(error)))),
            }
        }
    }

    /// Marks the connection as idle after the last byte of a reply.
    ///
    /// # Errors
    /// Returns the reason if the connection can't serve another request.
    pub fn becomes_idle(&mut self, now: Instant) -> Result<(), NotUsable> {
        self.idle_since = now;
        if self.read_bytes > READ_BYTES_MIN && self.buffer.is_empty() {
            // Idle connections are many, and long replies few.
            self.read_bytes = READ_BYTES_MIN;
            self.buffer = BytesMut::new();
        }
        let is_over = self.request.is_complete() && self.reply.is_over();
        if is_over && Received::of_bytes(&self.buffer) == Received::Bytes {
            // They came with the last reply.
            return Err(NotUsable::Unasked);
        }
        let is_usable = is_over && self.keeps_alive && self.buffer.is_empty();
        if is_usable { Ok(()) } else { Err(NotUsable::Over) }
    }

    /// Checks that an idle connection can serve a request now: the server has neither closed it nor
    /// sent bytes, and the replica's name still has the server's address. Costs a system call.
    ///
    /// # Errors
    /// Returns the reason if the connection is of no more use.
    pub fn check_idle(&mut self) -> Result<(), NotUsable> {
        match self.stream.received() {
            Received::Nothing if self.address.is_current() => Ok(()),
            Received::Nothing | Received::End => Err(NotUsable::Over),
            Received::Bytes => Err(NotUsable::Unasked),
        }
    }

    /// Returns true if the server keeps the connection open after the reply.
    pub fn keeps_alive(&self) -> bool {
        self.keeps_alive
    }

    /// Returns the time without a request at `now`.
    pub fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.idle_since)
    }
}

/// Reason for which a connection can't serve another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUsable {
    /// The connection has ended, or ends with its last reply.
    Over,
    /// The server sent bytes that no request had asked for. They may be a reply that another request
    /// would get.
    Unasked,
}

/// Bytes that were read for a head.
#[derive(Debug, Default)]
struct HeadBytes {
    all: usize,
    /// Bytes of the buffer that were found to be no whole head.
    parsed: usize,
}

impl HeadBytes {
    /// Returns true unless `buffer` has too little for a head. Otherwise a head that comes byte by
    /// byte would be parsed again with each of them.
    fn may_be_whole(&self, buffer: &[u8]) -> bool {
        if self.parsed == 0 {
            return !buffer.is_empty();
        }
        let recent = &buffer[self.parsed.saturating_sub(2)..];
        recent.windows(2).any(|ends| ends == b"\n\n")
            || recent.windows(3).any(|ends| ends == b"\n\r\n")
    }
}

impl Body for Http1Connection {
    type Data = Bytes;
    type Error = Http1Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http1Error>>> {
        self.get_mut().poll_body(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.bytes_left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
