//! Socket of a client: replays the bytes read ahead, and counts traffic.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use spillway_transport::{FrameBudget, FrameSender, Pressure, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::client::greet::ClientProtocol;
use crate::client::meter::ConnectionMeter;
use crate::front_door::FrontDoor;

/// A GOAWAY frame with ENHANCE_YOUR_CALM. It names the highest stream, since any may have been
/// served.
const CALM_DOWN: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 11];

/// Interval between reads of one connection while memory is full.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// Byte stream that hyper's server side works on.
#[derive(Debug)]
pub(super) struct ClientStream {
    stream: Stream,
    /// Bytes read for protocol detection, or given back; they come first.
    read_ahead: Bytes,
    meter: Arc<ConnectionMeter>,
    door: Arc<FrontDoor>,
    /// Timer of the next read while memory is full.
    pause: Option<Pin<Box<Sleep>>>,
    /// Budget of control frames; `None` over HTTP/1.1, which has none.
    frames: Option<FrameBudget>,
}

impl ClientStream {
    pub(super) fn new(
        stream: Stream,
        version: ClientProtocol,
        read_ahead: Bytes,
        door: Arc<FrontDoor>,
        meter: Arc<ConnectionMeter>,
    ) -> Self {
        let frames = (version == ClientProtocol::Http2)
            .then(|| FrameBudget::new(FrameSender::Client, Instant::now()));
        Self { stream, read_ahead, meter, door, pause: None, frames }
    }

    /// Gives back bytes that were read and not used.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        // No bytes may still hold the buffer that they were read into.
        self.read_ahead = if bytes.is_empty() { Bytes::new() } else { bytes };
    }

    /// Waits until there is something to read, or the client has closed.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.read_ahead.is_empty() { self.stream.poll_readable(cx) } else { Poll::Ready(()) }
    }

    /// Counts bytes that were read; returns `false` if they exceed the budget of control frames.
    fn admits(&mut self, bytes: &[u8]) -> bool {
        self.meter.count_read(bytes.len());
        let Self { frames: Some(frames), meter, .. } = self else { return true };
        let is_admitted = frames.admits(bytes, || meter.earned(), Instant::now);
        if !is_admitted {
            meter.note_flood();
        }
        is_admitted
    }

    /// Waits for this connection's turn to be read, if memory is full.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let memory = self.door.memory();
        if memory.pressure() < Pressure::Full {
            self.pause = None;
            return Poll::Ready(());
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(READ_PAUSE)));
        loop {
            ready!(pause.as_mut().poll(cx));
            pause.as_mut().reset(tokio::time::Instant::now() + READ_PAUSE);
            if memory.admits_read() {
                return Poll::Ready(());
            }
        }
    }

    /// Tells the client why its connection ends, if the socket takes the frame at once.
    fn say_calm_down(&mut self, cx: &mut Context<'_>) {
        // A blocked socket may have taken half of another frame, which this one would cut in two.
        if !self.meter.read().write_blocked {
            drop(Pin::new(&mut self.stream).poll_write(cx, &CALM_DOWN));
            drop(Pin::new(&mut self.stream).poll_flush(cx));
        }
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
            let read = this.read_ahead.split_to(length);
            buffer.put_slice(&read);
            // The bytes are the HTTP/2 preface at most, which is no flood.
            let _: bool = this.admits(&read);
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_turn(cx));
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buffer);
        // Memory is full, so these bytes are part of the trickle.
        if this.pause.is_some() {
            this.door.memory().count_read(buffer.filled().len() - before);
        }
        if polled.is_ready() && !this.admits(&buffer.filled()[before..]) {
            // The watchdog closes the connection at once, so nothing more is read.
            this.say_calm_down(cx);
            return Poll::Pending;
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
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.meter.note_blocked(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
