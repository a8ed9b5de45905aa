//! Subscriber's side of ZMTP 3.0 without security (RFC 23 and RFC 37 of the ZeroMQ project).
//!
//! Written by hand: a subscription is one handshake and then frames to read. The crate `zeromq` was
//! not taken. It brings more than twenty crates, has no limit to the length of a frame, and
//! reconnects by itself, which would hide that events were missed in between.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::read_room::ReadHold;

/// Length of the greeting of either side.
const GREETING_BYTES: usize = 64;
/// Length of signature and version: all of a greeting that is sent before the other side's version
/// is known to be 3.
const MECHANISM_AT: usize = 12;
/// Maximum length of one message, all its frames together: vLLM's largest batches have the tokens
/// of one step, at about four bytes each.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Maximum number of frames of one message. Events have three.
const FRAMES_MAX: usize = 8;
/// Most bytes of a PING that come back (ZMTP 3.1).
const CONTEXT_BYTES_MAX: usize = 16;
/// Smallest free room to read into.
const READ_BYTES: usize = 16 << 10;

/// Flags of a frame.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Message of several frames.
pub(crate) type Message = Vec<Bytes>;

/// Connection that is subscribed to everything its publisher sends.
#[derive(Debug)]
pub(crate) struct Subscription<S> {
    stream: S,
    frames: Frames,
    /// Room of the buffer, and of the last message until the next is read.
    hold: ReadHold,
}

/// Frames in bytes that arrive in pieces.
#[derive(Debug, Default)]
struct Frames {
    buffer: BytesMut,
    message: Message,
    /// Length of the frames in `message`.
    message_bytes: usize,
}

/// One thing that a peer sent.
#[derive(Debug, PartialEq)]
enum Received {
    Message(Message),
    Command(Bytes),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Subscription<S> {
    /// Greets a publisher and subscribes to all its topics. Has no time limit of its own.
    ///
    /// # Errors
    /// Returns an error if the connection fails, or the peer is no publisher without security.
    pub(crate) async fn open(mut stream: S) -> io::Result<Self> {
        stream.write_all(&greeting()).await?;
        let mut theirs = [0; GREETING_BYTES];
        stream.read_exact(&mut theirs).await?;
        let is_zmtp3 = theirs[0] == 0xff && theirs[9] & 1 == 1 && theirs[10] >= 3;
        if !is_zmtp3 || &theirs[MECHANISM_AT..MECHANISM_AT + 5] != b"NULL\0" {
            return Err(wrong("the peer does not speak ZMTP 3 without security"));
        }
        stream.write_all(&frame(COMMAND, b"\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB")).await?;
        let mut open = Self { stream, frames: Frames::default(), hold: ReadHold::default() };
        match open.receive().await? {
            Received::Command(ready) if ready.starts_with(b"\x05READY") => {}
            _ => return Err(wrong("the peer refused the subscription")),
        }
        // An empty topic matches all.
        open.stream.write_all(&frame(0, b"\x01")).await?;
        Ok(open)
    }

    /// Returns the next message. May be dropped before it is ready only with the connection.
    ///
    /// # Errors
    /// Returns an error if the connection ends, or what it sends is no message.
    pub(crate) async fn next(&mut self) -> io::Result<Message> {
        loop {
            match self.receive().await? {
                Received::Message(message) => return Ok(message),
                Received::Command(ping) if ping.starts_with(b"\x04PING") => {
                    // Two bytes of time to live; the rest comes back, of which there are 16 at most.
                    let context = ping.get(7..).unwrap_or_default();
                    let context = &context[..context.len().min(CONTEXT_BYTES_MAX)];
                    let pong = [b"\x04PONG", context].concat();
                    self.stream.write_all(&frame(COMMAND, &pong)).await?;
                }
                Received::Command(_) => {}
            }
        }
    }

    async fn receive(&mut self) -> io::Result<Received> {
        loop {
            if let Some(received) = self.frames.take()? {
                return Ok(received);
            }
            self.frames.buffer.reserve(READ_BYTES);
            if !self.hold.resize(self.frames.buffer.len() + self.frames.message_bytes) {
                return Err(wrong("too much is read of all replicas together"));
            }
            if self.stream.read_buf(&mut self.frames.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Frames {
    /// Takes the next whole message or command out of the bytes so far.
    fn take(&mut self) -> io::Result<Option<Received>> {
        loop {
            let Some(&flags) = self.buffer.first() else { return Ok(None) };
            if flags & !(MORE | LONG | COMMAND) != 0 {
                return Err(wrong("a frame has unknown flags"));
            }
            let head_bytes = if flags & LONG == 0 { 2 } else { 9 };
            let Some(head) = self.buffer.get(1..head_bytes) else { return Ok(None) };
            let length = head.iter().fold(0_u64, |length, byte| length << 8 | u64::from(*byte));
            let room = MESSAGE_BYTES_MAX - self.message_bytes;
            let Some(length) = usize::try_from(length).ok().filter(|length| *length <= room) else {
                return Err(wrong("a message is too long"));
            };
            if self.buffer.len() < head_bytes + length {
                return Ok(None);
            }
            self.buffer.advance(head_bytes);
            let body = self.buffer.split_to(length).freeze();
            if flags & COMMAND != 0 {
                return Ok(Some(Received::Command(body)));
            }
            self.message_bytes += length;
            self.message.push(body);
            if flags & MORE == 0 {
                self.message_bytes = 0;
                return Ok(Some(Received::Message(std::mem::take(&mut self.message))));
            }
            if self.message.len() >= FRAMES_MAX {
                return Err(wrong("a message has too many frames"));
            }
        }
    }
}

/// Returns the messages in these bytes up to the first fault, for tests and fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_messages(bytes: &[u8], piece_bytes: usize) -> Vec<Message> {
    let mut frames = Frames::default();
    let mut messages = Vec::new();
    for piece in bytes.chunks(piece_bytes.max(1)) {
        frames.buffer.extend_from_slice(piece);
        loop {
            match frames.take() {
                Ok(Some(Received::Message(message))) => messages.push(message),
                Ok(Some(Received::Command(_))) => {}
                Ok(None) => break,
                Err(_) => return messages,
            }
        }
    }
    messages
}

fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[MECHANISM_AT..MECHANISM_AT + 4].copy_from_slice(b"NULL");
    greeting
}

/// Returns a short frame: `body` has at most 255 bytes.
fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    debug_assert!(body.len() <= 255, "longer frames are not sent");
    let mut frame = vec![flags, body.len() as u8];
    frame.extend_from_slice(body);
    frame
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(flags: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u64).to_be_bytes();
        [&[flags | LONG], &length[..], body].concat()
    }

    #[test]
    fn messages_are_whole_however_their_bytes_are_cut() {
        let sent = [
            frame(MORE, b"topic"),
            frame(MORE, &[7; 8]),
            long(0, &[1; 300]),
            frame(COMMAND, b"\x04PING\0\0"),
            frame(0, b"one"),
        ]
        .concat();
        let whole: Vec<Message> = vec![
            vec![Bytes::from("topic"), Bytes::from(vec![7; 8]), Bytes::from(vec![1; 300])],
            vec![Bytes::from("one")],
        ];
        for piece_bytes in [1, 2, 3, 7, 64, 1_000] {
            assert_eq!(read_messages(&sent, piece_bytes), whole, "pieces of {piece_bytes}");
        }
    }

    #[test]
    fn a_length_or_a_number_of_frames_beyond_the_limit_ends_the_connection_before_it_is_kept() {
        let mut frames = Frames::default();
        frames.buffer.extend_from_slice(&[LONG, 0, 0, 0, 0, 0, 0x40, 0, 1]);
        assert!(frames.take().is_err(), "a byte more than 4 MiB");
        let mut frames = Frames::default();
        frames.buffer.extend_from_slice(&frame(MORE, b"x").repeat(FRAMES_MAX));
        assert!(frames.take().is_err());
        let mut frames = Frames::default();
        frames.buffer.extend_from_slice(&[0x80, 0]);
        assert!(frames.take().is_err(), "flags that no frame has");
    }

    #[tokio::test]
    async fn a_peer_that_is_no_publisher_is_refused() {
        for answer in [b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(3), [0xff; 64].to_vec()] {
            let (ours, mut theirs) = tokio::io::duplex(1_024);
            theirs.write_all(&answer).await.unwrap();
            assert!(Subscription::open(ours).await.is_err());
        }
    }
}
