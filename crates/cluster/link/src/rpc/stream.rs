//! Halves of a stream that carries messages. A half that is dropped before its end informs the peer
//! that it was given up.

use bytes::{Buf, Bytes, BytesMut};
use quinn::{ReadError, RecvStream, SendStream, WriteError};
use spillway_codec::{DecodeError, EncodeError, FrameHeader, HEADER_BYTES, Wire};
use thiserror::Error;

use crate::code::StreamCode;

/// Reason for which a message could not be sent or received; the stream can't be used any more.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The peer gave the stream up.
    #[error("the peer gave up: {0:?}")]
    GivenUp(StreamCode),
    /// The connection is lost.
    #[error("the connection is lost")]
    Lost,
    /// The stream ended inside a message.
    #[error("the stream ended inside a message")]
    CutOff,
    /// The received bytes are not a valid message.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The message can't be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// Half of a stream that this node writes.
#[derive(Debug)]
pub struct StreamSender {
    stream: SendStream,
    /// True if the peer needs no notice when this half is dropped.
    is_settled: bool,
}

impl StreamSender {
    pub(crate) fn new(stream: SendStream) -> Self {
        Self { stream, is_settled: false }
    }

    /// Sends one message; waits while the path is full.
    ///
    /// # Errors
    /// Returns an error if the message is too long, the peer gave the stream up, or the connection
    /// is lost.
    pub async fn message<T: Wire>(&mut self, message: &T) -> Result<(), StreamError> {
        let mut frame = spillway_codec::encode(message)?;
        while !frame.is_empty() {
            self.some(&mut frame).await?;
        }
        Ok(())
    }

    /// Sends as many of `bytes` as there is room for and takes them off the front. A dropped future
    /// loses nothing.
    ///
    /// # Errors
    /// Returns an error if the peer gave the stream up, or the connection is lost.
    pub async fn some(&mut self, bytes: &mut Bytes) -> Result<(), StreamError> {
        let written = self.stream.write(bytes).await.map_err(|error| match error {
            WriteError::Stopped(code) => StreamError::GivenUp(StreamCode::from_number(code)),
            _ => StreamError::Lost,
        })?;
        bytes.advance(written);
        Ok(())
    }

    /// Ends the half properly; bytes that were written are still sent.
    pub fn finish(&mut self) {
        self.is_settled = true;
        // An error means that the peer has stopped the stream and does not wait for the end.
        let _ = self.stream.finish();
    }

    /// Withdraws bytes that have not arrived, even of a half that was ended. Otherwise the
    /// connection repeats them for as long as it lives, and they arrive late, after a partition.
    pub fn take_back(&mut self) {
        self.is_settled = true;
        // An error means that all bytes have arrived, or that the peer has stopped the stream.
        let _ = self.stream.reset(StreamCode::Cancelled.number());
    }

    /// Sets the priority of this half: a greater number is sent before other streams, a smaller one
    /// after them.
    pub fn set_priority(&self, priority: i32) {
        // An error means that the stream has ended; the next write returns that error.
        let _ = self.stream.set_priority(priority);
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        // Without this, quinn would end the stream as if all had been sent.
        if !self.is_settled {
            self.take_back();
        }
    }
}

/// Half of a stream that the peer writes.
#[derive(Debug)]
pub struct StreamReceiver {
    stream: RecvStream,
    /// Bytes that were read and not used yet.
    buffer: BytesMut,
    /// True if the peer has ended its half.
    is_ended: bool,
}

impl StreamReceiver {
    pub(crate) fn new(stream: RecvStream) -> Self {
        Self { stream, buffer: BytesMut::new(), is_ended: false }
    }

    /// Reads one message; `None` at the end of the stream. Buffers no more than one message and one
    /// chunk. A dropped future loses nothing.
    ///
    /// # Errors
    /// Returns an error if the message is no `T`, the peer gave the stream up, or the connection is
    /// lost.
    pub async fn message<T: Wire>(&mut self) -> Result<Option<T>, StreamError> {
        while self.buffer.len() < HEADER_BYTES {
            if !self.fill().await? {
                // A proper end comes only between two messages.
                return if self.buffer.is_empty() { Ok(None) } else { Err(StreamError::CutOff) };
            }
        }
        let mut head = [0; HEADER_BYTES];
        head.copy_from_slice(&self.buffer[..HEADER_BYTES]);
        let header = FrameHeader::parse(&head)?;
        let bytes = HEADER_BYTES + header.admit::<T>()?;
        while self.buffer.len() < bytes {
            if !self.fill().await? {
                return Err(StreamError::CutOff);
            }
        }
        let frame = self.buffer.split_to(bytes);
        Ok(Some(header.open(&frame[HEADER_BYTES..])?))
    }

    /// Reads exactly `bytes` bytes that are not a message. The buffer grows with the bytes that
    /// come, not with the announced length. A dropped future loses nothing.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::message`].
    pub async fn exactly(&mut self, bytes: usize) -> Result<Bytes, StreamError> {
        while self.buffer.len() < bytes {
            if !self.fill().await? {
                return Err(StreamError::CutOff);
            }
        }
        Ok(self.buffer.split_to(bytes).freeze())
    }

    /// Reads more bytes; returns false at the end.
    async fn fill(&mut self) -> Result<bool, StreamError> {
        if self.is_ended {
            return Ok(false);
        }
        let chunk =
            self.stream.read_chunk(usize::MAX, true).await.map_err(|error| match error {
                ReadError::Reset(code) => StreamError::GivenUp(StreamCode::from_number(code)),
                _ => StreamError::Lost,
            })?;
        match chunk {
            Some(chunk) => self.buffer.extend_from_slice(&chunk.bytes),
            None => self.is_ended = true,
        }
        Ok(!self.is_ended)
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        if !self.is_ended {
            // An error means that the stream has ended already.
            let _ = self.stream.stop(StreamCode::Cancelled.number());
        }
    }
}
