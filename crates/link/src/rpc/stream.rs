//! The two halves of a stream that carries messages. A half that is dropped before its end tells
//! the peer that it was given up.

use bytes::{Buf, Bytes, BytesMut};
use quinn::{ReadError, RecvStream, SendStream, WriteError};
use spillway_codec::{DecodeError, EncodeError, FrameHeader, HEADER_BYTES, Wire};
use thiserror::Error;

use crate::code::StreamCode;

/// A message could not be sent or received; the stream is of no more use.
#[derive(Debug, Error)]
pub enum StreamFault {
    /// The peer gave the stream up.
    #[error("the peer gave up: {0:?}")]
    GivenUp(StreamCode),
    /// The connection is lost.
    #[error("the connection is lost")]
    Lost,
    /// The stream ended inside a message.
    #[error("the stream ended inside a message")]
    CutOff,
    /// What came is no such message.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The message can't be sent to anybody.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// The half that this node writes.
#[derive(Debug)]
pub struct StreamSender {
    stream: SendStream,
    /// Whether nothing has to be said to the peer if this is dropped.
    is_settled: bool,
}

impl StreamSender {
    pub(crate) fn new(stream: SendStream) -> Self {
        Self { stream, is_settled: false }
    }

    /// Sends one message; waits while the path is full.
    ///
    /// # Errors
    /// If it is too long, or nobody reads any more.
    pub async fn message<T: Wire>(&mut self, message: &T) -> Result<(), StreamFault> {
        let mut frame = spillway_codec::encode(message)?;
        while !frame.is_empty() {
            self.some(&mut frame).await?;
        }
        Ok(())
    }

    /// Sends the beginning of `bytes` and takes it off, as much as there is room for. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// If nobody reads any more.
    pub async fn some(&mut self, bytes: &mut Bytes) -> Result<(), StreamFault> {
        let written = self.stream.write(bytes).await.map_err(|error| match error {
            WriteError::Stopped(code) => StreamFault::GivenUp(StreamCode::from_number(code)),
            _ => StreamFault::Lost,
        })?;
        bytes.advance(written);
        Ok(())
    }

    /// Ends the half properly; what was written still goes out.
    pub fn finish(&mut self) {
        self.is_settled = true;
        // An error means that the peer has stopped the stream, and then nobody waits for an end.
        let _ = self.stream.finish();
    }

    /// Takes back what has not arrived, also of a half that was ended: else the connection sends it
    /// again for as long as it lives, and what a partition held up arrives after it.
    pub fn take_back(&mut self) {
        self.is_settled = true;
        // An error means that all of it has arrived, or that the peer has stopped the stream.
        let _ = self.stream.reset(StreamCode::Cancelled.number());
    }

    /// Lets what is sent here go before (greater) or after (less) other streams.
    pub fn set_priority(&self, priority: i32) {
        // An error means that the stream has ended; the next write will say so.
        let _ = self.stream.set_priority(priority);
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        // Quinn would end the stream as if all had been sent.
        if !self.is_settled {
            self.take_back();
        }
    }
}

/// The half that the peer writes.
#[derive(Debug)]
pub struct StreamReceiver {
    stream: RecvStream,
    /// What was read and not yet used.
    buffer: BytesMut,
    /// Whether the peer has ended its half.
    is_ended: bool,
}

impl StreamReceiver {
    pub(crate) fn new(stream: RecvStream) -> Self {
        Self { stream, buffer: BytesMut::new(), is_ended: false }
    }

    /// Reads one message, `None` at the end of the stream. Not more is kept than a message may
    /// have and one chunk. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If what comes is no `T`, or the peer or the connection gave up.
    pub async fn message<T: Wire>(&mut self) -> Result<Option<T>, StreamFault> {
        while self.buffer.len() < HEADER_BYTES {
            if !self.fill().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(StreamFault::CutOff) };
            }
        }
        let mut head = [0; HEADER_BYTES];
        head.copy_from_slice(&self.buffer[..HEADER_BYTES]);
        let header = FrameHeader::parse(&head)?;
        let bytes = HEADER_BYTES + header.admit::<T>()?;
        while self.buffer.len() < bytes {
            if !self.fill().await? {
                return Err(StreamFault::CutOff);
            }
        }
        let frame = self.buffer.split_to(bytes);
        Ok(Some(header.open(&frame[HEADER_BYTES..])?))
    }

    /// Reads exactly so many bytes that are no message. They are kept as they come, never
    /// reserved by what was announced. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`Self::message`].
    pub async fn exactly(&mut self, bytes: usize) -> Result<Bytes, StreamFault> {
        while self.buffer.len() < bytes {
            if !self.fill().await? {
                return Err(StreamFault::CutOff);
            }
        }
        Ok(self.buffer.split_to(bytes).freeze())
    }

    /// Reads more; `false` at the end.
    async fn fill(&mut self) -> Result<bool, StreamFault> {
        if self.is_ended {
            return Ok(false);
        }
        let chunk =
            self.stream.read_chunk(usize::MAX, true).await.map_err(|error| match error {
                ReadError::Reset(code) => StreamFault::GivenUp(StreamCode::from_number(code)),
                _ => StreamFault::Lost,
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
            // An error means that it has ended already.
            let _ = self.stream.stop(StreamCode::Cancelled.number());
        }
    }
}
