//! Question to a node: does it take clients?

use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use serde_json::Value;
use tokio::time::timeout;

use crate::admin_stream;
use crate::connect::Connect;

/// Largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 4_096;

/// Asks a node if clients should be sent to it. Each question has a connection of its own, so that
/// a node which accepts none is noticed.
///
/// # Errors
/// Returns the reason why not to send clients, even if the node gives no answer in time.
pub(super) async fn ask(connect: &Connect, limit: Duration) -> Result<(), String> {
    match timeout(limit, exchange(connect)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Err(format!("unreachable: {error}")),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

async fn exchange(connect: &Connect) -> Result<Result<(), String>> {
    let request = Request::get("/steering").header(header::CONNECTION, "close");
    let asked = admin_stream::ask(connect, request, Bytes::new(), ANSWER_BYTES_MAX).await;
    let (status, body) = asked?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (status, body["send_clients"].as_bool()) {
        (StatusCode::OK, Some(true)) => Ok(Ok(())),
        (_, Some(false)) => Ok(Err(body["reason"].as_str().unwrap_or("no reason").to_owned())),
        // Another program answers there, or a node of a version without the path.
        _ => bail!("{status} and no word on clients: is it a listener of a node?"),
    }
}
