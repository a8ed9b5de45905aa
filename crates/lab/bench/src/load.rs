//! Load on one target: warm-up, a timed window, and an orderly end.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use spillway_harness::Connection;
use tokio::task::JoinSet;

use crate::{
    arrivals::{ArrivalPace, Arrivals},
    client::{BenchClient, BenchReply, connect},
    request::ChatBody,
    tally::{LoadTally, Measurement},
};

/// Milliseconds that requests in flight get to end after the window.
const GRACE_MS: u64 = 5_000;

/// Pause of a client after an error, in milliseconds, so that a dead target does not cost a whole
/// core.
const PAUSE_AFTER_ERROR_MS: u64 = 20;

/// Description of a load.
#[derive(Clone, Debug)]
pub(crate) struct LoadSpec {
    /// Number of connections over HTTP/1.1, or of streams of one connection over HTTP/2.
    pub(crate) clients: usize,
    /// HTTP version.
    pub(crate) protocol: Protocol,
    /// Closed loop or fixed rate.
    pub(crate) pace: ArrivalPace,
    /// Size of each request's body in bytes.
    pub(crate) body_bytes: usize,
    /// Form that every answer must have.
    pub(crate) reply: BenchReply,
    /// Time over which the clients start, evenly, so that streams of equal length do not stay in
    /// step.
    pub(crate) ramp: Duration,
    /// Time of load before the window, at least as long as the ramp.
    pub(crate) warm_up: Duration,
    /// Measured time.
    pub(crate) window: Duration,
}

/// Times of a load.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Times {
    /// Seconds of load before measuring.
    #[arg(long, default_value_t = 1.0, value_parser = duration_s)]
    warm_up_s: f64,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 4.0, value_parser = duration_s)]
    window_s: f64,
}

impl Times {
    /// Returns the time of load before each window.
    pub(crate) fn warm_up(self) -> Duration {
        Duration::from_secs_f64(self.warm_up_s)
    }

    /// Returns the measured time.
    pub(crate) fn window(self) -> Duration {
        Duration::from_secs_f64(self.window_s)
    }
}

/// HTTP version towards the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, one connection per client.
    Http1,
    /// HTTP/2 with prior knowledge, one connection for all clients.
    Http2,
}

/// Runs the load. Calls `probe` at both ends of the window and returns both values with the
/// measurement, so that the usage of a proxy is read for exactly the measured time.
pub(crate) async fn run<T>(
    target: SocketAddr,
    spec: &LoadSpec,
    mut probe: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<(Measurement, T, T)> {
    let tally = Arc::new(Mutex::new(LoadTally::new()?));
    let ready = open_clients(target, spec).await?;
    let arrivals = Arc::new(Arrivals::new(spec.pace));
    let mut timer = JoinSet::new();
    // A closed loop needs no timer: its clients pace themselves.
    if spec.pace != ArrivalPace::Closed {
        let arrivals = Arc::clone(&arrivals);
        timer.spawn(async move { arrivals.run().await });
    }
    let mut workers = JoinSet::new();
    let step = spec.ramp.div_f64(spec.clients.max(1) as f64);
    for (index, client) in ready.into_iter().enumerate() {
        let (arrivals, tally) = (Arc::clone(&arrivals), Arc::clone(&tally));
        workers.spawn(async move {
            tokio::time::sleep(step.mul_f64(index as f64)).await;
            work(client, arrivals, tally).await;
        });
    }
    tokio::time::sleep(spec.warm_up).await;
    // The warm-up does not count.
    lock(&tally).reset();
    let (before, opened) = (probe()?, Instant::now());
    tokio::time::sleep(spec.window).await;
    let (after, window) = (probe()?, opened.elapsed());
    // Before the stop, so that requests that end later do not count.
    let measurement = lock(&tally).measurement(window);
    arrivals.stop();
    let drained = async { while workers.join_next().await.is_some() {} };
    // After the grace period dropping the set cuts the rest; the measurement is done already.
    drop(tokio::time::timeout(Duration::from_millis(GRACE_MS), drained).await);
    anyhow::ensure!(
        // Streams longer than the window have tokens, but no request that ended.
        measurement.requests + measurement.tokens > 0,
        "nothing was answered: {}",
        measurement.first_error.as_deref().unwrap_or("no error either")
    );
    Ok((measurement, before, after))
}

/// Sends one request. Returns an error if the answer is missing or wrong.
pub(crate) async fn check(target: SocketAddr, spec: &LoadSpec) -> anyhow::Result<()> {
    let tally = Mutex::new(LoadTally::new()?);
    // A single request is enough to see whether the target serves.
    let spec = LoadSpec { clients: 1, ..spec.clone() };
    let exchange = async {
        let mut clients = open_clients(target, &spec).await?;
        let client = clients.first_mut().context("one client")?;
        client.exchange(0, Instant::now(), &tally).await
    };
    tokio::time::timeout(Duration::from_millis(GRACE_MS), exchange).await.context("no answer")?
}

async fn open_clients(target: SocketAddr, spec: &LoadSpec) -> anyhow::Result<Vec<BenchClient>> {
    let is_stream = matches!(spec.reply, BenchReply::Stream { .. });
    let body = ChatBody::new(spec.body_bytes, is_stream)?;
    let clients = (0..spec.clients).map(|_| BenchClient::new(target, body.clone(), spec.reply));
    match spec.protocol {
        Protocol::Http1 => Ok(clients.collect()),
        Protocol::Http2 => {
            let connection = Connection::http2(connect(target).await?, None).await?;
            Ok(clients.map(|client| client.sharing(&connection)).collect())
        }
    }
}

/// Sends requests of one client until the arrivals end.
async fn work(mut client: BenchClient, arrivals: Arc<Arrivals>, tally: Arc<Mutex<LoadTally>>) {
    while let Some((number, arrival)) = arrivals.next().await {
        match client.exchange(number, arrival, &tally).await {
            Ok(()) => lock(&tally).finish(arrival.elapsed()),
            Err(error) => {
                lock(&tally).fail(&error);
                tokio::time::sleep(Duration::from_millis(PAUSE_AFTER_ERROR_MS)).await;
            }
        }
    }
}

/// Locks the tally. A poisoned lock is fine: the panic that poisoned it shows as a lost client.
fn lock(tally: &Mutex<LoadTally>) -> MutexGuard<'_, LoadTally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses seconds, at most ten minutes.
fn duration_s(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let is_within = (0.0..=600.0).contains(&seconds);
    is_within.then_some(seconds).ok_or_else(|| "not within 0 to 600".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const STALL_MS: u64 = 300;

    /// Answers every request at once, but stalls before the answer to one of them.
    async fn stalling_server(listener: TcpListener) {
        let served = AtomicU64::new(0);
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 4096];
        // The client sends a request in one write and waits, so each read is one request.
        while stream.read(&mut buffer).await.unwrap_or(0) > 0 {
            if served.fetch_add(1, Ordering::Relaxed) == 20 {
                // wait: the stall that the measured latencies must show.
                tokio::time::sleep(Duration::from_millis(STALL_MS)).await;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }

    #[tokio::test]
    async fn a_stall_is_charged_to_every_request_that_was_due_during_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = listener.local_addr().unwrap();
        let spec = LoadSpec {
            clients: 1,
            protocol: Protocol::Http1,
            pace: ArrivalPace::Rate(100.0),
            body_bytes: 512,
            reply: BenchReply::Whole,
            ramp: Duration::ZERO,
            warm_up: Duration::ZERO,
            window: Duration::from_secs(1),
        };
        let (result, ()) = tokio::join!(run(target, &spec, || Ok(())), async {
            drop(tokio::time::timeout(Duration::from_secs(2), stalling_server(listener)).await);
        });
        let (measurement, (), ()) = result.unwrap();
        let latency = measurement.latency;
        assert!(latency.max_us >= STALL_MS as f64 * 1000.0 * 0.999, "{latency:?}");
        // About 30 of at most 100 were due during the stall and waited 150 ms in the mean. Counted
        // from the moment of sending, 1 of 100 would be slow, and p90 would stay near zero.
        assert!(latency.p90_us >= 100_000.0, "{latency:?}");
    }
}
