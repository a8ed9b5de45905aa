//! HTTP/2 socket of a replica, with a limit of control frames.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frame_budget::{BYTES_PER_EARNED, EARNED_BY_PIECE, FrameBudget, FrameSender};
use crate::stream::Stream;

/// Byte stream that hyper's HTTP/2 client works on.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: Stream,
    budget: FrameBudget,
    earnings: FrameEarnings,
}

/// Tokens that an HTTP/2 connection has earned for its control frames, shared with the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameEarnings(Arc<AtomicU64>);

/// Error of a replica that sends more control frames than a connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more control frames than a connection may have")]
struct TooManyFrames;

impl FrameEarnings {
    /// Adds the tokens of one request.
    pub(crate) fn request_sent(&self) {
        self.0.fetch_add(EARNED_BY_PIECE, Ordering::Relaxed);
    }
}

impl GuardedStream {
    /// Guards `stream`; `earnings` are those of its requests.
    pub(crate) fn new(stream: Stream, earnings: FrameEarnings) -> Self {
        let budget = FrameBudget::new(FrameSender::Replica, Instant::now());
        Self { stream, budget, earnings }
    }

    fn check(&mut self, read: &[u8]) -> Result<(), TooManyFrames> {
        let earned = || self.earnings.0.load(Ordering::Relaxed);
        if self.budget.admits(read, earned, Instant::now) { Ok(()) } else { Err(TooManyFrames) }
    }

    fn count_written(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.earnings.0.fetch_add(*bytes as u64 / BYTES_PER_EARNED, Ordering::Relaxed);
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
        let mut guarded = GuardedStream::new(Stream::Plain(near), earnings.clone());
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
        assert_eq!(error.to_string(), TooManyFrames.to_string());
    }
}
