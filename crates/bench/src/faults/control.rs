//! Single requests to control and metrics endpoints, each over a connection of its own.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;

use crate::client::connect;

/// Time limit of a request in milliseconds. Crashing a replica waits until its connections are
/// gone, which is quick.
const LIMIT_MS: u64 = 10_000;

/// Largest reply in bytes: the ledger of 4,096 requests has about 300 KB.
const REPLY_BYTES_MAX: usize = 8 << 20;

/// Sends a GET request.
///
/// # Errors
/// Returns an error if no reply comes in time.
pub(crate) async fn get(target: SocketAddr, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    send(target, Method::GET, path, Bytes::new()).await
}

/// Sends a POST request.
///
/// # Errors
/// Returns an error if no reply comes in time.
pub(crate) async fn post(
    target: SocketAddr,
    path: &str,
    body: impl Into<Bytes>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    send(target, Method::POST, path, body.into()).await
}

async fn send(
    target: SocketAddr,
    method: Method,
    path: &str,
    body: Bytes,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::HOST, target.to_string())
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    let exchange = async {
        let io = TokioIo::new(connect(target).await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        let read = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let read = Limited::new(body, REPLY_BYTES_MAX).collect().await;
            let body = read.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
            anyhow::Ok((head.status, body))
        };
        tokio::pin!(read);
        tokio::select! {
            reply = &mut read => reply,
            _ = connection => read.await,
        }
    };
    tokio::time::timeout(Duration::from_millis(LIMIT_MS), exchange)
        .await
        .with_context(|| format!("no answer from {target}{path}"))?
        .with_context(|| format!("{target}{path}"))
}
