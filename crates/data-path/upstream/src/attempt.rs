//! Attempt at a replica: connection, request, head of the reply.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use spillway_journey::{Connection, SOURCE_LOOK};
use spillway_transport::coarse_clock;
use spillway_types::{Deadline, SignFault};
use tokio::time::{timeout, timeout_at};
use tokio_util::task::TaskTracker;

use crate::body::OutboundBody;
use crate::connect::connect;
use crate::error::AttemptError;
use crate::http1::Http1Connection;
use crate::http2::{Http2Connection, OpenStream};
use crate::kept_body::{GivenBack, KeptBody};
use crate::line::{LineKind, Traffic, UpstreamLine};
use crate::replica_connections::ReplicaConnections;
use crate::shared_connections::{OpeningTurn, StreamOrTurn};
use crate::timeouts::Timeouts;
use crate::upstream_body::UpstreamBody;

/// Most times that a request is sent which a replica does not take: one that refuses it on two new
/// connections refuses others, too.
const SENT_MAX: u32 = 3;

/// Longest wait for the body of a request that was refused.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(1);

/// Limits and kind of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct AttemptBounds {
    /// Time limits of the route.
    pub timeouts: Timeouts,
    /// Deadline of the request.
    pub deadline: Deadline,
    /// Connection that may be used: a kept one or a new one.
    pub connection: Connection,
    /// Kind of traffic.
    pub traffic: Traffic,
}

/// An attempt without a reply.
#[derive(Debug)]
pub struct FailedAttempt {
    /// Cause.
    pub error: AttemptError,
    /// True if the connection had served before.
    pub was_kept: bool,
}

impl FailedAttempt {
    /// Returns the replica's fault, if any. A kept connection that broke is none: servers may close
    /// idle connections at any time.
    pub fn fault(&self) -> Option<SignFault> {
        match self.error {
            AttemptError::Connect(_) | AttemptError::Name(_) => Some(SignFault::Connect),
            AttemptError::ConnectTimeout => Some(SignFault::ConnectTimeout),
            AttemptError::Unsent(_) | AttemptError::Reset(_) if !self.was_kept => {
                Some(SignFault::Reset)
            }
            AttemptError::BadReply(_) | AttemptError::Switched => Some(SignFault::BadReply),
            AttemptError::FirstByteTimeout => Some(SignFault::Silent),
            AttemptError::EngineDying | AttemptError::EngineDraining => Some(SignFault::EngineGone),
            AttemptError::Aborted | AttemptError::Unfinished | AttemptError::Cut => {
                Some(SignFault::Cut)
            }
            AttemptError::Unsent(_)
            | AttemptError::Reset(_)
            // Servers close connections by age, and say how many streams they take.
            | AttemptError::Refused(_)
            // The node's own fault.
            | AttemptError::Shortage(_)
            // The signal that found the replica down has judged it already.
            | AttemptError::Down
            // Other models may be served there.
            | AttemptError::NoModel
            | AttemptError::DeadlinePassed
            | AttemptError::BodyGone
            | AttemptError::ClientBody(_) => None,
        }
    }
}

/// Pools of one worker at the replicas, and the tasks that drive shared connections.
#[derive(Clone, Copy, Debug)]
pub struct WorkerPools<'a> {
    /// Number of the worker.
    pub worker: usize,
    /// Tasks of connections that drive themselves: they live as long as their pools.
    pub background: &'a TaskTracker,
}

/// Request of an attempt, as its sender has it.
pub trait Sending {
    /// Creates the request; `None` if it can't be sent again. Called only once connected: a streamed
    /// body is not lost to a replica that cannot be reached. Called again if the replica did not take
    /// the request.
    fn request(&mut self) -> Option<Request<OutboundBody>>;

    /// Returns true if the replica went down after the request was sent at `asked_at`, so that its
    /// reply is not worth waiting for at `now`. Called now and then during the wait for the reply.
    fn is_lost(&self, asked_at: Instant, now: Instant) -> bool;
}

/// Connects to a replica, sends the request and waits for the reply's head.
///
/// # Errors
/// Returns an error if the attempt fails before the head; [`AttemptError::retry_safety`] returns
/// whether a retry is safe.
pub async fn attempt(
    pools: WorkerPools<'_>,
    replica: &ReplicaConnections,
    sending: &mut impl Sending,
    bounds: AttemptBounds,
) -> Result<Response<UpstreamBody>, FailedAttempt> {
    let line = replica.line(bounds.traffic);
    let exchange = AttemptExchange { pools, replica, line, bounds };
    let mut was_kept = false;
    let reply = match exchange.line.kind {
        LineKind::Http1 => exchange.over_http1(sending, &mut was_kept).await,
        LineKind::Http2 | LineKind::Grpc => exchange.over_http2(sending, &mut was_kept).await,
    };
    let reply: Result<Response<UpstreamBody>, AttemptError> = match reply {
        // The bytes after an informational reply such as 101 are not HTTP.
        Ok(reply) if reply.status().is_informational() => Err(AttemptError::Switched),
        reply => reply,
    };
    reply.map_err(|error| FailedAttempt { error, was_kept })
}

/// Exchange of one request and its reply's head with a replica.
struct AttemptExchange<'a> {
    pools: WorkerPools<'a>,
    replica: &'a ReplicaConnections,
    line: UpstreamLine<'a>,
    bounds: AttemptBounds,
}

impl AttemptExchange<'_> {
    /// Sends the request over a connection of its own. If a kept one was closing, the request is sent
    /// again on a new one.
    async fn over_http1(
        &self,
        sending: &mut impl Sending,
        was_kept: &mut bool,
    ) -> Result<Response<UpstreamBody>, AttemptError> {
        let Self { pools, replica, bounds, .. } = self;
        let idle = bounds.kept_from(|| replica.take_idle(pools.worker, coarse_clock::now()));
        *was_kept = idle.is_some();
        let connection = match idle {
            Some(idle) => idle,
            None => self.connect().await?,
        };
        let first = sending.request().ok_or(AttemptError::BodyGone)?;
        let reply = bounds.within(connection.exchange(first), sending).await;
        let reply = match reply {
            reply if *was_kept && was_closing(&reply) => match sending.request() {
                Some(again) => {
                    *was_kept = false;
                    let connection = self.connect().await?;
                    bounds.within(connection.exchange(again), sending).await?
                }
                None => reply?,
            },
            reply => reply?,
        };
        Ok(reply.map(UpstreamBody::Http1))
    }

    async fn connect(&self) -> Result<Box<Http1Connection>, AttemptError> {
        let (stream, address) = connect(&self.line, self.bounds.connect()).await?;
        Ok(Box::new(Http1Connection::new(stream, address, self.replica.count_connection())))
    }

    /// Sends the request over a shared connection. Servers close those by age, or take fewer streams
    /// than they did: a request that was not taken is sent again, on a new connection.
    async fn over_http2(
        &self,
        sending: &mut impl Sending,
        was_kept: &mut bool,
    ) -> Result<Response<UpstreamBody>, AttemptError> {
        let mut returned: Option<Box<Request<OutboundBody>>> = None;
        let mut connection = self.bounds.connection;
        let mut times_left = SENT_MAX;
        loop {
            let (stream, is_kept) = self.stream(connection).await?;
            *was_kept = is_kept;
            let next = match returned.take() {
                Some(returned) => *returned,
                None => sending.request().ok_or(AttemptError::BodyGone)?,
            };
            let (next, spare) = SpareRequest::of(next);
            let exchange = self.bounds.within(stream.exchange(next), sending);
            let failed = match exchange.await {
                Ok(reply) => return Ok(reply.map(UpstreamBody::Http2)),
                Err(failed) => failed,
            };
            times_left -= 1;
            let was_taken = match &failed.error {
                AttemptError::Refused(_) => false,
                // On a new connection this is the server's way to refuse all.
                AttemptError::Unsent(_) => !is_kept,
                _ => true,
            };
            if was_taken || times_left == 0 {
                return Err(failed.error);
            }
            connection = Connection::New;
            returned = match (failed.request, spare) {
                (Some(untouched), _) => Some(untouched),
                (None, Some(spare)) => Some(Box::new(spare.request().await.ok_or(failed.error)?)),
                (None, None) => Some(Box::new(sending.request().ok_or(failed.error)?)),
            };
        }
    }

    /// Returns a stream, and true if its connection has served before.
    async fn stream(&self, connection: Connection) -> Result<(OpenStream, bool), AttemptError> {
        let shared = self.replica.pool(self.pools.worker).shared(self.line.kind);
        let kept = match connection {
            Connection::KeptOrNew => shared.take(),
            Connection::New => None,
        };
        if let Some(stream) = kept {
            return Ok((stream, true));
        }
        let opened = timeout(self.bounds.connect(), async {
            let turn = match connection {
                Connection::KeptOrNew => shared.find().await,
                Connection::New => StreamOrTurn::Turn(shared.turn()),
            };
            match turn {
                StreamOrTurn::Stream(stream) => Ok((stream, true)),
                StreamOrTurn::Turn(turn) => Ok((self.open(turn).await?, false)),
            }
        });
        opened.await.map_err(|_| AttemptError::ConnectTimeout)?
    }

    async fn open(&self, turn: OpeningTurn<'_>) -> Result<OpenStream, AttemptError> {
        let (stream, address) = connect(&self.line, self.bounds.connect()).await?;
        let count = self.replica.count_connection();
        let connection =
            Http2Connection::new(stream, address, count, self.pools.background).await?;
        self.replica.note_streams_max(self.line.kind, connection.streams_max());
        // Taken first: the others may need all the rest.
        let stream = connection.first_stream();
        turn.add(&connection);
        Ok(stream)
    }
}

/// Parts needed to send a request again whose body comes straight from the client.
struct SpareRequest {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: GivenBack,
}

impl SpareRequest {
    /// Returns the request in a form that can be sent again, unless its body is in memory.
    fn of(request: Request<OutboundBody>) -> (Request<OutboundBody>, Option<Self>) {
        if matches!(request.body(), OutboundBody::Buffered { .. }) {
            return (request, None);
        }
        let (head, body) = request.into_parts();
        let (method, uri, headers) = (head.method.clone(), head.uri.clone(), head.headers.clone());
        let (body, given_back) = KeptBody::of(body);
        let spare = Self { method, uri, headers, body: given_back };
        (Request::from_parts(head, body), Some(spare))
    }

    /// Returns the request again; `None` if more of its body is gone than is kept.
    async fn request(self) -> Option<Request<OutboundBody>> {
        // The library drops the body in a task of its own.
        let body = timeout(GIVEN_BACK_MAX, self.body).await.ok()?.ok()?;
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        Some(request)
    }
}

/// Returns true if a kept connection was closed before its server saw the request: no byte of it was
/// written, or the reply is the farewell of a server that has waited for a request for too long.
fn was_closing(reply: &Result<Response<Box<Http1Connection>>, AttemptError>) -> bool {
    match reply {
        Ok(reply) => reply.status() == StatusCode::REQUEST_TIMEOUT && !reply.body().keeps_alive(),
        Err(error) => matches!(error, AttemptError::Unsent(_)),
    }
}

impl AttemptBounds {
    /// Returns a connection that has served before, if the attempt may use one.
    fn kept_from<T>(&self, take: impl FnOnce() -> Option<T>) -> Option<T> {
        match self.connection {
            Connection::KeptOrNew => take(),
            Connection::New => None,
        }
    }

    fn connect(&self) -> Duration {
        self.timeouts.connect.min(self.deadline.remaining(coarse_clock::now()))
    }

    /// Limits the wait for a reply's head, by time and by the replica going down.
    #[expect(clippy::needless_pass_by_ref_mut, reason = "a shared reference would not be Send")]
    async fn within<T, E: From<AttemptError>>(
        &self,
        exchange: impl Future<Output = Result<T, E>>,
        sending: &mut impl Sending,
    ) -> Result<T, E> {
        let asked_at = coarse_clock::now();
        let by_first_byte = asked_at + self.timeouts.first_byte;
        let due = by_first_byte.min(self.deadline.at());
        let mut exchange = pin!(exchange);
        loop {
            let look_at = due.min(coarse_clock::now() + SOURCE_LOOK);
            if let Ok(done) = timeout_at(look_at.into(), &mut exchange).await {
                return done;
            }
            let now = coarse_clock::now();
            if now >= due {
                // The client's own deadline is no fault of the replica.
                let is_late = self.deadline.has_passed(now);
                let late = AttemptError::DeadlinePassed;
                return Err(if is_late { late } else { AttemptError::FirstByteTimeout }.into());
            }
            if sending.is_lost(asked_at, now) {
                return Err(AttemptError::Down.into());
            }
        }
    }
}

#[cfg(test)]
#[path = "attempt_test.rs"]
mod attempt_test;
