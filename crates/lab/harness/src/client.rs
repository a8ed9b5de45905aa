//! HTTP/1.1 client of one listener, which records the times and the end of each request.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout_at};

use crate::attempt::{AttemptEnd, AttemptError, LoadAttempt, LoadReply};
use crate::connection::{ClientBody, Connection, full};
use crate::wait::wait_for;

/// Largest reply in bytes; a longer one counts as cut.
const REPLY_BYTES_MAX: usize = 16 << 20;
/// Most idle connections to keep: as many as are ever in use at once.
const IDLE_MAX: usize = 4_096;
/// Time limit of a client for a request of [`LoadRequest::get`].
const GET_PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of [`LoadClient::post`]: an emulated replica that is asked to crash answers when its
/// connections are gone.
const POST_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two tries of [`LoadClient::ready`].
const READY_PAUSE: Duration = Duration::from_millis(20);
/// Header in which the gateway gives the reason for a refusal.
const SHED_REASON: &str = "x-spillway-shed-reason";
const CODE: &str = "x-spillway-code";
const REGION: &str = "x-spillway-region";
const REPLICA: &str = "x-spillway-replica";

/// Request that can be sent any number of times.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// HTTP method.
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    /// Headers, without `host`.
    pub headers: Vec<(&'static str, String)>,
    /// Body; empty for none.
    pub body: Bytes,
    /// Time limit of the client for the whole reply.
    pub patience: Duration,
    /// Pause between two pieces of the reply, for a client that reads slowly.
    pub read_pause: Option<Duration>,
}

/// HTTP client of one listener with a pool of kept connections. Clones share the pool.
#[derive(Clone)]
pub struct LoadClient {
    address: SocketAddr,
    socket: SocketMaker,
    idle: Arc<Mutex<Vec<Connection>>>,
    idle_max: usize,
    /// Time that a request takes to the listener, beyond that of the network.
    one_way: Duration,
    /// Client to use if no connection can be opened.
    fallback: Option<Arc<Self>>,
}

/// Function that makes the socket of a new connection, for example in a network namespace.
type SocketMaker = Arc<dyn Fn() -> io::Result<TcpSocket> + Send + Sync>;

/// Reason why no reply began.
enum HeadError {
    /// No connection could be opened.
    Unsent(AttemptError),
    /// The request may have been received.
    Nothing(AttemptError),
}

impl LoadRequest {
    /// Returns a GET request that may take 5 s.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: "GET",
            path: path.into(),
            headers: Vec::new(),
            body: Bytes::new(),
            patience: GET_PATIENCE,
            read_pause: None,
        }
    }

    /// Returns a POST request with a body of JSON.
    pub fn post(path: impl Into<String>, body: impl ToString, patience: Duration) -> Self {
        let get = Self { method: "POST", patience, ..Self::get(path) };
        Self { body: body.to_string().into(), ..get }.header("content-type", "application/json")
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    fn message(&self) -> Result<Request<ClientBody>, AttemptError> {
        let mut request = Request::builder().method(self.method).uri(&self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(full(self.body.clone())).map_err(broken)
    }
}

impl LoadClient {
    /// Returns a client of `address` that keeps its connections.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self::with_sockets(address, TcpSocket::new_v4)
    }

    /// Returns a client of `address` whose sockets come from `socket`.
    pub fn with_sockets(
        address: SocketAddr,
        socket: impl Fn() -> io::Result<TcpSocket> + Send + Sync + 'static,
    ) -> Self {
        let (idle, one_way) = (Arc::default(), Duration::ZERO);
        let socket = Arc::new(socket);
        Self { address, socket, idle, idle_max: IDLE_MAX, one_way, fallback: None }
    }

    /// Returns a client of `address` whose requests take `one_way` to get there. It opens a
    /// connection for each request, as clients of a DNS name do.
    #[must_use]
    pub fn at_distance(address: SocketAddr, one_way: Duration) -> Self {
        Self { idle_max: 0, one_way, ..Self::new(address) }
    }

    /// Returns this client with another one to use if no connection can be opened, as a client does
    /// that knows several addresses.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { fallback: Some(Arc::new(other)), ..self }
    }

    /// Returns the address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a request, once. `due` is the time at which it was to be sent.
    pub async fn send(&self, request: &LoadRequest, due: Instant) -> LoadAttempt {
        let sent = Instant::now();
        // From the sending on, so that a busy machine does not shorten the client's patience.
        let until = sent + request.patience;
        let (mut client, mut first_byte) = (self, None);
        let end = loop {
            let end = match client.head(request, until).await {
                Ok((response, connection)) => {
                    let (end, first) = client.read(request, response, until).await;
                    first_byte = first;
                    // Only after a whole reply can the connection be used again.
                    if let AttemptEnd::Whole(_) = end {
                        client.keep(connection);
                    }
                    end
                }
                Err(HeadError::Unsent(error)) => AttemptEnd::Unsent(error),
                Err(HeadError::Nothing(error)) => AttemptEnd::Nothing(error),
            };
            match (&end, &client.fallback) {
                (AttemptEnd::Unsent(_), Some(other)) => client = other,
                _ => break end,
            }
        };
        let (address, one_way) = (client.address, client.one_way);
        LoadAttempt { due, sent, first_byte, ended: Instant::now(), address, one_way, end }
    }

    /// Returns the body of a GET.
    ///
    /// # Errors
    /// Returns an error for anything but a whole reply with status 200.
    pub async fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        self.ask(&LoadRequest::get(path)).await
    }

    /// Sends a request that only reads. Returns the body of its reply.
    ///
    /// # Errors
    /// Returns an error for anything but a whole reply with status 200.
    pub async fn ask(&self, request: &LoadRequest) -> anyhow::Result<Bytes> {
        match self.send(request, Instant::now()).await.end {
            AttemptEnd::Whole(reply) if reply.status == 200 => Ok(reply.body),
            end => anyhow::bail!("{}{}: {end:?}", self.address, request.path),
        }
    }

    /// Sends JSON.
    ///
    /// # Errors
    /// Returns an error for anything but a whole reply with a status of success.
    pub async fn post(&self, path: &str, body: impl ToString) -> anyhow::Result<()> {
        let request = LoadRequest::post(path, body, POST_PATIENCE);
        match self.send(&request, Instant::now()).await.end {
            AttemptEnd::Whole(reply) if (200..300).contains(&reply.status) => Ok(()),
            end => anyhow::bail!("{}{path}: {end:?}", self.address),
        }
    }

    /// Waits until the listener answers `path` with 200.
    ///
    /// # Errors
    /// Returns an error if it has not within `limit`.
    pub async fn ready(&self, path: &str, limit: Duration) -> anyhow::Result<()> {
        let what = format!("{path} does not answer within {limit:?}");
        wait_for(&what, limit, READY_PAUSE, async || self.get(path).await).await.map(drop)
    }

    /// Sends a request over a kept connection or a new one, and waits for the head of the reply.
    async fn head(
        &self,
        request: &LoadRequest,
        until: Instant,
    ) -> Result<(Response<Incoming>, Connection), HeadError> {
        let late = |_| HeadError::Nothing(AttemptError::TooLate);
        let message = || request.message().map_err(HeadError::Nothing);
        while let Some(mut kept) = self.kept() {
            let message = message()?;
            let exchange = async {
                // An error means that it was closed while idle.
                kept.ready().await.ok()?;
                Some(kept.send(message).await)
            };
            match timeout_at(until.into(), exchange).await.map_err(late)? {
                Some(Ok(response)) => return Ok((response, kept)),
                Some(Err(error)) if error.message().is_none() => {
                    return Err(nothing(error.into_error()));
                }
                // Closed at this moment, and nothing was sent: a second try cannot double the
                // request.
                Some(Err(_)) | None => {}
            }
        }
        let connect = async { (self.socket)()?.connect(self.address).await };
        let stream = timeout_at(until.into(), connect)
            .await
            .map_err(|_| HeadError::Unsent(AttemptError::TooLate))?
            .map_err(|error| HeadError::Unsent(broken(error)))?;
        let exchange = async {
            sleep(self.one_way).await;
            let mut fresh = Connection::http1(stream).await.map_err(nothing)?;
            let sent = fresh.send(message()?).await;
            let response = sent.map_err(|error| nothing(error.into_error()))?;
            Ok((response, fresh))
        };
        timeout_at(until.into(), exchange).await.map_err(late)?
    }

    /// Reads a reply to its end. Returns also the time of the first byte of its body.
    async fn read(
        &self,
        request: &LoadRequest,
        response: Response<Incoming>,
        until: Instant,
    ) -> (AttemptEnd, Option<Instant>) {
        let (head, mut body) = response.into_parts();
        let text = |name: &str| {
            let value = head.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let retry_after = text(header::RETRY_AFTER.as_str()).parse().ok().map(Duration::from_secs);
        let mut reply = LoadReply {
            status: head.status.as_u16(),
            code: text(CODE),
            reason: text(SHED_REASON),
            retry_after,
            region: text(REGION),
            replica: text(REPLICA),
            body: Bytes::new(),
        };
        let (mut bytes, mut first_byte) = (BytesMut::new(), None);
        let error = loop {
            match timeout_at(until.into(), body.frame()).await {
                Ok(None) => break None,
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        first_byte.get_or_insert_with(Instant::now);
                        bytes.extend_from_slice(data);
                    }
                }
                Ok(Some(Err(error))) => break Some(AttemptError::Broken(format!("{error:?}"))),
                Err(_) => break Some(AttemptError::TooLate),
            }
            if bytes.len() > REPLY_BYTES_MAX {
                break Some(AttemptError::TooLong);
            }
            if let Some(pause) = request.read_pause {
                // wait: this client reads slowly on purpose
                sleep(pause).await;
            }
        };
        reply.body = bytes.freeze();
        let end = match error {
            None => AttemptEnd::Whole(reply),
            Some(error) => AttemptEnd::Cut(reply, error),
        };
        (end, first_byte)
    }

    fn kept(&self) -> Option<Connection> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.idle_max {
            idle.push(connection);
        }
    }
}

impl fmt::Debug for LoadClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadClient").field("address", &self.address).finish_non_exhaustive()
    }
}

fn broken(error: impl fmt::Display) -> AttemptError {
    AttemptError::Broken(error.to_string())
}

fn nothing(error: impl fmt::Debug) -> HeadError {
    HeadError::Nothing(AttemptError::Broken(format!("{error:?}")))
}

#[cfg(test)]
#[path = "client_test.rs"]
mod tests;
