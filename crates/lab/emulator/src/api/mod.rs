//! Dispatch of HTTP requests: injected faults first, then the endpoints.

mod admin;
mod background;
mod call;
mod chat;
mod chat_stream;
mod chunks;
mod completion_stream;
mod completions;
mod content;
mod draft;
mod embeddings;
mod error;
mod error_reply;
mod faults;
mod generate;
mod grpc;
mod logprobs;
mod media;
mod messages;
mod messages_body;
mod messages_stream;
mod models;
mod png;
mod reply;
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

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use crate::body::{OpenRequest, ReplyBody};
use crate::ledger::CallOutcome;
use crate::replica::EmulatedReplica;
use crate::socket::SocketSwitch;
use crate::text::mixed;
use call::{ApiCall, fields_of, read};
use error::ApiError;
use reply::{Reply, event_stream, json, with_type};
pub(crate) use response_store::ResponseStore;

/// Paths that take JSON alone, as vLLM checks it by the content type.
const JSON_PATHS: [&str; 11] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/input_tokens",
    messages::PATH,
    messages::COUNT_TOKENS,
    "/v1/embeddings",
    "/v1/rerank",
    "/rerank",
    "/tokenize",
    "/detokenize",
];

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
    if is_inference(&call) {
        call.ticket = Some(call.replica.ledger.receive(&call.headers));
    }
    let reply = if call.is_control() {
        // Control requests must reach a broken replica, to heal it.
        answer(&mut call, body).await
    } else {
        faults::answer(&mut call, body).await
    };
    close(call, reply)
}

fn is_grpc(call: &ApiCall) -> bool {
    grpc::is_grpc(&call.method, &call.headers)
}

fn is_inference(call: &ApiCall) -> bool {
    if is_grpc(call) {
        return grpc::is_inference(&call.path);
    }
    let inference =
        call.path.starts_with("/v1/") || call.path.ends_with("/infer") || call.path == "/rerank";
    // These three give the engine no work.
    let idle = call.path == messages::COUNT_TOKENS
        || call.path.starts_with(responses::BY_ID)
            && (call.path.ends_with("/cancel") || call.path.ends_with("/input_tokens"));
    call.method == Method::POST && inference && !idle
}

/// Returns the response of a call, and lets its body close the ticket.
fn close(call: ApiCall, reply: Reply) -> Response<ReplyBody> {
    let outcome = if reply.is_ok() { CallOutcome::Finished } else { CallOutcome::Rejected };
    let mut response = match reply {
        Ok(response) => response,
        Err(error) if is_grpc(&call) => error.into_grpc(),
        Err(error) if call.path.starts_with("/v2") => error.into_v2(),
        Err(error) if call.path.starts_with(messages::PATH) => {
            error.into_anthropic(&messages::request_id(&call.headers))
        }
        Err(error) => error.into_openai(),
    };
    let index = HeaderValue::from(call.replica.index);
    response.headers_mut().insert("x-emulator-replica", index);
    if call.ticket.is_some() && !is_grpc(&call) {
        encode(&call, &mut response);
    }
    let is_poisoned = call.ticket.is_some() && call.is_poisoned();
    let Some(ticket) = call.ticket else { return response };
    let (replica, socket) = (call.replica, call.socket);
    let request = OpenRequest { replica, socket, ticket, is_poisoned, outcome };
    response.map(|body| body.answering(request))
}

/// Compresses and cuts a reply as the options of the replica demand.
fn encode(call: &ApiCall, response: &mut Response<ReplyBody>) {
    let options = call.replica.options();
    if options.gzip && accepts_gzip(&call.headers) && response.body_mut().compress() {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if let (Some(seed), Some(ticket)) = (options.cut_seed, &call.ticket) {
        // Each request has cuts of its own.
        response.body_mut().cut(mixed(seed ^ ticket.number().rotate_left(32)));
    }
}

/// Returns true if the client accepts gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let codings = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    codings.into_iter().any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight != Some(0.0)
    })
}

/// Returns true if the client declares that its body is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

async fn answer(call: &mut ApiCall, body: Incoming) -> Reply {
    if is_grpc(call) {
        return grpc::answer(call, body).await;
    }
    call.body = read(body, call.replica.body_bytes_max).await?;
    let path = call.path.clone();
    if let Some(rest) = path.strip_prefix("/v2") {
        return v2::answer(call, rest).await;
    }
    if call.method == Method::POST && JSON_PATHS.contains(&&*path) && !is_json(&call.headers) {
        return Err(ApiError::no_json());
    }
    match (call.method.as_str(), path.as_str()) {
        ("POST", "/v1/chat/completions") => chat::answer(call).await,
        ("POST", "/v1/completions") => completions::answer(call).await,
        ("POST", "/v1/responses") => responses::answer(call).await,
        ("POST", "/v1/responses/input_tokens") => responses::count(call),
        ("POST", messages::PATH) => messages::answer(call).await,
        ("POST", messages::COUNT_TOKENS) => messages::count(call),
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
        ("GET", "/emulator/options") => admin::options(call),
        ("POST", "/emulator/options") => admin::set_options(call),
        ("GET", "/emulator/usage") => admin::usage(call),
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

fn metrics(call: &ApiCall) -> Reply {
    let page = ReplyBody::whole(call.replica.driver.render_metrics());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(with_type(page, kind))
}
