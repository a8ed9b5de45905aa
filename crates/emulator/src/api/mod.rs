//! Dispatch of HTTP requests: injected faults first, then the endpoints.

mod admin;
mod background;
mod chat;
mod chat_stream;
mod chunks;
mod completion_stream;
mod completions;
mod content;
mod embeddings;
mod error;
mod generate;
mod grpc;
mod logprobs;
mod media;
mod models;
mod png;
mod rerank;
mod response_items;
mod response_store;
mod responses;
mod responses_stream;
mod sampling;
mod shape;
mod sse;
mod tensor;
mod tokenize;
mod tools;
mod v2;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::body::{EventStream, OpenRequest, ReplyBody};
use crate::fault::Fault;
use crate::ledger::{CallOutcome, Ticket};
use crate::replica::EmulatedReplica;
use crate::socket::SocketSwitch;

pub(crate) use error::ApiError;
pub(crate) use grpc::{Pieces, StreamPiece};
pub(crate) use response_store::ResponseStore;

/// Request on its way through the endpoints.
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
    ticket: Option<Ticket>,
    socket: SocketSwitch,
}

/// Result of an endpoint.
pub(crate) type Reply = Result<Response<ReplyBody>, ApiError>;

/// Answers one request.
pub(crate) async fn serve(
    replica: Arc<EmulatedReplica>,
    socket: SocketSwitch,
    request: Request<Incoming>,
) -> Response<ReplyBody> {
    let (head, body) = request.into_parts();
    let mut call = ApiCall {
        replica,
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: Arc::new(head.headers),
        body: Bytes::new(),
        ticket: None,
        socket,
    };
    if call.is_inference() {
        call.ticket = Some(call.replica.ledger.receive(&call.headers));
    }
    let reply = match call.replica.fault() {
        // Control requests must reach a broken replica, to heal it.
        _ if call.is_control() => answer(&mut call, body).await,
        Fault::Hang => {
            // The wait ends when the replica crashes, or when the client disconnects and this
            // future is dropped.
            call.replica.life().over().await;
            Err(ApiError::internal("the replica crashed"))
        }
        Fault::Garbage => {
            call.socket.garble();
            Ok(Response::new(ReplyBody::whole("never sent")))
        }
        Fault::Status { code, retry_after_s, probability }
            if call.ticket.is_some() && call.replica.is_hit(probability) =>
        {
            Err(ApiError::injected(code, retry_after_s))
        }
        _ => answer(&mut call, body).await,
    };
    call.close(reply)
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

    /// Returns an error if this replica does not serve the model.
    pub(crate) fn check_model(&self, model: &str) -> Result<(), ApiError> {
        let known = self.replica.models.iter().any(|known| known == model);
        known.then_some(()).ok_or_else(|| ApiError::unknown_model(model))
    }

    /// Notes that the engine has accepted the request.
    pub(crate) fn start(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.start();
        }
    }

    /// Returns true for control requests, which also reach a broken replica.
    fn is_control(&self) -> bool {
        self.path.starts_with("/emulator/")
    }

    /// Returns the call for work that goes on beside its reply; the reply keeps the ticket.
    fn without_ticket(&self) -> Self {
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

    fn is_grpc(&self) -> bool {
        grpc::is_grpc(&self.method, &self.headers)
    }

    fn is_inference(&self) -> bool {
        if self.is_grpc() {
            return grpc::is_inference(&self.path);
        }
        let inference = self.path.starts_with("/v1/")
            || self.path.ends_with("/infer")
            || self.path == "/rerank";
        // These two give the engine no work.
        let idle = self.path.starts_with(responses::BY_ID)
            && (self.path.ends_with("/cancel") || self.path.ends_with("/input_tokens"));
        self.method == Method::POST && inference && !idle
    }

    fn close(self, reply: Reply) -> Response<ReplyBody> {
        let outcome = if reply.is_ok() { CallOutcome::Finished } else { CallOutcome::Rejected };
        let mut response = match reply {
            Ok(response) => response,
            Err(error) if self.is_grpc() => error.into_grpc(),
            Err(error) if self.path.starts_with("/v2") => error.into_v2(),
            Err(error) => error.into_openai(),
        };
        let index = HeaderValue::from(self.replica.index);
        response.headers_mut().insert("x-emulator-replica", index);
        let Some(ticket) = self.ticket else { return response };
        let request = OpenRequest { replica: self.replica, socket: self.socket, ticket, outcome };
        response.map(|body| body.answering(request))
    }
}

async fn answer(call: &mut ApiCall, body: Incoming) -> Reply {
    if call.is_grpc() {
        return grpc::answer(call, body).await;
    }
    call.body = read(body, call.replica.body_bytes_max).await?;
    let path = call.path.clone();
    if let Some(rest) = path.strip_prefix("/v2") {
        return v2::answer(call, rest).await;
    }
    match (call.method.as_str(), path.as_str()) {
        ("POST", "/v1/chat/completions") => chat::answer(call).await,
        ("POST", "/v1/completions") => completions::answer(call).await,
        ("POST", "/v1/responses") => responses::answer(call).await,
        ("POST", "/v1/responses/input_tokens") => responses::count(call),
        ("POST", "/v1/embeddings") => embeddings::answer(call).await,
        ("POST", "/v1/rerank" | "/rerank") => rerank::answer(call).await,
        ("POST", "/v1/audio/transcriptions") => media::transcribe(call).await,
        ("POST", "/v1/audio/speech") => media::speak(call).await,
        ("POST", "/v1/images/generations") => media::draw(call).await,
        ("GET", "/v1/models") => models::list(call),
        ("POST", "/tokenize") => tokenize::tokenize(call),
        ("POST", "/detokenize") => tokenize::detokenize_all(call),
        ("GET", "/health") | ("GET" | "POST", "/ping") => Ok(Response::new(ReplyBody::whole(""))),
        ("GET", "/version") => {
            let version = concat!(env!("CARGO_PKG_VERSION"), "+spillway-emulator");
            Ok(json(StatusCode::OK, &serde_json::json!({ "version": version })))
        }
        ("GET", "/metrics") => metrics(call),
        ("GET", "/emulator/stats") => admin::stats(call),
        ("GET", "/emulator/fault") => admin::fault(call),
        ("POST", "/emulator/fault") => admin::set_fault(call).await,
        (method, path) => answer_one_of(call, method, path),
    }
}

/// Answers requests for one response or one model.
fn answer_one_of(call: &ApiCall, method: &str, path: &str) -> Reply {
    if let Some(rest) = path.strip_prefix(responses::BY_ID) {
        let (id, action) = rest.split_once('/').unwrap_or((rest, ""));
        return match (method, action) {
            ("GET", "") => responses::fetch(call, id),
            ("DELETE", "") => responses::delete(call, id),
            ("GET", "input_items") => responses::input_items(call, id),
            ("POST", "cancel") => responses::cancel(call, id),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    if let Some(id) = path.strip_prefix("/v1/models/") {
        return models::fetch(call, id);
    }
    Err(ApiError::not_found(format!("there is no {method} {path}")))
}

/// Parses some fields of a body.
pub(crate) fn fields_of<T: DeserializeOwned>(body: &Value) -> Result<T, ApiError> {
    T::deserialize(body).map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::invalid(format!("the request body is not valid: {error}"), None)
}

async fn read(body: Incoming, bytes_max: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(bytes_max)),
        Err(error) => Err(ApiError::invalid(format!("the body could not be read: {error}"), None)),
    }
}

fn metrics(call: &ApiCall) -> Reply {
    let page = ReplyBody::whole(call.replica.driver.render_metrics());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(with_type(page, kind))
}

/// Returns a reply with a content type.
pub(crate) fn with_type(body: ReplyBody, content_type: &'static str) -> Response<ReplyBody> {
    let mut response = Response::new(body);
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

/// Returns a JSON reply.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<ReplyBody> {
    // The types of this crate have string keys and serializers that never fail.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut response = with_type(ReplyBody::whole(bytes), "application/json");
    *response.status_mut() = status;
    response
}

/// Returns a reply of server-sent events.
pub(crate) fn event_stream(stream: EventStream) -> Response<ReplyBody> {
    let body = ReplyBody::events(stream);
    let mut response = with_type(body, "text/event-stream; charset=utf-8");
    let value = HeaderValue::from_static("no-cache");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response
}

/// Returns the seconds since 1970, for the `created` fields of the API.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
