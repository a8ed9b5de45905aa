//! A client's socket: replays what was read ahead, and counts what passes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client::meter::Meter;
use crate::stream::Stream;

/// The stream hyper's server side works on.
#[derive(Debug)]
pub(crate) struct ClientStream {
    stream: Stream,
    /// Bytes read while the protocol was found out; they come first.
    read_ahead: Bytes,
    meter: Arc<Meter>,
}

impl ClientStream {
    pub(crate) fn new(stream: Stream, read_ahead: Bytes, meter: Arc<Meter>) -> Self {
        Self { stream, read_ahead, meter }
    }

    fn counted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.meter.count_write(Some(*bytes)),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.meter.count_write(None),
        }
        written
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.read_ahead.is_empty() {
            let length = this.read_ahead.len().min(buffer.remaining());
            buffer.put_slice(&this.read_ahead[..length]);
            this.read_ahead.advance(length);
            this.meter.count_read(length);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if polled.is_ready() {
            this.meter.count_read(buffer.filled().len() - before);
        }
        polled
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.counted(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.counted(written)
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
