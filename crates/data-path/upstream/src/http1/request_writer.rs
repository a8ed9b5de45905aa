//! Writes a request: its head, and its body with a length or in chunks.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::request::Parts;
use http::{HeaderMap, Method, Request, header};
use http_body::Body;
use smallvec::SmallVec;
use spillway_transport::Stream;
use tokio::io::AsyncWrite;

use crate::body::OutboundBody;
use crate::http1::error::Http1Error;

/// Most slices of one write besides the head.
const SLICES_MAX: usize = 64;
/// Room for a head without unusual fields, bytes.
const HEAD_BYTES: usize = 768;

/// A request that is being sent.
#[derive(Debug, Default)]
pub(super) struct RequestWriter {
    /// Head, in memory that all requests of the connection use.
    head: Vec<u8>,
    /// Bytes of the head that are written.
    head_written: usize,
    /// Bytes to be written behind the head.
    queue: VecDeque<Bytes>,
    /// Body that comes while it is sent; `None` if all of it is in the queue.
    body: Option<OutboundBody>,
    /// Bytes of that body that are to come; `None` if it is sent in chunks.
    announced: Option<u64>,
    /// True if written bytes may wait in the stream's own buffer.
    is_unflushed: bool,
    has_written: bool,
    was_given_up: bool,
}

impl RequestWriter {
    /// Begins with `request`, of which nothing is written yet. Returns its map of fields, now empty.
    pub(super) fn begin(&mut self, request: Request<OutboundBody>) -> HeaderMap {
        let (mut head, body) = request.into_parts();
        self.queue.clear();
        self.has_written = false;
        self.was_given_up = false;
        // A body that has ended needs no chunks, even if it never reported its length.
        self.announced = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
        self.head.clear();
        self.head_written = 0;
        write_head(&mut self.head, &head, self.announced);
        self.body = None;
        match body {
            // A write of nothing would look like a stream that takes no more.
            OutboundBody::Buffered { slices, .. } => {
                self.queue.extend(slices.into_iter().filter(|slice| !slice.is_empty()));
            }
            body => self.body = Some(body).filter(|body| !body.is_end_stream()),
        }
        head.headers.clear();
        head.headers
    }

    /// Gives up what was not written yet.
    pub(super) fn give_up(&mut self) {
        self.head_written = self.head.len();
        self.queue.clear();
        self.body = None;
        self.is_unflushed = false;
        self.was_given_up = true;
    }

    /// Returns true if the replica has got the whole request.
    pub(super) fn is_complete(&self) -> bool {
        self.is_done() && !self.was_given_up
    }

    /// Returns true if nothing more is to be written.
    pub(super) fn is_done(&self) -> bool {
        !self.has_bytes() && self.body.is_none() && !self.is_unflushed
    }

    fn has_bytes(&self) -> bool {
        self.head_written < self.head.len() || !self.queue.is_empty()
    }

    /// Returns true if the replica may have got a part of the request.
    pub(super) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Writes as much as there is and the stream takes; ready once all is written.
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Http1Error>> {
        loop {
            while self.has_bytes() {
                ready!(self.poll_write(stream, cx)).map_err(Http1Error::Socket)?;
            }
            if self.is_unflushed {
                ready!(Pin::new(&mut *stream).poll_flush(cx)).map_err(Http1Error::Socket)?;
                self.is_unflushed = false;
            }
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Requests have no trailers.
                    if let Ok(piece) = frame.into_data() {
                        self.push(piece)?;
                    }
                }
                Some(Err(error)) => return Poll::Ready(Err(Http1Error::Body(Box::new(error)))),
                None => self.end()?,
            }
        }
    }

    fn poll_write(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut written = {
            let head = &self.head[self.head_written..];
            let body = self.queue.iter().take(SLICES_MAX).map(|piece| &**piece);
            let parts = std::iter::once(head).filter(|head| !head.is_empty()).chain(body);
            let slices: SmallVec<[IoSlice<'_>; 8]> = parts.map(IoSlice::new).collect();
            ready!(Pin::new(stream).poll_write_vectored(cx, &slices))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.has_written = true;
        self.is_unflushed = true;
        let of_head = written.min(self.head.len() - self.head_written);
        self.head_written += of_head;
        written -= of_head;
        while let Some(first) = self.queue.front_mut() {
            if first.len() > written {
                first.advance(written);
                break;
            }
            written -= first.len();
            self.queue.pop_front();
        }
        Poll::Ready(Ok(()))
    }

    /// Takes a piece of the body.
    fn push(&mut self, piece: Bytes) -> Result<(), Http1Error> {
        // A chunk of no bytes would end the body.
        if piece.is_empty() {
            return Ok(());
        }
        match &mut self.announced {
            // More would be taken for the next request.
            Some(left) => {
                let left_then = left.checked_sub(piece.len() as u64);
                *left = left_then.ok_or(Http1Error::BodyLength)?;
                self.queue.push_back(piece);
            }
            None => {
                self.queue.push_back(Bytes::from(format!("{:x}\r\n", piece.len())));
                self.queue.push_back(piece);
                self.queue.push_back(Bytes::from_static(b"\r\n"));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Http1Error> {
        self.body = None;
        match self.announced {
            Some(0) => Ok(()),
            Some(_) => Err(Http1Error::BodyLength),
            None => {
                self.queue.push_back(Bytes::from_static(b"0\r\n\r\n"));
                Ok(())
            }
        }
    }
}

/// Writes the head. `length` is that of the body; without it the body goes in chunks.
fn write_head(bytes: &mut Vec<u8>, head: &Parts, length: Option<u64>) {
    bytes.reserve(HEAD_BYTES);
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    for part in [head.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        bytes.extend_from_slice(part.as_bytes());
    }
    let mut has_cookies = false;
    for (name, value) in &head.headers {
        // How the body is sent is decided here alone.
        if name == header::CONTENT_LENGTH || name == header::TRANSFER_ENCODING {
            continue;
        }
        if name == header::COOKIE {
            if !std::mem::replace(&mut has_cookies, true) {
                write_cookies(bytes, &head.headers);
            }
            continue;
        }
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    match length {
        // Only of methods that have a body the length is missed (RFC 9110, section 8.6).
        Some(0) if !has_body(&head.method) => {}
        Some(length) => {
            // Writing to memory can't fail.
            let _infallible = write!(bytes, "content-length: {length}\r\n");
        }
        None => bytes.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    bytes.extend_from_slice(b"\r\n");
}

/// Writes all cookies as one line. Clients of HTTP/2 send each in a field of its own, of which servers
/// of HTTP/1.1 may read the first or the last alone (RFC 9113, section 8.2.3).
fn write_cookies(bytes: &mut Vec<u8>, headers: &HeaderMap) {
    for (number, cookies) in headers.get_all(header::COOKIE).iter().enumerate() {
        bytes.extend_from_slice(if number == 0 { b"cookie: " } else { b"; " });
        bytes.extend_from_slice(cookies.as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
}

fn has_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}
