//! Halves of a stream. A half that is dropped before its end informs the peer that it was given up,
//! so no half ends by mistake.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn::{ReadError, RecvStream, SendStream, StoppedError, VarInt, WriteError};
use spillway_codec::{DecodeError, FrameHeader, HEADER_BYTES, Wire};
use thiserror::Error;

use super::urgency::Urgency;
use crate::code::StreamCode;

/// Half of a stream that this node writes.
#[derive(Debug)]
pub(super) struct Sender {
    stream: SendStream,
    urgency: Urgency,
    rank: i32,
    /// Code for the peer if this half is dropped before its end; `None` once it has ended.
    if_dropped: Option<StreamCode>,
}

impl Sender {
    pub(super) fn new(stream: SendStream, if_dropped: StreamCode) -> Self {
        let mut sender = Self {
            stream,
            urgency: Urgency::new(Instant::now()),
            rank: 0,
            if_dropped: Some(if_dropped),
        };
        sender.rank_after(0);
        sender
    }

    /// Writes all `parts`; waits while the peer does not read or the path is full.
    pub(super) async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), WriteError> {
        self.rank_after(parts.iter().map(|part| part.len() as u64).sum());
        self.stream.write_all_chunks(parts).await
    }

    /// Ends the half properly; bytes that were written are still sent.
    pub(super) fn finish(&mut self) {
        self.if_dropped = None;
        // An error means that the peer has stopped the stream and does not wait for the end.
        let _ = self.stream.finish();
    }

    /// Gives the half up with `code`; bytes that were not sent yet are dropped.
    pub(super) fn abort(&mut self, code: StreamCode) {
        self.if_dropped = None;
        // An error means that the stream has ended already.
        let _ = self.stream.reset(code.number());
    }

    /// Waits until the peer gives the half up, has all of it, or is gone.
    pub(super) fn stopped(
        &self,
    ) -> impl Future<Output = Result<Option<VarInt>, StoppedError>> + Send + 'static {
        self.stream.stopped()
    }

    fn rank_after(&mut self, bytes: u64) {
        let rank = self.urgency.after(bytes, Instant::now());
        if rank != self.rank {
            self.rank = rank;
            // An error means that the stream has ended; the next write returns that error.
            let _ = self.stream.set_priority(rank);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // Without this, quinn would end the stream as if all had been sent.
        if let Some(code) = self.if_dropped {
            self.abort(code);
        }
    }
}

/// Half of a stream that the peer writes.
#[derive(Debug)]
pub(super) struct Receiver {
    stream: RecvStream,
    /// Bytes that were read and not used yet.
    chunk: Bytes,
    /// Code for the peer if this half is dropped before its end; `None` once it has ended.
    if_dropped: Option<StreamCode>,
}

/// Reason for which a message can't be read from a stream.
#[derive(Debug, Error)]
pub(super) enum MessageError {
    #[error("the stream ended inside a message")]
    CutOff,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl Receiver {
    pub(super) fn new(stream: RecvStream) -> Self {
        Self { stream, chunk: Bytes::new(), if_dropped: Some(StreamCode::Cancelled) }
    }

    /// Sets the code for the peer if this half is dropped before its end.
    pub(super) fn if_dropped(&mut self, code: StreamCode) {
        self.if_dropped = self.if_dropped.map(|_| code);
    }

    /// Polls for the next bytes; `None` at the end of the stream.
    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ReadError>> {
        if !self.chunk.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.chunk))));
        }
        // The future has no state between polls, because quinn keeps the waker by the stream's
        // number.
        let chunk = ready!(pin!(self.stream.read_chunk(usize::MAX, true)).poll(context));
        if !matches!(chunk, Ok(Some(_))) {
            self.if_dropped = None;
        }
        Poll::Ready(chunk.map(|chunk| chunk.map(|chunk| chunk.bytes)))
    }

    /// Reads one message. Buffers no more bytes than the message may have.
    pub(super) async fn message<T: Wire>(&mut self) -> Result<T, MessageError> {
        let mut head = [0; HEADER_BYTES];
        let bytes = self.exactly(HEADER_BYTES).await?;
        head.copy_from_slice(&bytes);
        let header = FrameHeader::parse(&head)?;
        let payload_bytes = header.admit::<T>()?;
        let payload = self.exactly(payload_bytes).await?;
        Ok(header.open(&payload)?)
    }

    async fn exactly(&mut self, bytes: usize) -> Result<Bytes, MessageError> {
        // The buffer grows with the bytes that come, not with the announced length.
        let mut gathered = BytesMut::new();
        while gathered.len() < bytes {
            let chunk = std::future::poll_fn(|context| self.poll_chunk(context)).await?;
            let mut chunk = chunk.ok_or(MessageError::CutOff)?;
            let part = chunk.split_to(chunk.len().min(bytes - gathered.len()));
            self.chunk = chunk;
            if gathered.is_empty() && part.len() == bytes {
                return Ok(part);
            }
            gathered.extend_from_slice(&part);
        }
        Ok(gathered.freeze())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(code) = self.if_dropped {
            // An error means that the stream has ended already.
            let _ = self.stream.stop(code.number());
        }
    }
}
