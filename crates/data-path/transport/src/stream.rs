//! Byte stream type for both sides: TCP, or TLS over TCP.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A connected socket, encrypted or not.
#[derive(Debug)]
pub enum Stream {
    /// Plain text.
    Plain(TcpStream),
    // Boxed: a TLS session is over a kilobyte, and most connections here are plain.
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Input that arrived on a connection without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing.
    Nothing,
    /// The end of the connection, or an error of it.
    End,
    /// Bytes that no request has asked for.
    Bytes,
}

/// Bytes that suffice to distinguish a farewell from other input.
const PEEKED_BYTES: usize = 16;

impl Stream {
    /// Looks at what has arrived, by a system call: the runtime learns of new bytes only when it polls
    /// the system again, which may be after this task has written a request.
    pub fn received(&mut self) -> Received {
        match self {
            Self::Plain(tcp) => {
                let mut room = [MaybeUninit::uninit(); PEEKED_BYTES];
                match SockRef::from(&*tcp).peek(&mut room) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
                    Ok(0) | Err(_) => Received::End,
                    Ok(_) => Received::read_from(&*SockRef::from(&*tcp)),
                }
            }
            Self::Tls(tls) => received_by_tls(tls),
        }
    }

    /// Returns true if TLS agreed on HTTP/2.
    pub fn speaks_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// Waits until there are unread bytes or an unread end.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let tcp = match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => {
                let (tcp, session) = tls.get_ref();
                // It holds what it has decrypted already.
                if !session.wants_read() {
                    return Poll::Ready(());
                }
                tcp
            }
        };
        // An error shows again when the socket is read.
        tcp.poll_read_ready(cx).map(drop)
    }

    /// Returns true if the bytes are encrypted.
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }
}

/// Looks at what has arrived over TLS: not all of its records are bytes of the application.
fn received_by_tls(tls: &mut TlsStream<TcpStream>) -> Received {
    let TlsStream::Client(tls) = tls else { return Received::End };
    let (tcp, session) = tls.get_mut();
    let socket = SockRef::from(&*tcp);
    let mut has_more = true;
    loop {
        let Ok(state) = session.process_new_packets() else { return Received::End };
        if state.plaintext_bytes_to_read() > 0 {
            return Received::read_from(session.reader());
        }
        if state.peer_has_closed() {
            return Received::End;
        }
        if !has_more {
            return Received::Nothing;
        }
        match session.read_tls(&mut &*socket) {
            Ok(1..) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => has_more = false,
            Ok(0) | Err(_) => return Received::End,
        }
    }
}

impl Received {
    fn read_from(mut source: impl Read) -> Self {
        let mut bytes = [0; PEEKED_BYTES];
        let length = source.read(&mut bytes).unwrap_or(0);
        Self::of_bytes(&bytes[..length])
    }

    /// Tells an end from bytes that belong to nothing. Some servers send "408 Request Timeout" before
    /// they close a connection that was idle (RFC 9110, section 15.5.9), and some an empty line after
    /// a reply.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let is_blank = bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        let mut words = bytes.split(|byte| *byte == b' ');
        let is_reply = words.next().is_some_and(|word| word.starts_with(b"HTTP/1."));
        let is_farewell = is_reply && words.next() == Some(b"408");
        if is_blank || is_farewell { Self::End } else { Self::Bytes }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
