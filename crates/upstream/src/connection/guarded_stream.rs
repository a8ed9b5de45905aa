//! Socket of a replica, with limits of informational replies and control frames.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frame_budget::{BYTES_PER_EARNED, EARNED_BY_PIECE, FrameBudget, FrameSender};
use crate::stream::Stream;

/// Most bytes that a replica may send before the head of a reply. The HTTP library takes heads of
/// up to 408 KiB and reads about as much at once; further bytes are informational replies (1xx), of
/// which it skips any number.
const HEAD_BYTES_MAX: u64 = 1 << 20;
/// Marks that no head is expected.
const UNBOUNDED: u64 = u64::MAX;

/// Byte stream that hyper's client side works on.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: Stream,
    guard: Guard,
}

/// Limits of a connection, by protocol.
#[derive(Debug)]
enum Guard {
    Head(HeadRoom),
    Frames(FrameBudget, FrameEarnings),
}

/// Bytes left for the head of an HTTP/1.1 reply, shared with the exchange that waits for it.
#[derive(Clone, Debug)]
pub(crate) struct HeadRoom(Arc<AtomicU64>);

/// Tokens that an HTTP/2 connection has earned for its control frames, shared with the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameEarnings(Arc<AtomicU64>);

/// Error of a replica that sends too much besides its replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum TooMuch {
    #[error("more informational replies than a reply may have")]
    Informational,
    #[error("more control frames than a connection may have")]
    Frames,
}

impl HeadRoom {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(UNBOUNDED)))
    }

    /// Starts to count: a request was sent, and the head of its reply is expected.
    pub(crate) fn begin(&self) {
        self.0.store(HEAD_BYTES_MAX, Ordering::Relaxed);
    }

    /// Stops counting: the head has arrived.
    pub(crate) fn end(&self) {
        self.0.store(UNBOUNDED, Ordering::Relaxed);
    }

    /// Returns true if the replica sent more bytes than a head may have.
    pub(crate) fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Counts bytes that were read.
    fn take(&self, bytes: usize) -> Result<(), TooMuch> {
        let left = self.0.load(Ordering::Relaxed);
        if left == UNBOUNDED {
            return Ok(());
        }
        // The task that waits for the head also drives this stream, so there is no other writer.
        let left = left.saturating_sub(bytes as u64);
        self.0.store(left, Ordering::Relaxed);
        if left == 0 { Err(TooMuch::Informational) } else { Ok(()) }
    }
}

impl FrameEarnings {
    /// Adds the tokens of one request.
    pub(crate) fn request_sent(&self) {
        self.0.fetch_add(EARNED_BY_PIECE, Ordering::Relaxed);
    }
}

impl GuardedStream {
    /// Returns a stream for HTTP/1.1.
    pub(crate) fn http1(stream: Stream, room: HeadRoom) -> Self {
        Self { stream, guard: Guard::Head(room) }
    }

    /// Returns a stream for HTTP/2.
    pub(crate) fn http2(stream: Stream, earnings: FrameEarnings) -> Self {
        let budget = FrameBudget::new(FrameSender::Replica, Instant::now());
        Self { stream, guard: Guard::Frames(budget, earnings) }
    }

    fn check(&mut self, read: &[u8]) -> Result<(), TooMuch> {
        match &mut self.guard {
            Guard::Head(room) => room.take(read.len()),
            Guard::Frames(budget, earnings) => {
                let earned = || earnings.0.load(Ordering::Relaxed);
                let is_admitted = budget.admits(read, earned, Instant::now);
                if is_admitted { Ok(()) } else { Err(TooMuch::Frames) }
            }
        }
    }

    fn count_written(&self, written: &Poll<io::Result<usize>>) {
        if let (Guard::Frames(_, earnings), Poll::Ready(Ok(bytes))) = (&self.guard, written) {
            earnings.0.fetch_add(*bytes as u64 / BYTES_PER_EARNED, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => {
                Poll::Ready(this.check(&buffer.filled()[before..]).map_err(io::Error::other))
            }
            other => other,
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.count_written(&written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.count_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(near, listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    #[tokio::test]
    async fn control_frames_beyond_what_was_earned_end_the_connection() {
        const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        let (near, mut far) = connected().await;
        let earnings = FrameEarnings::default();
        let mut guarded = GuardedStream::http2(Stream::Plain(near), earnings.clone());
        guarded.write_all(&[0; 64 << 10]).await.unwrap();
        assert_eq!(earnings.0.load(Ordering::Relaxed), (64 << 10) / BYTES_PER_EARNED);
        far.write_all(&PING.repeat(20_000)).await.unwrap();
        drop(far);
        let mut chunk = [0; 1_024];
        let error = loop {
            match guarded.read(&mut chunk).await {
                Ok(0) => panic!("all of them were read"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), TooMuch::Frames.to_string());
    }

    #[test]
    fn bytes_are_counted_only_while_a_head_is_waited_for() {
        let room = HeadRoom::new();
        assert_eq!((room.take(10 << 20), room.is_used_up()), (Ok(()), false));
        room.begin();
        assert_eq!((room.take(1_000_000), room.is_used_up()), (Ok(()), false));
        room.end();
        assert_eq!(room.take(10 << 20), Ok(()));
        room.begin();
        assert_eq!(room.take(1 << 19), Ok(()));
        assert_eq!(room.take(1 << 19), Err(TooMuch::Informational));
        assert!(room.is_used_up());
    }
}
