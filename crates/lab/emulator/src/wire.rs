//! Encoding of a reply's body: gzip, and cuts at random positions.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::time::Sleep;

/// Pause between two pieces of a body with a known length: without chunks of its own, only time
/// keeps the pieces apart.
const PIECE_PAUSE: Duration = Duration::from_millis(1);

/// Compressor of a stream whose events can be read at once.
pub(crate) struct EventCompressor {
    /// Encoder; `None` after the end of the stream.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl EventCompressor {
    pub(crate) fn new() -> Self {
        Self { encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }

    /// Returns the compressed form of an event. With `is_last`, the end of the stream follows it.
    pub(crate) fn compress(&mut self, event: &[u8], is_last: bool) -> io::Result<Bytes> {
        let Some(encoder) = &mut self.encoder else { return Ok(Bytes::new()) };
        encoder.write_all(event)?;
        if is_last {
            return self.finish();
        }
        // A sync flush: the bytes so far can be expanded without those that follow.
        encoder.flush()?;
        Ok(std::mem::take(encoder.get_mut()).into())
    }

    /// Returns the end of the stream; empty after the first call.
    pub(crate) fn finish(&mut self) -> io::Result<Bytes> {
        self.encoder.take().map_or(Ok(Bytes::new()), |encoder| encoder.finish().map(Bytes::from))
    }
}

/// Returns the compressed form of a whole body.
pub(crate) fn compress(body: &[u8]) -> io::Result<Bytes> {
    EventCompressor::new().compress(body, true)
}

/// Cutter of a body into pieces of random length.
pub(crate) struct Cutter {
    rng: fastrand::Rng,
    /// Bytes that are not sent yet.
    buffer: BytesMut,
    /// Pause after each piece; `None` lets the connection flush the piece, without a pause.
    pause: Option<Duration>,
    rest: Rest,
}

/// State between two pieces.
enum Rest {
    None,
    /// A piece was taken, and the connection must flush it before the next one.
    Flush,
    Pause(Pin<Box<Sleep>>),
}

impl Cutter {
    /// Creates a cutter for a stream.
    pub(crate) fn of_stream(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { rng, buffer: BytesMut::new(), pause: None, rest: Rest::None }
    }

    /// Creates a cutter for a body with a known length.
    pub(crate) fn of_whole(seed: u64) -> Self {
        Self { pause: Some(PIECE_PAUSE), ..Self::of_stream(seed) }
    }

    /// Adds bytes of the body.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the number of bytes that are not sent yet.
    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Returns true if a piece is due now, before the body is asked for more bytes.
    pub(crate) fn is_due(&mut self) -> bool {
        !self.buffer.is_empty() && self.rng.bool()
    }

    /// Takes a piece of random length; `None` if no bytes are left.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        if self.buffer.is_empty() {
            return None;
        }
        let length = self.rng.usize(1..=self.buffer.len());
        self.rest = match self.pause {
            // The last piece so far needs no pause: what follows comes by itself.
            _ if length == self.buffer.len() => Rest::Flush,
            None => Rest::Flush,
            Some(pause) => Rest::Pause(Box::pin(tokio::time::sleep(pause))),
        };
        Some(self.buffer.split_to(length).freeze())
    }

    /// Polls for the end of the pause after the last piece.
    pub(crate) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match std::mem::replace(&mut self.rest, Rest::None) {
            Rest::None => Poll::Ready(()),
            Rest::Flush => {
                // A body that is not ready makes the connection flush.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Rest::Pause(mut pause) => {
                if pause.as_mut().poll(cx).is_pending() {
                    self.rest = Rest::Pause(pause);
                    return Poll::Pending;
                }
                Poll::Ready(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn each_event_can_be_expanded_before_the_next_one() {
        let mut compressor = EventCompressor::new();
        let mut sent = Vec::new();
        for (event, so_far) in [("data: 1\n\n", "data: 1\n\n"), ("2\n\n", "data: 1\n\n2\n\n")] {
            sent.extend(compressor.compress(event.as_bytes(), false).unwrap());
            let mut text = vec![0; so_far.len()];
            GzDecoder::new(&sent[..]).read_exact(&mut text).unwrap();
            assert_eq!(text, so_far.as_bytes());
        }
        sent.extend(compressor.compress(b"end", true).unwrap());
        assert!(compressor.finish().unwrap().is_empty(), "the end comes once");
        let mut text = String::new();
        GzDecoder::new(&sent[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "data: 1\n\n2\n\nend");
    }

    #[tokio::test]
    async fn pieces_are_the_body_again_and_differ_by_their_seed() {
        let body: Vec<u8> = (0..=255).collect();
        let cut = |seed| {
            let mut cutter = Cutter::of_whole(seed);
            cutter.push(&body);
            std::iter::from_fn(|| cutter.take()).collect::<Vec<Bytes>>()
        };
        let lengths = |seed| cut(seed).iter().map(Bytes::len).collect::<Vec<usize>>();
        for seed in 0..20 {
            assert_eq!(cut(seed).concat(), body);
            assert_eq!(lengths(seed), lengths(seed));
        }
        assert_ne!(lengths(1), lengths(2));
    }
}
