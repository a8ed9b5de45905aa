//! Sends requests over HTTP/1.1 and records the replies.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::{
    config::replica_index,
    ending::{Ending, ExchangeReply, FaultsTransport, judge},
    plan::{FaultKind, Planned, Workload},
};
use crate::client::connect;

/// Time after which a client gives up; the budget in its header is shorter.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Largest reply in bytes; replies here have a few kilobytes.
const BODY_BYTES_MAX: usize = 1 << 20;

type Sender = SendRequest<Full<Bytes>>;

/// Pool of connections to the gateway, as many as are needed at a time.
#[derive(Debug)]
pub(crate) struct ExchangePool {
    target: SocketAddr,
    idle: Mutex<Vec<Sender>>,
    drivers: Mutex<JoinSet<()>>,
}

/// Result of one request. Times count from the start of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Number of the request.
    pub(crate) number: u32,
    /// Time at which the request was due.
    pub(crate) due: Duration,
    /// Time at which the client began to send.
    pub(crate) sent: Duration,
    /// Time of the first byte of the reply's body.
    pub(crate) first_byte: Option<Duration>,
    /// Time of the end.
    pub(crate) ended: Duration,
    /// Replica that the reply names.
    pub(crate) replica: Option<u16>,
    /// End as the client saw it.
    pub(crate) ending: Ending,
}

/// Received part of a reply. Kept outside the exchange, which the time limit may cut off.
#[derive(Debug, Default)]
struct ExchangeProgress {
    reply: ExchangeReply,
    replica: Option<u16>,
    first_byte: Option<Duration>,
}

impl ExchangePool {
    /// Returns a pool without connections.
    pub(crate) fn new(target: SocketAddr) -> Self {
        Self { target, idle: Mutex::default(), drivers: Mutex::default() }
    }

    /// Sends every planned request at its due time, whatever happened to earlier ones. Returns when
    /// all are over.
    ///
    /// # Errors
    /// Returns an error if a request cannot be built.
    pub(crate) async fn send_all(
        self: &Arc<Self>,
        workload: &Workload,
        planned: &[Planned],
        start: Instant,
    ) -> anyhow::Result<Vec<Observation>> {
        let mut tasks = JoinSet::new();
        let mut seen = Vec::with_capacity(planned.len());
        for planned in planned {
            tokio::time::sleep_until((start + planned.at).into()).await;
            let request = workload.request(planned)?;
            tasks.spawn(Arc::clone(self).observe(*planned, request, start));
            while let Some(observation) = tasks.try_join_next() {
                seen.push(observation?);
            }
        }
        while let Some(observation) = tasks.join_next().await {
            seen.push(observation?);
        }
        seen.sort_by_key(|observation| observation.number);
        Ok(seen)
    }

    /// Sends a request and checks that the answer is a success.
    ///
    /// # Errors
    /// Returns an error without an answer, or if its status is no success.
    pub(crate) async fn check(
        self: &Arc<Self>,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<()> {
        let limited = tokio::time::timeout(DEADLINE, self.ask(request));
        let reply = limited.await.context("no answer")??.0;
        anyhow::ensure!(reply.status().is_success(), "answered with {}", reply.status());
        Ok(())
    }

    async fn observe(
        self: Arc<Self>,
        planned: Planned,
        request: Request<Full<Bytes>>,
        start: Instant,
    ) -> Observation {
        let sent = start.elapsed();
        let mut progress = ExchangeProgress::default();
        let carried = self.carry(request, &mut progress, start);
        let transport = match tokio::time::timeout(DEADLINE, carried).await {
            Ok(Ok(())) => FaultsTransport::Whole,
            Ok(Err(_)) => FaultsTransport::Broken,
            Err(_) => FaultsTransport::TooLate,
        };
        Observation {
            number: planned.number,
            due: planned.at,
            sent,
            first_byte: progress.first_byte,
            ended: start.elapsed(),
            replica: progress.replica,
            ending: judge(planned.kind, &progress.reply, transport),
        }
    }

    /// Sends one request and reads the reply; an error means that the reply is not whole.
    async fn carry(
        &self,
        request: Request<Full<Bytes>>,
        progress: &mut ExchangeProgress,
        start: Instant,
    ) -> anyhow::Result<()> {
        let (response, sender) = self.ask(request).await?;
        let (head, mut body) = response.into_parts();
        let text = |name: &str| head.headers.get(name)?.to_str().ok().map(str::to_owned);
        progress.replica = text("x-spillway-replica").and_then(|name| replica_index(&name));
        progress.reply.code = text("x-spillway-code");
        progress.reply.status = Some(head.status);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            progress.first_byte.get_or_insert_with(|| start.elapsed());
            progress.reply.body.extend_from_slice(&data);
            anyhow::ensure!(progress.reply.body.len() <= BODY_BYTES_MAX, "the reply is too long");
        }
        // Only after a whole reply can the connection be used again.
        lock(&self.idle).push(sender);
        Ok(())
    }

    /// Sends over an idle connection, or over a new one if there is none or it was closed while
    /// idle.
    async fn ask(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> anyhow::Result<(Response<Incoming>, Sender)> {
        loop {
            let idle = lock(&self.idle).pop();
            let is_new = idle.is_none();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.open().await?,
            };
            // Closed while idle: try the next one.
            if sender.ready().await.is_err() && !is_new {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match error.take_message() {
                    // Nothing was sent, so a second try cannot double the request.
                    Some(unsent) if !is_new => request = unsent,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    async fn open(&self) -> anyhow::Result<Sender> {
        let io = TokioIo::new(connect(self.target).await?);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        let mut drivers = lock(&self.drivers);
        // Removes the drivers that have ended.
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move {
            // The request reports the error of the connection, and counts it.
            drop(connection.await);
        });
        Ok(sender)
    }
}

/// Locks one of the lists. A poisoned lock is fine: no panic leaves a list half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds a request outside the plan, to test if the gateway serves.
///
/// # Errors
/// None in practice.
pub(crate) fn trial(workload: &Workload) -> anyhow::Result<Request<Full<Bytes>>> {
    let plan = Workload { length: Duration::from_secs(60), ..*workload }.plan();
    let planned = plan.into_iter().find(|planned| planned.kind == FaultKind::Infer);
    let mut request = workload.request(&planned.context("no V2 request planned")?)?;
    request.headers_mut().insert("x-request-id", http::HeaderValue::from_static("trial"));
    Ok(request)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::{super::ending::Loss, *};

    const WORKLOAD: Workload = Workload {
        seed: 1,
        rate_per_s: 50.0,
        length: Duration::from_millis(400),
        prefixes: 2,
        prefix_bytes: 100,
    };

    /// Serves connections one after the other, each with one of the `answers`, then closes it.
    async fn serve(listener: TcpListener, answers: &'static [&'static str]) {
        let mut buffer = vec![0; 65_536];
        for answer in answers.iter().cycle() {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _length = stream.read(&mut buffer).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    async fn observe(answers: &'static [&'static str]) -> Vec<Observation> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pool = Arc::new(ExchangePool::new(listener.local_addr().unwrap()));
        let planned = WORKLOAD.plan();
        tokio::select! {
            seen = pool.send_all(&WORKLOAD, &planned, Instant::now()) => seen.unwrap(),
            () = serve(listener, answers) => unreachable!("it goes round for ever"),
        }
    }

    #[tokio::test]
    async fn each_request_is_observed_once_and_with_its_replica() {
        let seen = observe(&["HTTP/1.1 503 Busy\r\nx-spillway-replica: replica-3\r\n\
             x-spillway-code: overloaded\r\ncontent-length: 2\r\n\r\n{}"])
        .await;
        assert_eq!(seen.len(), WORKLOAD.plan().len());
        for (number, observation) in (0..).zip(&seen) {
            assert_eq!((observation.number, observation.replica), (number, Some(3)));
            let Ending::Failed(failure) = &observation.ending else { panic!("{observation:?}") };
            assert_eq!(failure.kind, "503 overloaded");
            assert!(observation.due <= observation.sent && observation.sent <= observation.ended);
            assert!(observation.first_byte.is_some());
        }
    }

    #[tokio::test]
    async fn a_connection_that_closes_without_a_reply_loses_the_request() {
        let seen = observe(&[""]).await;
        assert!(!seen.is_empty());
        for observation in &seen {
            assert_eq!(observation.ending, Ending::Lost(Loss::NoReply), "{observation:?}");
        }
    }
}
