//! One attempt: a connection, the request, the reply's head.

use std::future::Future;
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use spillway_types::Deadline;
use tokio::time::timeout;

use crate::replica::{Replica, ReplicaProtocol};
use crate::settings::Timeouts;
use crate::upstream::body::OutboundBody;
use crate::upstream::connect::connect;
use crate::upstream::error::AttemptError;
use crate::upstream::http1::Http1Connection;
use crate::upstream::http2::Http2Connection;
use crate::worker::Worker;

/// How long an attempt may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptBounds {
    pub(crate) timeouts: Timeouts,
    pub(crate) deadline: Deadline,
}

/// A reply whose head has arrived.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) response: Response<Incoming>,
    /// The connection to drive for the body; `None` over HTTP/2, whose connection drives itself.
    pub(crate) connection: Option<Box<Http1Connection>>,
}

/// Connects to `replica`, sends it what `request` makes and waits for the reply's head. The request
/// is made only then: a streamed body is not lost to a replica that can't be reached.
///
/// # Errors
/// If it fails before the head; [`AttemptError::retry_safety`] says what that means.
pub(crate) async fn attempt(
    worker: &Worker,
    replica: &Replica,
    request: impl FnOnce() -> Option<Request<OutboundBody>>,
    bounds: AttemptBounds,
) -> Result<Reply, AttemptError> {
    match replica.spec.protocol {
        ReplicaProtocol::Http1 => {
            let mut connection = http1_connection(worker, replica, bounds).await?;
            let request = request().ok_or(AttemptError::BodyGone)?;
            match bounds.within(connection.exchange(request)).await {
                Ok(response) => Ok(Reply { response, connection: Some(connection) }),
                Err(AttemptError::Reset(error)) if connection.saw_bytes() => {
                    Err(AttemptError::BadReply(error))
                }
                Err(error) => Err(error),
            }
        }
        ReplicaProtocol::Http2 => {
            let mut connection = http2_connection(worker, replica, bounds).await?;
            let request = request().ok_or(AttemptError::BodyGone)?;
            let response = bounds.within(connection.exchange(request)).await?;
            Ok(Reply { response, connection: None })
        }
    }
}

async fn http1_connection(
    worker: &Worker,
    replica: &Replica,
    bounds: AttemptBounds,
) -> Result<Box<Http1Connection>, AttemptError> {
    if let Some(idle) = replica.pool(worker.id).take(replica.spec.idle, Instant::now()) {
        return Ok(idle);
    }
    let stream = connect(replica, bounds.connect()).await?;
    Ok(Box::new(Http1Connection::new(stream, replica.count_connection()).await?))
}

async fn http2_connection(
    worker: &Worker,
    replica: &Replica,
    bounds: AttemptBounds,
) -> Result<Http2Connection, AttemptError> {
    let pool = replica.pool(worker.id);
    if let Some(shared) = pool.shared() {
        return Ok(shared);
    }
    let stream = connect(replica, bounds.connect()).await?;
    let count = replica.count_connection();
    let opened =
        timeout(bounds.connect(), Http2Connection::new(stream, count, &worker.gateway.background));
    let connection = opened.await.map_err(|_| AttemptError::ConnectTimeout)??;
    // Several requests may have connected at once; the last one's connection is kept, the others
    // end with their last stream.
    pool.share(connection.clone());
    Ok(connection)
}

impl AttemptBounds {
    fn connect(&self) -> Duration {
        self.timeouts.connect.min(self.deadline.remaining(Instant::now()))
    }

    /// Bounds the wait for a reply's head.
    async fn within<T>(
        &self,
        exchange: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        let remaining = self.deadline.remaining(Instant::now());
        let by_deadline = remaining <= self.timeouts.first_byte;
        match timeout(remaining.min(self.timeouts.first_byte), exchange).await {
            Ok(done) => done,
            Err(_) if by_deadline => Err(AttemptError::DeadlinePassed),
            Err(_) => Err(AttemptError::FirstByteTimeout),
        }
    }
}
