//! HTTP/2 client: one request on a connection of its own.

use std::pin::pin;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{HeaderMap, Request};

use super::RequestError;
use super::client::{HEAD_BYTES_MAX, HttpReply};
use super::connect::HttpStream;
use super::reply_body::ReplyBody;

/// Sends `request`, whose URI must be absolute, and returns the reply. hyper would need a task for
/// the connection; here the connection ends with the request.
pub(super) async fn exchange(
    stream: HttpStream,
    request: Request<Bytes>,
) -> Result<HttpReply, RequestError> {
    let mut builder = Builder::new();
    // By default the library takes 16 MiB of fields, and streams that nothing asked for.
    builder.max_header_list_size(HEAD_BYTES_MAX as u32).enable_push(false);
    let opened = builder.handshake(stream).await;
    let (sender, connection) = opened.map_err(|error| broken(&error))?;
    let mut exchange = pin!(converse(sender, request));
    // The exchange makes progress only while the connection is driven.
    tokio::select! {
        biased;
        outcome = exchange.as_mut() => return outcome,
        _ = connection => {}
    }
    // Data that arrived before the connection ended must still be read.
    exchange.await
}

async fn converse(
    sender: SendRequest<Bytes>,
    request: Request<Bytes>,
) -> Result<HttpReply, RequestError> {
    let mut sender = sender.ready().await.map_err(|error| broken(&error))?;
    let (head, body) = request.into_parts();
    let (reply, mut upload) = sender
        .send_request(Request::from_parts(head, ()), body.is_empty())
        .map_err(|error| broken(&error))?;
    if !body.is_empty() {
        // `h2` keeps the bytes that exceed the window, and the connection sends them later.
        upload.send_data(body, true).map_err(|error| broken(&error))?;
    }
    receive(reply).await
}

async fn receive(reply: ResponseFuture) -> Result<HttpReply, RequestError> {
    let (head, mut stream) = reply.await.map_err(|error| broken(&error))?.into_parts();
    let mut body = ReplyBody::default();
    while let Some(piece) = stream.data().await {
        let piece = piece.map_err(|error| broken(&error))?;
        body.push(&piece)?;
        stream.flow_control().release_capacity(piece.len()).map_err(|error| broken(&error))?;
    }
    let trailers = stream.trailers().await.map_err(|error| broken(&error))?;
    let trailers = trailers.unwrap_or_else(HeaderMap::new);
    let (body, _hold) = body.finish();
    Ok(HttpReply { status: head.status, headers: head.headers, body, trailers, _hold })
}

fn broken(error: &h2::Error) -> RequestError {
    tracing::debug!(%error, "the HTTP/2 connection broke");
    RequestError::Broken
}
