//! TCP stream that can be made to misbehave.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::fault::Close;
use crate::freeze_gate::FreezeGate;

/// Bytes sent in place of HTTP: neither HTTP/1.1 nor an HTTP/2 frame.
const GARBAGE: &[u8] = b"\x16\x03\x00\xff\xfegarbage\x00\x7f not a protocol \x80\x81\r\n\r\n";

const HEALTHY: u8 = 0;
const GARBLED: u8 = 1;
const FINISHED: u8 = 2;
const RESET: u8 = 3;

/// Switch that makes one connection's socket misbehave. Shared by the requests on that connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketSwitch(Arc<AtomicU8>);

impl SocketSwitch {
    /// Makes the next write send garbage and then end the connection.
    pub(crate) fn garble(&self) {
        self.0.store(GARBLED, Ordering::Release);
    }

    /// Makes every further read and write fail, so that the server gives up the connection.
    pub(crate) fn close(&self, close: Close) {
        let state = match close {
            Close::Reset => RESET,
            Close::Fin => FINISHED,
        };
        self.0.store(state, Ordering::Release);
    }

    fn state(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

/// Stream of one connection.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    switch: SocketSwitch,
    gate: FreezeGate,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, switch: SocketSwitch, gate: FreezeGate) -> Self {
        Self { stream, switch, gate }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }

    fn poll_write_with(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: usize,
        write: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.gate.poll(cx));
        match self.switch.state() {
            HEALTHY => write(self.stream(), cx),
            GARBLED => {
                let switch = self.switch.clone();
                ready!(self.as_mut().stream().poll_write(cx, GARBAGE))?;
                // The garbage is sent once; then the connection ends.
                switch.close(Close::Fin);
                Poll::Ready(Ok(bytes))
            }
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.gate.poll(cx));
        match self.switch.state() {
            HEALTHY | GARBLED => self.stream().poll_read(cx, buffer),
            _ => Poll::Ready(Ok(())), // the end of the stream
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, bytes.len(), |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        self.poll_write_with(cx, bytes, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The server is not reading now, so only a failing write makes it give up the connection.
        match self.switch.state() {
            HEALTHY | GARBLED => self.stream().poll_flush(cx),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An orderly close must not come before a reset.
        if self.switch.state() == RESET {
            return Poll::Ready(Ok(()));
        }
        self.stream().poll_shutdown(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.switch.state() == RESET
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::debug!(%error, "a connection could not be reset and is closed instead");
        }
    }
}
