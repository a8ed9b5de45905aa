//! HTTP client with sockets inside a region.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::timeout;

use super::door::Door;
use super::task::spawn;

/// Largest answer in bytes: lists of a few records.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Most idle connections to keep: as many as requests are ever in flight.
const IDLE_MAX: usize = 256;

/// HTTP client of one listener, in the listener's region. Reuses its connections.
#[derive(Clone, Debug)]
pub struct ApiClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    door: Door,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// Answer to a request.
#[derive(Clone, Debug)]
pub struct ApiAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// Body; `null` if that is not JSON.
    pub body: Value,
}

/// Error of a request without an answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request was not sent.
    #[error("not sent: {0}")]
    Unsent(String),
    /// The request was sent and may have been received.
    #[error("no answer: {0}")]
    Lost(String),
}

impl ApiClient {
    /// Returns a client of `address` in the namespace of the file `namespace`.
    ///
    /// # Errors
    /// Returns an error if there is no such file.
    pub fn inside(namespace: &str, address: SocketAddr) -> io::Result<Self> {
        let door = Door::inside(namespace, address)?;
        Ok(Self(Arc::new(Inner { door, idle: Mutex::default() })))
    }

    /// Sends a request. An empty `body` sends none. Connecting and the exchange each may take
    /// `limit`.
    ///
    /// # Errors
    /// Returns an error if no answer came in time.
    pub async fn send(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: String,
        limit: Duration,
    ) -> Result<ApiAnswer, CallError> {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::HOST, self.0.door.address().to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let unsent = |error: &dyn std::fmt::Display| CallError::Unsent(error.to_string());
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| unsent(&error))?;
        let connection = timeout(limit, self.connection()).await;
        let connection = connection.map_err(|error| unsent(&error))?;
        let mut connection = connection.map_err(|error| unsent(&error))?;
        let lost = |error: &dyn std::fmt::Display| CallError::Lost(error.to_string());
        let answer = timeout(limit, exchange(&mut connection, request)).await;
        let answer = answer.map_err(|error| lost(&error))?.map_err(|error| lost(&error))?;
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(answer)
    }

    async fn connection(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        while let Some(mut idle) = self.idle() {
            if !idle.is_closed() && idle.ready().await.is_ok() {
                return Ok(idle);
            }
        }
        let stream = self.0.door.connect().await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The request reports the error of the connection, too.
        spawn(async move { drop(connection.await) });
        Ok(sender)
    }

    fn idle(&self) -> Option<SendRequest<Full<Bytes>>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

async fn exchange(
    connection: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<ApiAnswer> {
    let response = connection.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok(ApiAnswer { status, body: serde_json::from_slice(&body).unwrap_or_default() })
}
