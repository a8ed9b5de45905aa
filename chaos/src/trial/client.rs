//! HTTP client with sockets inside a region, for answers of JSON.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use spillway_harness::{AttemptEnd, LoadClient, LoadRequest};

use super::inside;

/// HTTP client of one listener, in the listener's region. Reuses its connections.
#[derive(Clone, Debug)]
pub struct ApiClient(LoadClient);

/// Answer to a request.
#[derive(Clone, Debug)]
pub struct ApiAnswer {
    /// HTTP status.
    pub status: u16,
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
        inside::client(namespace, address).map(Self)
    }

    /// Sends a request that may take `limit`. An empty `body` sends none.
    ///
    /// # Errors
    /// Returns an error if no answer came in time.
    pub async fn send(
        &self,
        (method, path): (&'static str, &str),
        headers: &[(&'static str, &str)],
        body: String,
        limit: Duration,
    ) -> Result<ApiAnswer, CallError> {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let body = body.into();
        let get = LoadRequest::get(path);
        let request = LoadRequest { method, headers, body, patience: limit, ..get };
        match self.0.send(&request, Instant::now()).await.end {
            AttemptEnd::Whole(reply) => {
                let body = serde_json::from_slice(&reply.body).unwrap_or_default();
                Ok(ApiAnswer { status: reply.status, body })
            }
            AttemptEnd::Unsent(why) => Err(CallError::Unsent(why.to_string())),
            // Even a reply cut short proves that the node had the request.
            AttemptEnd::Nothing(why) | AttemptEnd::Cut(_, why) => {
                Err(CallError::Lost(why.to_string()))
            }
        }
    }
}

impl ApiAnswer {
    /// Returns true for a status of success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}
