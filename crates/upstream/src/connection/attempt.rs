//! Attempt at a replica: connection, request, head of the reply.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use spillway_journey::{Connection, SOURCE_LOOK};
use spillway_types::{Deadline, SignFault};
use tokio::time::{timeout, timeout_at};
use tokio_util::task::TaskTracker;

use crate::connection::body::OutboundBody;
use crate::connection::connect::connect;
use crate::connection::error::AttemptError;
use crate::connection::http1::Http1Connection;
use crate::connection::http2::Http2Connection;
use crate::connection::line::{LineKind, Traffic, UpstreamLine};
use crate::replica::Replica;
use crate::settings::Timeouts;
use crate::upstream_body::UpstreamBody;
use crate::wake;

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
            AttemptError::Connect(_) | AttemptError::ConnectTimeout => Some(SignFault::Connect),
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
            // The signal that found the replica down has judged it already.
            | AttemptError::Down
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

/// Connects to `replica`, sends the request and waits for the reply's head. `request` is called
/// only once connected: a streamed body is not lost to a replica that cannot be reached.
///
/// # Errors
/// Returns an error if the attempt fails before the head; [`AttemptError::retry_safety`] tells if a
/// retry is safe.
pub async fn attempt(
    pools: WorkerPools<'_>,
    replica: &Replica,
    request: impl FnOnce() -> Option<Request<OutboundBody>>,
    bounds: AttemptBounds,
) -> Result<Response<UpstreamBody>, FailedAttempt> {
    let pool = replica.pool(pools.worker);
    let line = replica.line(bounds.traffic);
    let mut was_kept = false;
    let reply = async {
        match line.kind {
            LineKind::Http1 => {
                let idle = bounds.kept_from(|| pool.take(replica.spec.idle, wake::now()));
                was_kept = idle.is_some();
                over_http1(replica, &line, idle, request, bounds).await
            }
            LineKind::Http2 | LineKind::Grpc => {
                let shared = bounds.kept_from(|| pool.shared(line.kind));
                was_kept = shared.is_some();
                let mut connection = match shared {
                    Some(shared) => shared,
                    None => http2_connection(pools, replica, &line, bounds).await?,
                };
                let request = request().ok_or(AttemptError::BodyGone)?;
                let response = bounds.within(replica, connection.exchange(request)).await?;
                Ok(response.map(UpstreamBody::Http2))
            }
        }
    };
    let reply: Result<Response<UpstreamBody>, AttemptError> = match reply.await {
        // The bytes after an informational reply such as 101 are not HTTP.
        Ok(reply) if reply.status().is_informational() => Err(AttemptError::Switched),
        reply => reply,
    };
    reply.map_err(|error| FailedAttempt { error, was_kept })
}

async fn over_http1(
    replica: &Replica,
    line: &UpstreamLine<'_>,
    idle: Option<Box<Http1Connection>>,
    request: impl FnOnce() -> Option<Request<OutboundBody>>,
    bounds: AttemptBounds,
) -> Result<Response<UpstreamBody>, AttemptError> {
    let connection = match idle {
        Some(idle) => idle,
        None => {
            let stream = connect(line, bounds.connect()).await?;
            Box::new(Http1Connection::new(stream, replica.count_connection()))
        }
    };
    let request = request().ok_or(AttemptError::BodyGone)?;
    let reply = bounds.within(replica, connection.exchange(request)).await?;
    Ok(reply.map(UpstreamBody::Http1))
}

async fn http2_connection(
    pools: WorkerPools<'_>,
    replica: &Replica,
    line: &UpstreamLine<'_>,
    bounds: AttemptBounds,
) -> Result<Http2Connection, AttemptError> {
    let stream = connect(line, bounds.connect()).await?;
    let count = replica.count_connection();
    let opened = timeout(bounds.connect(), Http2Connection::new(stream, count, pools.background));
    let connection = opened.await.map_err(|_| AttemptError::ConnectTimeout)??;
    // Several requests may have connected at once; the last connection is kept, the others end with
    // their last stream.
    replica.pool(pools.worker).share(line.kind, connection.clone());
    Ok(connection)
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
        self.timeouts.connect.min(self.deadline.remaining(wake::now()))
    }

    /// Limits the wait for a reply's head, by time and by the replica going down.
    async fn within<T>(
        &self,
        replica: &Replica,
        exchange: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        let asked_at = wake::now();
        let by_first_byte = asked_at + self.timeouts.first_byte;
        let due = by_first_byte.min(self.deadline.at());
        let mut exchange = pin!(exchange);
        loop {
            let look_at = due.min(wake::now() + SOURCE_LOOK);
            if let Ok(done) = timeout_at(look_at.into(), &mut exchange).await {
                return done;
            }
            let now = wake::now();
            if now >= due {
                // The client's own deadline is no fault of the replica.
                let is_late = self.deadline.has_passed(now);
                let late = AttemptError::DeadlinePassed;
                return Err(if is_late { late } else { AttemptError::FirstByteTimeout });
            }
            if replica.is_gone(asked_at, now) {
                return Err(AttemptError::Down);
            }
        }
    }
}
