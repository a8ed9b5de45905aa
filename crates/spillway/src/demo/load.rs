//! The demo's clients: people who send one request after the other.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hdrhistogram::Histogram;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::demo::world::MODEL;

/// Longest time to first token that is told apart, in microseconds.
const LONGEST_US: u64 = 600_000_000;
/// Shared by all chats, so that replicas can reuse its prefill.
const SYSTEM_PROMPT: &str = "You are the assistant of a company that runs model servers in several \
    regions. Answer briefly, name your sources, and say so when you do not know. ";

/// What all users saw together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) events: AtomicU64,
    first_bytes: Mutex<Option<Histogram<u64>>>,
    is_over: AtomicBool,
}

impl Tally {
    /// Tells the users to stop after what they are doing.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Time to the first byte of the reply at a quantile.
    pub(crate) fn first_byte_at(&self, quantile: f64) -> Duration {
        let histogram = self.first_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let microseconds =
            histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(quantile));
        Duration::from_micros(microseconds)
    }

    fn record_first_byte(&self, passed: Duration) {
        let mut slot = self.first_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Histogram::new_with_bounds(1, LONGEST_US, 3).ok();
        }
        if let Some(histogram) = slot.as_mut() {
            let microseconds = u64::try_from(passed.as_micros()).unwrap_or(LONGEST_US);
            histogram.saturating_record(microseconds.clamp(1, LONGEST_US));
        }
    }
}

/// One client with a connection of its own.
pub(crate) struct User {
    number: u64,
    address: SocketAddr,
    tally: Arc<Tally>,
    dice: fastrand::Rng,
}

impl User {
    pub(crate) fn new(number: u64, address: SocketAddr, tally: Arc<Tally>) -> Self {
        Self { number, address, tally, dice: fastrand::Rng::with_seed(number) }
    }

    /// Sends requests until the load is over. A failure is counted and followed by a new connection.
    pub(crate) async fn run(mut self) {
        while !self.tally.is_over.load(Ordering::Relaxed) {
            if let Err(error) = self.use_connection().await {
                self.tally.failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(user = self.number, "request failed: {error:#}");
            }
        }
    }

    async fn use_connection(&mut self) -> Result<()> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let (mut sender, connection) = handshake(TokioIo::new(tcp)).await?;
        #[expect(clippy::disallowed_methods, reason = "ends with the handle at the latest")]
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        while !self.tally.is_over.load(Ordering::Relaxed) {
            self.send_one(&mut sender).await?;
        }
        Ok(())
    }

    async fn send_one(&mut self, sender: &mut SendRequest<Full<Bytes>>) -> Result<()> {
        let (path, body) = self.next_request();
        let is_stream = body["stream"] == true;
        let request = Request::post(path)
            .header("host", "demo")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let started = Instant::now();
        sender.ready().await?;
        let reply = sender.send_request(request).await?;
        ensure!(reply.status() == StatusCode::OK, "status {}", reply.status());
        self.read(reply.into_body(), is_stream.then_some(started)).await?;
        self.tally.requests.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a reply. `streamed_since`: when a stream was asked for; unary replies have no first
    /// token to time.
    async fn read(&self, mut body: Incoming, mut streamed_since: Option<Instant>) -> Result<()> {
        while let Some(frame) = body.frame().await {
            let frame = frame.context("the reply broke off")?;
            let Some(piece) = frame.data_ref() else { continue };
            if let Some(started) = streamed_since.take() {
                self.tally.record_first_byte(started.elapsed());
            }
            let events = piece.windows(6).filter(|window| window == b"data: ").count();
            self.tally.events.fetch_add(events as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Six chats that stream, to three unary ones and one embedding.
    fn next_request(&mut self) -> (&'static str, serde_json::Value) {
        let question = format!("Question {} of user {}.", self.dice.u32(..), self.number);
        let system = SYSTEM_PROMPT.repeat(8);
        let messages = json!([
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ]);
        match self.dice.u8(0..10) {
            0..6 => {
                let tokens = self.dice.u32(16..96);
                let body = json!({
                    "model": MODEL, "messages": messages, "max_tokens": tokens, "stream": true,
                });
                ("/v1/chat/completions", body)
            }
            6..9 => {
                let tokens = self.dice.u32(8..48);
                let body = json!({"model": MODEL, "messages": messages, "max_tokens": tokens});
                ("/v1/chat/completions", body)
            }
            _ => ("/v1/embeddings", json!({"model": MODEL, "input": question})),
        }
    }
}
