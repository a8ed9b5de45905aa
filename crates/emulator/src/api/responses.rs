//! `POST /v1/responses`, `GET` and `DELETE /v1/responses/{id}`.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::text::{Answer, Conversation, Finish};

use super::chat::content_text;
use super::generate::{self, Sampling, Usage};
use super::response_store::Stored;
use super::responses_stream::ResponseEvents;
use super::{ApiError, Call, Reply, event_stream, json, unix_seconds};

#[derive(Debug, Deserialize)]
struct ResponsesRequest {
    model: String,
    input: Value,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    store: Option<bool>,
    #[serde(default)]
    metadata: Value,
    #[serde(flatten)]
    sampling: Sampling,
}

pub(crate) async fn answer(call: &Call) -> Reply {
    let request: ResponsesRequest = call.json()?;
    call.check_model(&request.model)?;
    let mut conversation = previous(call, request.previous_response_id.as_deref())?;
    if let Some(instructions) = &request.instructions {
        conversation.push("system", instructions);
    }
    push_input(&mut conversation, &request.input)?;
    let prompt = conversation.into_prompt();
    let started = generate::start(call, &prompt, &request.sampling)?;
    let draft = Draft {
        id: started.id(call, "resp_"),
        message_id: started.id(call, "msg_"),
        created: unix_seconds(),
        model: request.model,
        instructions: request.instructions,
        previous_response_id: request.previous_response_id,
        metadata: request.metadata,
        store: request.store.unwrap_or(true).then_some(prompt),
    };
    if request.sampling.is_stream() {
        let (usage, answer) = (started.usage(0), started.answer.clone());
        let format = ResponseEvents::new(call.replica.clone(), draft, answer, usage);
        return Ok(event_stream(started.into_stream(format)));
    }
    let (answer, usage) = started.finished().await?;
    let body = draft.completed(&answer, usage);
    draft.keep(&call.replica, &answer, &body);
    Ok(json(StatusCode::OK, &body))
}

/// `GET /v1/responses/{id}`.
pub(crate) fn fetch(call: &Call, id: &str) -> Reply {
    let responses = call.replica.responses();
    let stored = responses.find(id).ok_or_else(|| unknown(id))?;
    Ok(json(StatusCode::OK, &stored.body))
}

/// `DELETE /v1/responses/{id}`.
pub(crate) fn delete(call: &Call, id: &str) -> Reply {
    if !call.replica.responses().remove(id) {
        return Err(unknown(id));
    }
    Ok(json(StatusCode::OK, &json!({ "id": id, "object": "response", "deleted": true })))
}

/// A response that is being made.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) message_id: String,
    created: u64,
    model: String,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    metadata: Value,
    /// The prompt, if the response is to be stored.
    store: Option<Vec<u32>>,
}

impl Draft {
    /// The response before its end.
    pub(crate) fn in_progress(&self) -> Value {
        self.body("in_progress", &json!([]), &Value::Null)
    }

    /// The response at its end.
    pub(crate) fn completed(&self, answer: &Answer, usage: Usage) -> Value {
        let status = status(answer.finish);
        let output = json!([self.message(status, &answer.text)]);
        let mut body = self.body(status, &output, &usage_json(usage));
        if answer.finish == Finish::Length {
            body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        body
    }

    /// The message in the response's output.
    pub(crate) fn message(&self, status: &str, text: &str) -> Value {
        json!({
            "id": self.message_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [text_part(text)],
        })
    }

    /// Stores the response, if it was asked for.
    pub(crate) fn keep(&self, replica: &crate::replica::Replica, answer: &Answer, body: &Value) {
        if let Some(prompt) = &self.store {
            let conversation = Conversation::answered(prompt.clone(), &answer.text);
            let stored = Stored { body: body.clone(), conversation };
            replica.responses().insert(self.id.clone(), stored);
        }
    }

    fn body(&self, status: &str, output: &Value, usage: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "instructions": self.instructions,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": true,
            "previous_response_id": self.previous_response_id,
            "store": self.store.is_some(),
            "temperature": 1.0,
            "text": { "format": { "type": "text" } },
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "truncation": "disabled",
            "usage": usage,
            "metadata": self.metadata,
        })
    }
}

/// OpenAI's word for how a response ended.
pub(crate) fn status(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "completed",
        Finish::Length => "incomplete",
    }
}

/// A text as part of a message.
pub(crate) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": { "cached_tokens": usage.cached_tokens },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    })
}

fn previous(call: &Call, id: Option<&str>) -> Result<Conversation, ApiError> {
    let Some(id) = id else { return Ok(Conversation::default()) };
    let responses = call.replica.responses();
    let stored = responses.find(id).ok_or_else(|| unknown(id))?;
    Ok(stored.conversation.clone())
}

fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("Response with id '{id}' not found."))
}

fn push_input(conversation: &mut Conversation, input: &Value) -> Result<(), ApiError> {
    match input {
        Value::String(text) => conversation.push("user", text),
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                push_item(conversation, item);
            }
        }
        _ => return Err(ApiError::invalid("input must be a text or a list", Some("input"))),
    }
    Ok(())
}

fn push_item(conversation: &mut Conversation, item: &Value) {
    match item.get("content") {
        Some(content) => {
            let role = item.get("role").and_then(Value::as_str).unwrap_or("user");
            conversation.push(role, &content_text(content));
        }
        // Calls of tools and their outputs.
        None => conversation.push("tool", &item.to_string()),
    }
}
