//! HTTP client of the load: a connection of its own, or a part of a shared HTTP/2 connection.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use http_body_util::BodyExt as _;
use spillway_harness::Connection;
use tokio::net::TcpStream;

use crate::{
    request::ChatBody,
    tally::{LoadTally, StreamWatch},
};

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
pub(crate) struct BenchClient {
    target: SocketAddr,
    body: ChatBody,
    reply: BenchReply,
    /// Open connection; `None` before the first request and after an error.
    connection: Option<Connection>,
}

impl BenchClient {
    /// Returns a client that opens an HTTP/1.1 connection on its first use, and again after an
    /// error.
    pub(crate) fn new(target: SocketAddr, body: ChatBody, reply: BenchReply) -> Self {
        Self { target, body, reply, connection: None }
    }

    /// Returns this client with a part of a shared HTTP/2 connection.
    pub(crate) fn sharing(self, connection: &Connection) -> Self {
        Self { connection: connection.shared(), ..self }
    }

    /// Sends request `number` and reads the answer. Tokens are added to the tally as they arrive.
    pub(crate) async fn exchange(
        &mut self,
        number: u64,
        arrival: Instant,
        tally: &Mutex<LoadTally>,
    ) -> anyhow::Result<()> {
        // Taken out, so that an error drops a connection of this client alone.
        let kept = self.connection.take();
        let shared = kept.as_ref().and_then(Connection::shared);
        let mut connection = match kept {
            // The end of a shared connection must show as errors.
            Some(kept) if shared.is_some() || kept.is_open() => kept,
            _ => Connection::http1(connect(self.target).await?).await?,
        };
        let sent = self.exchange_over(&mut connection, number, arrival, tally).await;
        self.connection = shared.or_else(|| sent.is_ok().then_some(connection));
        sent
    }

    async fn exchange_over(
        &mut self,
        connection: &mut Connection,
        number: u64,
        arrival: Instant,
        tally: &Mutex<LoadTally>,
    ) -> anyhow::Result<()> {
        self.body.stamp(number);
        // The streams of a shared connection may have reached its limit.
        connection.ready().await?;
        let sent = connection.send(self.body.request()?).await;
        let mut response = sent.map_err(|error| error.into_error())?;
        ensure!(response.status() == 200, "answered with {}", response.status());
        let mut watch = StreamWatch::new(arrival);
        while let Some(frame) = response.frame().await {
            if let (BenchReply::Stream { .. }, Some(data)) = (self.reply, frame?.data_ref()) {
                watch.counter.feed(data);
                // A poisoned tally is still usable; the panic that poisoned it ends the run anyway.
                let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.observe(&mut watch, Instant::now());
            }
        }
        let BenchReply::Stream { tokens } = self.reply else { return Ok(()) };
        ensure!(watch.counter.is_done(), "the stream broke off");
        let seen = watch.counter.tokens();
        ensure!(tokens.is_none_or(|tokens| tokens == seen), "{seen} tokens instead of {tokens:?}");
        Ok(())
    }
}

/// Opens a TCP connection.
pub(crate) async fn connect(target: SocketAddr) -> anyhow::Result<TcpStream> {
    let limit = Duration::from_millis(CONNECT_MS);
    Ok(tokio::time::timeout(limit, TcpStream::connect(target)).await.context("connect")??)
}
