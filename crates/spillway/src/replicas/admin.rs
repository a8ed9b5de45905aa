//! Requests to a node's admin listener.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{Method, Request, header};
use serde_json::Value;
use tokio::time::timeout;

use crate::admin_stream;
use crate::connect::Connect;

/// Time for the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer, in bytes: 1,000 replicas take about 1 MB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Returns the answer at `path`.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn get(connect: &Connect, path: &str) -> Result<Value> {
    ask(connect, Method::GET, path, Bytes::new()).await
}

/// Sends `body` to `path`.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn post(connect: &Connect, path: &str, body: &Value) -> Result<Value> {
    ask(connect, Method::POST, path, body.to_string().into()).await
}

/// Returns `/replicas/{name}/{action}`, with the name escaped.
pub(crate) fn replica_path(name: &str, action: &str) -> String {
    let name: String = name.bytes().map(escaped).collect();
    format!("/replicas/{name}/{action}")
}

fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}

async fn ask(connect: &Connect, method: Method, path: &str, body: Bytes) -> Result<Value> {
    let asked = timeout(TIMEOUT, exchange(connect, method, path, body));
    asked.await.with_context(|| format!("the node at {} does not answer", connect.admin))?
}

async fn exchange(connect: &Connect, method: Method, path: &str, body: Bytes) -> Result<Value> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = connect.authorization()? {
        request = request.header(header::AUTHORIZATION, token);
    }
    let (status, bytes) = admin_stream::ask(connect, request, body, ANSWER_BYTES_MAX).await?;
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if !status.is_success() {
        // A refused caller gets the error format of the rest of the admin API.
        let error = answer["error"].as_str().or_else(|| answer["error"]["cause"].as_str());
        bail!("{}", error.unwrap_or(status.as_str()));
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(replica_path("gpu-1", "drain"), "/replicas/gpu-1/drain");
        assert_eq!(replica_path("a/b c", "drain"), "/replicas/a%2Fb%20c/drain");
    }
}
