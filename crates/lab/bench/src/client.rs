//! HTTP clients: a connection of their own, or a handle to a shared HTTP/2 connection.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    http1::{HttpRole, MessageReader, Start},
    request::{ChatBody, PATH, WireRequest},
    tally::{LoadTally, StreamWatch},
};

/// Size of the read buffer of one connection; a saturated stream fills it between two turns.
const READ_BYTES: usize = 64 * 1024;

/// Time limit in milliseconds for opening a connection on loopback.
const CONNECT_MS: u64 = 5_000;

/// Form that every answer must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchReply {
    /// A body of any form.
    Whole,
    /// An event stream that ends in `[DONE]`.
    Stream {
        /// Number of tokens; another number is an error. `None` accepts any.
        tokens: Option<u64>,
    },
}

/// HTTP client, for one request at a time.
pub(crate) enum BenchClient {
    /// HTTP/1.1 over its own connection.
    Http1(Http1Client),
    /// A stream of an HTTP/2 connection that is shared with others.
    Http2(Http2Client),
}

impl BenchClient {
    /// Sends request `number` and reads the answer. Tokens are added to the tally as they arrive.
    pub(crate) async fn exchange(
        &mut self,
        number: u64,
        arrival: Instant,
        tally: &Mutex<LoadTally>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Http1(client) => client.exchange(number, arrival, tally).await,
            Self::Http2(client) => client.exchange(number, arrival, tally).await,
        }
    }
}

/// HTTP/1.1 client written by hand: one write and usually one read per request.
pub(crate) struct Http1Client {
    target: SocketAddr,
    request: WireRequest,
    reply: BenchReply,
    connection: Option<TcpStream>,
    buffer: Vec<u8>,
}

impl Http1Client {
    /// Returns a client that connects on its first use, and again after an error.
    pub(crate) fn new(target: SocketAddr, body: &ChatBody, reply: BenchReply) -> Self {
        let request = WireRequest::new(target, body);
        Self { target, request, reply, connection: None, buffer: vec![0; READ_BYTES] }
    }

    async fn exchange(
        &mut self,
        number: u64,
        arrival: Instant,
        tally: &Mutex<LoadTally>,
    ) -> anyhow::Result<()> {
        // Taken out, so that an error drops the connection.
        let mut stream = match self.connection.take() {
            Some(stream) => stream,
            None => connect(self.target).await?,
        };
        stream.write_all(self.request.numbered(number)).await.context("write")?;
        let mut reader = MessageReader::new(HttpRole::Client);
        let mut watch = StreamWatch::new(arrival);
        while !reader.is_done() {
            let length = stream.read(&mut self.buffer).await.context("read")?;
            if length == 0 {
                // Only an answer without a length or chunks is whole at the end of its connection.
                ensure!(reader.may_end_by_close(), "closed before the end of the answer");
                break;
            }
            let consumed = match self.reply {
                BenchReply::Whole => reader.feed(&self.buffer[..length], &mut |_| {})?,
                BenchReply::Stream { .. } => {
                    let count = &mut |bytes: &[u8]| watch.counter.feed(bytes);
                    let consumed = reader.feed(&self.buffer[..length], count)?;
                    observe(tally, &mut watch);
                    consumed
                }
            };
            // Requests are not pipelined, so more bytes mean wrong framing.
            ensure!(consumed == length, "bytes after the end of the answer");
        }
        let head = reader.head().context("no head")?;
        ensure!(head.start == Start::Status(200), "answered with {:?}", head.start);
        check_stream(self.reply, &watch)?;
        // Kept unless this answer ends the connection.
        if !head.closes && !reader.may_end_by_close() {
            self.connection = Some(stream);
        }
        Ok(())
    }
}

/// HTTP/2 client through hyper.
pub(crate) struct Http2Client {
    sender: SendRequest<Full<Bytes>>,
    uri: http::Uri,
    body: ChatBody,
    reply: BenchReply,
}

impl Http2Client {
    /// Returns a client of the connection behind `sender`.
    pub(crate) fn new(
        sender: SendRequest<Full<Bytes>>,
        target: SocketAddr,
        body: ChatBody,
        reply: BenchReply,
    ) -> anyhow::Result<Self> {
        let uri = format!("http://{target}{PATH}").parse()?;
        Ok(Self { sender, uri, body, reply })
    }

    async fn exchange(
        &mut self,
        number: u64,
        arrival: Instant,
        tally: &Mutex<LoadTally>,
    ) -> anyhow::Result<()> {
        self.body.stamp(number);
        let request = http::Request::post(self.uri.clone())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(self.body.as_bytes())))?;
        // All streams share the connection, whose limit on open streams may hold this one back.
        self.sender.ready().await?;
        let mut response = self.sender.send_request(request).await?;
        ensure!(response.status() == 200, "answered with {}", response.status());
        let mut watch = StreamWatch::new(arrival);
        while let Some(frame) = response.frame().await {
            if let (BenchReply::Stream { .. }, Some(data)) = (self.reply, frame?.data_ref()) {
                watch.counter.feed(data);
                observe(tally, &mut watch);
            }
        }
        check_stream(self.reply, &watch)
    }
}

/// Opens a connection with TCP_NODELAY.
pub(crate) async fn connect(target: SocketAddr) -> anyhow::Result<TcpStream> {
    let limit = Duration::from_millis(CONNECT_MS);
    let stream =
        tokio::time::timeout(limit, TcpStream::connect(target)).await.context("connect")??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn observe(tally: &Mutex<LoadTally>, watch: &mut StreamWatch) {
    // A poisoned tally is still usable; the panic that poisoned it ends the run anyway.
    tally.lock().unwrap_or_else(PoisonError::into_inner).observe(watch, Instant::now());
}

fn check_stream(reply: BenchReply, watch: &StreamWatch) -> anyhow::Result<()> {
    let BenchReply::Stream { tokens } = reply else { return Ok(()) };
    ensure!(watch.counter.is_done(), "the stream broke off");
    let seen = watch.counter.tokens();
    ensure!(tokens.is_none_or(|tokens| tokens == seen), "{seen} tokens instead of {tokens:?}");
    Ok(())
}
