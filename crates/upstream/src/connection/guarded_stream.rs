//! HTTP/2 socket of a replica, with a limit of control frames.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::connection::open_uploads::OpenUploads;
use crate::frame_budget::{BYTES_PER_EARNED, EARNED_BY_PIECE, FrameBudget, FrameSender};
use crate::stream::Stream;

/// Byte stream that hyper's HTTP/2 client works on.
///
/// A replica may refuse an upload and close while more of it is on its way. hyper would end all
/// streams with the connection, even one whose whole reply has arrived. So a failed write counts as
/// done, and the end of the connection is withheld until the replies to uploads have ended, or could
/// have. If the socket can still be read after a failed write, hyper's pings find that it takes
/// nothing.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: Stream,
    /// Error of the first failed write.
    broken: Option<io::ErrorKind>,
    /// End of the incoming bytes, until it is reported.
    end: Option<WithheldEnd>,
    uploads: OpenUploads,
    budget: FrameBudget,
    earnings: FrameEarnings,
}

/// End of a connection that is not reported yet.
#[derive(Debug)]
struct WithheldEnd {
    /// The error; `None` for an orderly end.
    error: Option<io::Error>,
    /// Timer; made if an upload is open.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Longest time for which the end of a connection is withheld: replies that have arrived are read in
/// a small part of it.
const WITHHELD_TIME_MAX: Duration = Duration::from_secs(1);

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
    /// Guards `stream`; `earnings` and `uploads` are those of its requests.
    pub(crate) fn new(stream: Stream, earnings: FrameEarnings, uploads: OpenUploads) -> Self {
        let budget = FrameBudget::new(FrameSender::Replica, Instant::now());
        Self { stream, broken: None, end: None, uploads, budget, earnings }
    }

    fn check(&mut self, read: &[u8]) -> Result<(), TooManyFrames> {
        let earned = || self.earnings.0.load(Ordering::Relaxed);
        if self.budget.admits(read, earned, Instant::now) { Ok(()) } else { Err(TooManyFrames) }
    }

    /// Reports the end of the connection once no reply to an upload can be lost by it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(end) = &mut self.end else { return Poll::Ready(Ok(())) };
        if self.uploads.poll_none(cx).is_pending() {
            let timer = end.timer.get_or_insert_with(|| Box::pin(sleep(WITHHELD_TIME_MAX)));
            ready!(timer.as_mut().poll(cx));
        }
        Poll::Ready(end.error.take().map_or(Ok(()), Err))
    }

    /// Counts the bytes of a write of at most `length` bytes, and keeps its error for the reader.
    fn written(
        &mut self,
        written: Poll<io::Result<usize>>,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.earnings.0.fetch_add(bytes as u64 / BYTES_PER_EARNED, Ordering::Relaxed);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => {
                self.broken = Some(error.kind());
                Poll::Ready(Ok(length))
            }
            Poll::Pending => Poll::Pending,
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
        if this.end.is_some() {
            return this.poll_end(cx);
        }
        let before = buffer.filled().len();
        let polled = ready!(Pin::new(&mut this.stream).poll_read(cx, buffer));
        let read = &buffer.filled()[before..];
        let error = match polled {
            Ok(()) if !read.is_empty() => {
                return Poll::Ready(this.check(read).map_err(io::Error::other));
            }
            // A failed write took the socket's error, which then shows an orderly end.
            Ok(()) => this.broken.map(io::Error::from),
            Err(error) => Some(error),
        };
        this.uploads.note_end();
        this.end = Some(WithheldEnd { error, timer: None });
        this.poll_end(cx)
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.broken.is_some() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(written, bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = slices.iter().map(|slice| slice.len()).sum();
        if this.broken.is_some() {
            return Poll::Ready(Ok(length));
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.written(written, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if let Poll::Ready(Err(error)) = flushed {
            this.broken = Some(error.kind());
            return Poll::Ready(Ok(()));
        }
        flushed
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
        let mut guarded =
            GuardedStream::new(Stream::Plain(near), earnings.clone(), OpenUploads::default());
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

    #[tokio::test]
    async fn what_arrived_is_read_after_a_write_has_failed() {
        let (near, mut far) = connected().await;
        let uploads = OpenUploads::default();
        let mut guarded =
            GuardedStream::new(Stream::Plain(near), FrameEarnings::default(), uploads.clone());
        guarded.write_all(b"never read").await.unwrap();
        far.write_all(b"reply").await.unwrap();
        far.readable().await.unwrap();
        // Closed with bytes that were not read, which resets the connection.
        drop(far);
        while guarded.broken.is_none() {
            guarded.write_all(b"more").await.unwrap();
            tokio::task::yield_now().await;
        }
        guarded.flush().await.unwrap();
        let upload = uploads.begin();
        let mut reply = [0; 5];
        guarded.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"reply");
        let mut next = [0; 1];
        let mut end = Box::pin(guarded.read(&mut next));
        std::future::poll_fn(|cx| {
            assert!(end.as_mut().poll(cx).is_pending());
            if uploads.has_ended() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(upload);
        end.await.unwrap_err();
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_withheld_from_open_uploads_for_a_time() {
        let (near, far) = connected().await;
        let uploads = OpenUploads::default();
        let mut guarded =
            GuardedStream::new(Stream::Plain(near), FrameEarnings::default(), uploads.clone());
        let upload = uploads.begin();
        drop(far);
        let started = Instant::now();
        assert_eq!(guarded.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(started.elapsed() >= WITHHELD_TIME_MAX);
        drop(upload);
    }
}
