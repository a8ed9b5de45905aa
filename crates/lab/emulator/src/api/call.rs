//! Call of an endpoint: the request and its replica.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::ApiError;
use crate::ledger::Ticket;
use crate::options::StreamOptionsSchema;
use crate::replica::EmulatedReplica;
use crate::socket::SocketSwitch;
use crate::usage::TokenUsage;

/// Word that makes a request deadly for a replica whose fault is `Die` with `only_poisoned`.
const POISON: &str = "POISON";

/// Request as it passes through the endpoints.
pub(crate) struct ApiCall {
    pub(crate) replica: Arc<EmulatedReplica>,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Query string without the question mark; empty if there is none.
    pub(crate) query: String,
    pub(crate) headers: Arc<HeaderMap>,
    /// Body of the request; empty until it was read.
    pub(crate) body: Bytes,
    /// Ticket of the request in the ledger; `None` for requests that are not counted.
    pub(super) ticket: Option<Ticket>,
    pub(super) socket: SocketSwitch,
}

impl ApiCall {
    /// Parses the body as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_json::from_slice(&self.body).map_err(|error| malformed(&error))
    }

    /// Returns the first value of a query parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
    }

    /// Returns the id by which KV events name the request, as vLLM takes it from the headers.
    pub(crate) fn session(&self) -> Option<&str> {
        self.headers.get("x-session-id")?.to_str().ok()
    }

    /// Returns an error if this replica does not serve the model.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), ApiError> {
        let known = self.replica.models.iter().any(|known| known == model);
        known.then_some(()).ok_or_else(|| ApiError::unknown_model(model))
    }

    /// Returns an error if `stream_options` has a member that the replica's options do not accept.
    pub(crate) fn check_stream_options(&self, body: &Value) -> Result<(), ApiError> {
        let schema = self.replica.options().stream_options;
        let Some(members) = body["stream_options"].as_object() else { return Ok(()) };
        if schema == StreamOptionsSchema::None {
            return Err(ApiError::unknown_field("stream_options"));
        }
        match members.keys().find(|member| !schema.accepts(member)) {
            Some(member) => Err(ApiError::unknown_field(&format!("stream_options.{member}"))),
            None => Ok(()),
        }
    }

    /// Notes that the engine has accepted the request.
    pub(crate) fn start(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.start();
        }
    }

    /// Notes the tokens of the request so far.
    pub(crate) fn note_usage(&self, usage: TokenUsage) {
        if let Some(ticket) = &self.ticket {
            ticket.note_usage(usage);
        }
    }

    /// Notes that a fault ended the answer before its own end.
    pub(crate) fn note_early_end(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.note_early_end();
        }
    }

    /// Returns true if the request's body contains [`POISON`].
    pub(super) fn is_poisoned(&self) -> bool {
        std::str::from_utf8(&self.body).is_ok_and(|body| body.contains(POISON))
    }

    /// Returns true for control requests, which also reach a broken replica.
    pub(super) fn is_control(&self) -> bool {
        self.path.starts_with("/emulator/")
    }

    /// Returns the call for work that goes on beside its reply; the reply keeps the ticket.
    pub(super) fn without_ticket(&self) -> Self {
        Self {
            replica: Arc::clone(&self.replica),
            method: self.method.clone(),
            path: self.path.clone(),
            query: self.query.clone(),
            headers: Arc::clone(&self.headers),
            body: Bytes::new(),
            ticket: None,
            socket: self.socket.clone(),
        }
    }
}

/// Parses some fields of a body.
pub(crate) fn fields_of<T: DeserializeOwned>(body: &Value) -> Result<T, ApiError> {
    T::deserialize(body).map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::invalid(format!("the request body is not valid: {error}"), None)
}

/// Reads a whole body of up to `bytes_max` bytes.
pub(super) async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(bytes_max)),
        Err(error) => Err(ApiError::invalid(format!("the body could not be read: {error}"), None)),
    }
}
