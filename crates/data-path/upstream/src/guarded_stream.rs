//! HTTP/2 socket of a replica, with a limit of control frames.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use spillway_transport::{BYTES_PER_EARNED, EARNED_BY_PIECE, FrameBudget, FrameSender, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http1::HEAD_BYTES_MAX;
use crate::open_uploads::OpenUploads;
use crate::stream_count::StreamCount;

/// Byte stream that hyper's HTTP/2 client works on.
///
/// A replica may refuse an upload and close the connection while more of the upload is in transit.
/// hyper would end all streams with the connection, even one whose whole reply has arrived. So a
/// failed write counts as done, and the end of the connection is withheld until the replies to
/// uploads have ended, or could have.
#[derive(Debug)]
pub(crate) struct GuardedStream {
    stream: Stream,
    /// Error of the first failed write.
    broken: Option<io::ErrorKind>,
    /// End of the incoming bytes, until it is reported.
    end: Option<WithheldEnd>,
    /// Time after a failed write by which the socket has to end, too.
    broken_until: Option<Pin<Box<Sleep>>>,
    guards: StreamGuards,
    budget: FrameBudget,
}

/// State that a connection's socket shares with its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamGuards {
    pub(crate) uploads: OpenUploads,
    pub(crate) earnings: FrameEarnings,
    pub(crate) streams: StreamCount,
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
/// Longest time for which a socket is still read after a write failed: a reply may be in transit.
const BROKEN_TIME_MAX: Duration = Duration::from_secs(10);

/// Tokens that an HTTP/2 connection has earned for its control frames, shared with the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameEarnings(Arc<AtomicU64>);

/// Fault in a replica's frames that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum FrameFault {
    #[error("more control frames than a connection may have")]
    TooMany,
    #[error("a header block of more than 512 KiB")]
    LongBlock,
}

impl FrameEarnings {
    /// Adds the tokens of one request.
    pub(crate) fn request_sent(&self) {
        self.0.fetch_add(EARNED_BY_PIECE, Ordering::Relaxed);
    }
}

impl GuardedStream {
    /// Guards `stream`.
    pub(crate) fn new(stream: Stream, guards: StreamGuards) -> Self {
        let budget = FrameBudget::new(FrameSender::Replica, Instant::now());
        Self { stream, broken: None, end: None, broken_until: None, guards, budget }
    }

    fn check(&mut self, read: &[u8]) -> Result<(), FrameFault> {
        let earned = || self.guards.earnings.0.load(Ordering::Relaxed);
        let known = self.budget.facts();
        if !self.budget.admits(read, earned, Instant::now) {
            return Err(FrameFault::TooMany);
        }
        let facts = self.budget.facts();
        if facts.block_bytes > HEAD_BYTES_MAX as u64 {
            return Err(FrameFault::LongBlock);
        }
        if facts != known {
            self.guards.streams.note(facts);
        }
        Ok(())
    }

    /// Reads; ready with an error if a write has failed and the socket does not end for long.
    fn poll_socket(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some(broken) = self.broken.filter(|_| polled.is_pending()) else { return polled };
        let until = self.broken_until.get_or_insert_with(|| Box::pin(sleep(BROKEN_TIME_MAX)));
        until.as_mut().poll(cx).map(|()| Err(broken.into()))
    }

    /// Reports the end of the connection once no reply to an upload can be lost by it.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(end) = &mut self.end else { return Poll::Ready(Ok(())) };
        if self.guards.uploads.poll_none(cx).is_pending() {
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
        cx: &Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.guards
                    .earnings
                    .0
                    .fetch_add(bytes as u64 / BYTES_PER_EARNED, Ordering::Relaxed);
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => {
                self.breaks(error.kind(), cx);
                Poll::Ready(Ok(length))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Keeps the error of a failed write.
    fn breaks(&mut self, error: io::ErrorKind, cx: &Context<'_>) {
        self.broken = Some(error);
        // The reader waits for bytes alone so far.
        cx.waker().wake_by_ref();
    }
}

impl Drop for GuardedStream {
    fn drop(&mut self) {
        self.guards.streams.settle();
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
        let polled = ready!(this.poll_socket(cx, buffer));
        let read = &buffer.filled()[before..];
        let error = match polled {
            Ok(()) if !read.is_empty() => {
                // By this kind the fault is known again, of which the library keeps no more.
                let faulty = |fault| io::Error::new(io::ErrorKind::InvalidData, fault);
                return Poll::Ready(this.check(read).map_err(faulty));
            }
            // A failed write took the socket's error, which then shows an orderly end.
            Ok(()) => this.broken.map(io::Error::from),
            Err(error) => Some(error),
        };
        this.guards.uploads.note_end();
        this.guards.streams.settle();
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
        this.written(written, bytes.len(), cx)
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
        this.written(written, length, cx)
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
            this.breaks(error.kind(), cx);
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
        let guards = StreamGuards::default();
        let earnings = guards.earnings.clone();
        let mut guarded = GuardedStream::new(Stream::Plain(near), guards);
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
        assert_eq!(error.to_string(), FrameFault::TooMany.to_string());
    }

    #[tokio::test]
    async fn what_arrived_is_read_after_a_write_has_failed() {
        let (near, mut far) = connected().await;
        let guards = StreamGuards::default();
        let uploads = guards.uploads.clone();
        let mut guarded = GuardedStream::new(Stream::Plain(near), guards);
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
        let guards = StreamGuards::default();
        let uploads = guards.uploads.clone();
        let mut guarded = GuardedStream::new(Stream::Plain(near), guards);
        let upload = uploads.begin();
        drop(far);
        let started = Instant::now();
        assert_eq!(guarded.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(started.elapsed() >= WITHHELD_TIME_MAX);
        drop(upload);
    }
}
