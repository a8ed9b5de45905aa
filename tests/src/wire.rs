//! A TCP connection whose every byte the test decides and sees; for clients and replicas alike.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use spillway_testkit::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Room for one read.
const READ_BYTES: usize = 64 << 10;

/// A raw connection with the bytes that were read but not parsed yet.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// One HTTP/1.1 request or reply as it was on the wire.
#[derive(Clone, Debug)]
pub struct Message {
    /// Everything up to and including the empty line.
    pub head: String,
    /// The body, chunks put together.
    pub body: Vec<u8>,
    /// Trailers after the last chunk.
    pub trailers: String,
}

/// Way in which the other side ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// In order.
    Fin,
    /// By a reset.
    Reset,
}

impl Wire {
    /// A connection to `address`.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("connects");
        Self::new(stream)
    }

    /// Takes over a connection.
    ///
    /// # Panics
    /// If it is dead already.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("is alive");
        Self { stream, buffer: Vec::new() }
    }

    /// This side's address.
    ///
    /// # Panics
    /// If the connection is dead.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("is alive")
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the other side is gone.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        within("sending", self.stream.write_all(bytes.as_ref())).await.expect("takes the bytes");
    }

    /// Sends bytes if the other side still takes them.
    ///
    /// # Errors
    /// If it does not.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        within("sending", self.stream.write_all(bytes.as_ref())).await
    }

    /// Sends until no bytes of `chunk` are accepted for 200 ms. Returns the number of bytes that
    /// were.
    ///
    /// # Panics
    /// If the other side is gone.
    pub async fn send_until_blocked(&mut self, chunk: &[u8], bytes_max: usize) -> usize {
        let mut sent = 0;
        while sent < bytes_max {
            match timeout(Duration::from_millis(200), self.stream.write(chunk)).await {
                Ok(taken) => sent += taken.expect("takes the bytes"),
                Err(_) => break,
            }
        }
        sent
    }

    /// Reads to the end of a head and returns it.
    ///
    /// # Panics
    /// If the connection ends before.
    pub async fn head(&mut self) -> String {
        let head = self.until(b"\r\n\r\n").await;
        String::from_utf8(head).expect("a head is text")
    }

    /// Reads up to and including `needle`.
    ///
    /// # Panics
    /// If the connection ends before.
    pub async fn until(&mut self, needle: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = find(&self.buffer, needle) {
                return self.buffer.drain(..at + needle.len()).collect();
            }
            let what = String::from_utf8_lossy(needle).into_owned();
            let read = within(&what, self.read()).await.expect("stays open");
            let seen = String::from_utf8_lossy(&self.buffer);
            assert!(read > 0, "ended before {what:?}; seen: {seen:?}");
        }
    }

    /// Reads `count` bytes.
    ///
    /// # Panics
    /// If the connection ends before.
    pub async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            let read = within("bytes", self.read()).await.expect("stays open");
            assert!(read > 0, "ended after {} of {count} bytes", self.buffer.len());
        }
        self.buffer.drain(..count).collect()
    }

    /// Reads a whole request or reply, with the length that its head declares.
    ///
    /// # Panics
    /// If the connection ends before.
    pub async fn message(&mut self) -> Message {
        let head = self.head().await;
        let (mut body, mut trailers) = (Vec::new(), String::new());
        if let Some(length) = header(&head, "content-length") {
            body = self.exactly(length.parse().expect("a number")).await;
        } else if header(&head, "transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk().await {
                body.extend(chunk);
            }
            loop {
                let line = self.until(b"\r\n").await;
                if line == b"\r\n" {
                    break;
                }
                trailers.push_str(&String::from_utf8_lossy(&line));
            }
        }
        Message { head, body, trailers }
    }

    /// Reads one chunk of a chunked body; `None` for the last.
    ///
    /// # Panics
    /// If the connection ends before.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.until(b"\r\n").await;
        let text = String::from_utf8_lossy(&line);
        let size = text.trim().split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        if size == 0 {
            return None;
        }
        let chunk = self.exactly(size).await;
        self.exactly(2).await;
        Some(chunk)
    }

    /// Reads whatever comes until the other side ends the connection.
    pub async fn end(&mut self) -> (Vec<u8>, Closed) {
        loop {
            match within("the end of the connection", self.read()).await {
                Ok(0) => return (std::mem::take(&mut self.buffer), Closed::Fin),
                Ok(_) => {}
                Err(_) => return (std::mem::take(&mut self.buffer), Closed::Reset),
            }
        }
    }

    /// Waits, without a deadline, for a next byte; `false` if the other side ends the connection.
    pub async fn has_more(&mut self) -> bool {
        !self.buffer.is_empty() || matches!(self.read().await, Ok(1..))
    }

    /// Ends this side's half in order.
    pub async fn finish(&mut self) {
        // A connection that is gone already is as finished as can be.
        drop(self.stream.shutdown().await);
    }

    /// Resets the connection.
    ///
    /// # Panics
    /// If the system refuses the socket option.
    pub fn reset(self) {
        self.stream.set_zero_linger().expect("an open socket");
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ_BYTES);
        self.stream.read_buf(&mut self.buffer).await
    }
}

impl Message {
    /// The value of a header; `None` if it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Returns the number of lines of a header.
    #[must_use]
    pub fn header_count(&self, name: &str) -> usize {
        lines(&self.head).filter(|(known, _)| known.eq_ignore_ascii_case(name)).count()
    }

    /// The first line.
    #[must_use]
    pub fn first_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The status of a reply.
    ///
    /// # Panics
    /// If it is none.
    #[must_use]
    pub fn status(&self) -> u16 {
        let status = self.first_line().split(' ').nth(1).unwrap_or_default();
        status.parse().expect("a status line")
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    lines(head).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn lines(head: &str) -> impl Iterator<Item = (&str, &str)> {
    head.lines().skip(1).filter_map(|line| line.split_once(':')).map(|(n, v)| (n, v.trim()))
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}
