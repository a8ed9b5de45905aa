//! `POST /v1/messages` and `/v1/messages/count_tokens` of Anthropic's API, served as a chat.

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::chat::{self, StartedChat};
use super::messages_body::chat_of;
use super::messages_stream::MessageEvents;
use super::{ApiCall, ApiError, Reply, event_stream, json};
use crate::answer::{Answer, Finish};
use crate::usage::TokenUsage;

/// Path of the endpoint.
pub(crate) const PATH: &str = "/v1/messages";
/// Path of the endpoint that counts tokens.
pub(crate) const COUNT_TOKENS: &str = "/v1/messages/count_tokens";

/// Handles `POST /v1/messages`.
pub(crate) async fn answer(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    if body["max_tokens"].is_null() {
        return Err(ApiError::invalid("max_tokens: Field required", Some("max_tokens")));
    }
    let StartedChat { model, sampling, started, call_ids } = chat::start(call, &chat_of(&body)?)?;
    let call_ids = message_ids(call_ids);
    let head = json!({
        "id": started.id(call, "msg_"),
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": model,
        "stop_reason": null,
        "stop_sequence": null,
    });
    if sampling.is_stream() {
        let tells_cached_late = call.replica.options().late_cached_tokens;
        let format = MessageEvents::new(head, started.prompt_tokens(), call_ids, tells_cached_late);
        return Ok(event_stream(started.into_stream(format)));
    }
    let (answers, usage) = started.finished(call).await?;
    let mut body = head;
    if let Some(answer) = answers.first() {
        let (reason, sequence) = stop_of(answer);
        body["content"] = content(answer, &call_ids);
        body["stop_reason"] = reason.into();
        body["stop_sequence"] = sequence.into();
    }
    body["usage"] = usage_json(usage);
    Ok(json(StatusCode::OK, &body))
}

/// Handles `POST /v1/messages/count_tokens`.
pub(crate) fn count(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    let tokens = chat::count(call, &chat_of(&body)?)?;
    Ok(json(StatusCode::OK, &json!({ "input_tokens": tokens })))
}

/// Returns the id of a request in the form of Anthropic's API.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get("x-request-id").and_then(|value| value.to_str().ok());
    given.map_or_else(|| "req_emulated".to_owned(), str::to_owned)
}

/// Returns the reason of an answer's end, and the stop sequence that ended it. As in vLLM, an
/// answer that was aborted has no reason.
pub(super) fn stop_of(answer: &Answer) -> (Option<&'static str>, Option<&str>) {
    let has_calls = answer.calls_made() > 0;
    match (answer.finish, answer.stop.as_deref()) {
        _ if answer.early_end.is_some() => (None, None),
        (Finish::Length, _) => (Some("max_tokens"), None),
        (Finish::Stop, _) if has_calls => (Some("tool_use"), None),
        (Finish::Stop, Some(stop)) => (Some("stop_sequence"), Some(stop)),
        (Finish::Stop, None) => (Some("end_turn"), None),
    }
}

/// Returns the usage in the form of Anthropic's API: `input_tokens` without the cached ones.
pub(super) fn usage_json(usage: TokenUsage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    })
}

fn content(answer: &Answer, call_ids: &[String]) -> Value {
    if answer.calls.names.is_empty() {
        return json!([{ "type": "text", "text": answer.text() }]);
    }
    let calls = (0..answer.calls_made()).map(|call| {
        let arguments = answer.arguments(call).unwrap_or_default();
        // Arguments that were cut are no JSON.
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        let name = &answer.calls.names[call];
        json!({ "type": "tool_use", "id": call_ids[call], "name": name, "input": input })
    });
    calls.collect()
}

/// Returns the ids of the calls of the only answer, with the prefix of Anthropic's API.
fn message_ids(call_ids: Vec<Vec<String>>) -> Vec<String> {
    call_ids.into_iter().flatten().map(|id| id.replacen("call_", "toolu_", 1)).collect()
}
