//! From an HTTP request to its reply: faults first, then the endpoint.

mod admin;
mod base64;
mod chat;
mod completions;
mod embeddings;
mod error;
mod generate;
mod media;
mod models;
mod png;
mod rerank;
mod response_store;
mod responses;
mod responses_stream;
mod sse;
mod tensor;
mod v2;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::{EventStream, OpenRequest, ReplyBody};
use crate::fault::Fault;
use crate::ledger::Outcome;
use crate::replica::Replica;
use crate::socket::SocketSwitch;

pub(crate) use error::ApiError;
pub(crate) use response_store::ResponseStore;

/// A request, read to its end.
pub(crate) struct Call {
    pub(crate) replica: Arc<Replica>,
    pub(crate) socket: SocketSwitch,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Arc<HeaderMap>,
    pub(crate) body: Bytes,
}

/// What an endpoint answers.
pub(crate) type Reply = Result<Response<ReplyBody>, ApiError>;

/// Answers one request.
pub(crate) async fn serve(
    replica: Arc<Replica>,
    socket: SocketSwitch,
    request: Request<Incoming>,
) -> Response<ReplyBody> {
    let index = replica.index;
    let (head, body) = request.into_parts();
    let call = Call {
        replica,
        socket,
        method: head.method,
        path: head.uri.path().to_owned(),
        headers: Arc::new(head.headers),
        body: Bytes::new(),
    };
    let mut response = if call.path.starts_with("/emulator/") {
        let call = read(call, body).await;
        finish(&call, answer_control(&call).await)
    } else {
        serve_faulty(call, body).await
    };
    response.headers_mut().insert("x-emulator-replica", HeaderValue::from(index));
    response
}

/// Answers a request that a fault may hit.
async fn serve_faulty(call: Call, body: Incoming) -> Response<ReplyBody> {
    match call.replica.fault() {
        Fault::Hang => {
            let ticket = is_inference(&call).then(|| call.replica.ledger.receive(&call.headers));
            // Only a crash ends it, or the client, which drops this future.
            call.replica.life().over().await;
            drop(ticket);
            return Response::new(ReplyBody::whole(""));
        }
        Fault::Garbage => call.socket.garble(),
        _ => {}
    }
    if is_inference(&call) {
        return serve_inference(call, body).await;
    }
    let call = read(call, body).await;
    finish(&call, answer_plain(&call))
}

async fn serve_inference(call: Call, body: Incoming) -> Response<ReplyBody> {
    let ticket = call.replica.ledger.receive(&call.headers);
    let (call, reply) = match injected_error(&call.replica) {
        Some(error) => (call, Err(error)),
        None => match read(call, body).await {
            Ok(call) => {
                let reply = answer_inference(&call).await;
                (call, reply)
            }
            Err((call, error)) => (call, Err(error)),
        },
    };
    let outcome = if reply.is_ok() { Outcome::Finished } else { Outcome::Rejected };
    if reply.is_ok() {
        ticket.start();
    }
    let response = finish(&call, reply);
    let Call { replica, socket, .. } = call;
    let request = OpenRequest { replica, socket, ticket, outcome };
    response.map(|body| body.answering(request))
}
