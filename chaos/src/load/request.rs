//! Requests of the clients.

use std::time::Duration;

use serde_json::{Value, json};
use spillway_harness::LoadRequest;

/// Tokens of a reply.
pub(crate) const TOKENS: u32 = 32;
/// Time that clients wait beyond the limit in their request, so that the gateway answers first.
const GRACE: Duration = Duration::from_secs(2);

/// Returns the time that a client waits for a request with the time limit `limit`.
pub(crate) fn patience(limit: Duration) -> Duration {
    limit + GRACE
}

/// Returns a chat request. Each number has a prompt of its own, so that no prefix cache helps.
pub(crate) fn chat(number: u64, limit: Duration) -> LoadRequest {
    of(&body(number, TOKENS, false), limit)
}

/// Returns a chat request with a streamed reply of `tokens` tokens.
pub(crate) fn stream(number: u64, tokens: u32, limit: Duration) -> LoadRequest {
    of(&body(number, tokens, true), limit)
}

/// Returns a chat request with a prompt of about `tokens` tokens.
pub(crate) fn long(number: u64, tokens: usize, limit: Duration) -> LoadRequest {
    let mut body = body(number, TOKENS, false);
    body["messages"][0]["content"] = format!("{number} {}", "data ".repeat(tokens)).into();
    of(&body, limit)
}

/// Wraps `body` into a request that carries its own time limit.
fn of(body: &Value, limit: Duration) -> LoadRequest {
    LoadRequest::post("/v1/chat/completions", body, patience(limit))
        .header("x-request-timeout-ms", limit.as_millis())
}

fn body(number: u64, tokens: u32, is_stream: bool) -> Value {
    let content = format!("Number {number}: say what the river does when the gate opens.");
    json!({
        "model": "tiny", "max_tokens": tokens, "ignore_eos": true, "stream": is_stream,
        "messages": [{ "role": "user", "content": content }],
    })
}
