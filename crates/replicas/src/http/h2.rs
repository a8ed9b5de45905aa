//! HTTP/2 client: one request on a connection of its own.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest, handshake};
use http::{HeaderMap, Request};

use super::client::HttpReply;
use super::connect::HttpStream;
use super::{BODY_BYTES_MAX, RequestError};

/// Sends `request`, whose URI must be absolute, and returns the reply. hyper would need a task for
/// the connection; here the connection ends with the request.
pub(super) async fn exchange(
    stream: HttpStream,
    request: Request<Bytes>,
) -> Result<HttpReply, RequestError> {
    let (sender, connection) = handshake(stream).await.map_err(|error| broken(&error))?;
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
    let mut body = BytesMut::new();
    while let Some(piece) = stream.data().await {
        let piece = piece.map_err(|error| broken(&error))?;
        if body.len() + piece.len() > BODY_BYTES_MAX {
            return Err(RequestError::TooLarge);
        }
        body.extend_from_slice(&piece);
        stream.flow_control().release_capacity(piece.len()).map_err(|error| broken(&error))?;
    }
    let trailers = stream.trailers().await.map_err(|error| broken(&error))?;
    let trailers = trailers.unwrap_or_else(HeaderMap::new);
    Ok(HttpReply { status: head.status, headers: head.headers, body: body.freeze(), trailers })
}

fn broken(error: &h2::Error) -> RequestError {
    tracing::debug!(%error, "the HTTP/2 connection broke");
    RequestError::Broken
}
