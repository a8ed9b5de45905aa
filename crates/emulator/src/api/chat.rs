//! `POST /v1/chat/completions`.

use std::collections::VecDeque;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::EventFormat;
use crate::text::{Conversation, Finish};

use super::generate::{self, Sampling, Throughout, Usage};
use super::sse::{self, TextEvent};
use super::{ApiError, Call, Reply, event_stream, json, unix_seconds};

#[derive(Debug, Deserialize)]
struct ChatRequest {
    model: String,
    messages: Vec<Message>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    #[serde(flatten)]
    sampling: Sampling,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
    tool_calls: Option<Value>,
}

pub(crate) async fn answer(call: &Call) -> Reply {
    let request: ChatRequest = call.json()?;
    call.check_model(&request.model)?;
    if request.messages.is_empty() {
        return Err(ApiError::invalid("messages must not be empty", Some("messages")));
    }
    let prompt = request.prompt()?;
    let started = generate::start(call, &prompt, &request.sampling)?;
    let head = Head { id: started.id(call, "chatcmpl-"), model: request.model };
    if request.sampling.is_stream() {
        let finish = started.answer.finish;
        let usage = request.sampling.include_usage().then(|| started.usage(0));
        let throughout = usage.filter(|_| request.sampling.usage_throughout());
        let throughout = throughout.map(Throughout::new);
        let format = ChatEvents::new(&head, finish, (usage, throughout));
        return Ok(event_stream(started.into_stream(format)));
    }
    let (answer, usage) = started.finished().await?;
    let message = json!({ "role": "assistant", "content": answer.text, "refusal": null });
    let choice = json!({
        "index": 0,
        "message": message,
        "logprobs": null,
        "finish_reason": answer.finish.as_str(),
    });
    Ok(json(StatusCode::OK, &head.object("chat.completion", &json!([choice]), &usage.to_json())))
}

impl ChatRequest {
    /// What the model is given: the conversation, and either the beginning of an answer to it or, as
    /// vLLM and SGLang have it, its last message left open.
    fn prompt(&self) -> Result<Vec<u32>, ApiError> {
        let conversation = conversation(&self.messages);
        if !self.continue_final_message.unwrap_or(false) {
            return Ok(conversation.into_prompt());
        }
        if self.add_generation_prompt.unwrap_or(true) {
            let message = "continue_final_message needs add_generation_prompt to be false";
            return Err(ApiError::invalid(message, Some("continue_final_message")));
        }
        Ok(conversation.into_open_prompt())
    }
}

/// The text of a message's content: a string, or the texts of its parts. Parts that are no text,
/// such as images, count with their JSON, so that they are part of the prompt too.
pub(crate) fn content_text(content: &Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part_text).collect(),
        other => other.to_string(),
    }
}

fn part_text(part: &Value) -> String {
    match part.get("text") {
        Some(Value::String(text)) => text.clone(),
        _ => part.to_string(),
    }
}

fn conversation(messages: &[Message]) -> Conversation {
    let mut conversation = Conversation::default();
    for message in messages {
        let mut text = content_text(&message.content);
        if let Some(calls) = &message.tool_calls {
            text.push_str(&calls.to_string());
        }
        conversation.push(&message.role, &text);
    }
    conversation
}

struct Head {
    id: String,
    model: String,
}

impl Head {
    fn object(&self, kind: &str, choices: &Value, usage: &Value) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": unix_seconds(),
            "model": self.model,
            "choices": choices,
            "usage": usage,
        })
    }

    /// An event of a stream. `usage` is there only if it was asked for.
    fn chunk(&self, choices: &Value, usage: Option<Value>) -> Value {
        let mut chunk = self.object("chat.completion.chunk", choices, &Value::Null);
        match usage {
            Some(usage) => chunk["usage"] = usage,
            None => {
                chunk.as_object_mut().map(|fields| fields.remove("usage"));
            }
        }
        chunk
    }
}

/// A chat completion as a stream: role, tokens, finish reason, perhaps usage, `[DONE]`.
struct ChatEvents {
    role: Option<Bytes>,
    token: TextEvent,
    end: Bytes,
    usage: Option<(Value, Usage)>,
    throughout: Option<Throughout>,
}

impl ChatEvents {
    fn new(
        head: &Head,
        finish: Finish,
        (usage, throughout): (Option<Usage>, Option<Throughout>),
    ) -> Self {
        let so_far = throughout.map_or(Value::Null, |_| Value::from(Throughout::MARK));
        let chunk = |delta: Value, finish: Option<&str>| {
            let choice = json!({
                "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish,
            });
            head.chunk(&json!([choice]), usage.map(|_| so_far.clone()))
        };
        let role = chunk(json!({ "role": "assistant", "content": "" }), None);
        Self {
            role: Some(sse::data(&role)),
            token: TextEvent::new(&chunk(json!({ "content": TextEvent::MARK }), None)),
            end: sse::data(&chunk(json!({}), Some(finish.as_str()))),
            usage: usage.map(|usage| (head.chunk(&json!([]), Some(Value::Null)), usage)),
            throughout,
        }
    }

    fn filled(&self, event: Bytes) -> Bytes {
        match self.throughout {
            Some(throughout) => throughout.fill(&event),
            None => event,
        }
    }
}

impl EventFormat for ChatEvents {
    fn start(&mut self, _events: &mut VecDeque<Bytes>) {
        // As in vLLM, nothing is sent before the first token: its time is the time to first byte.
    }

    fn token(&mut self, text: &str, events: &mut VecDeque<Bytes>) {
        let role = self.role.take();
        events.extend(role.map(|role| self.filled(role)));
        if let Some(throughout) = &mut self.throughout {
            throughout.count();
        }
        events.push_back(self.filled(self.token.with(text)));
    }

    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        events.push_back(self.filled(self.end.clone()));
        if let Some((mut chunk, usage)) = self.usage.take() {
            chunk["usage"] = Usage { cached_tokens, ..usage }.to_json();
            events.push_back(sse::data(&chunk));
        }
        events.push_back(sse::DONE);
    }
}
