//! `POST /v1/chat/completions`.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use spillway_engine::RequestId;

use super::chat_stream::ChatEvents;
use super::chunks::Chunks;
use super::content::{parts_of, text_of};
use super::generate::Started;
use super::sampling::{Sampling, chat_logprobs};
use super::shape::{Shape, call_text};
use super::tools::Tools;
use super::{ApiCall, ApiError, Reply, event_stream, fields_of, generate, json, logprobs};
use crate::answer::Answer;
use crate::clock::unix_seconds;
use crate::text::{Conversation, TextContent, opaque_id, token_count};

/// Fields of a chat request that are read by name. The others are read from the body itself.
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
    tool_calls: Option<Vec<Value>>,
}

/// Answers of a chat in generation.
pub(crate) struct StartedChat {
    pub(crate) model: String,
    pub(crate) sampling: Sampling,
    pub(crate) started: Started,
    /// Ids of the tool calls of each answer.
    pub(crate) call_ids: Vec<Vec<String>>,
}

pub(crate) async fn answer(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    call.check_stream_options(&body)?;
    let logprobs = chat_logprobs(&body)?;
    let StartedChat { model, sampling, started, call_ids } = start(call, &body)?;
    let head = json!({
        "id": started.id(call, "chatcmpl-"),
        "object": if sampling.is_stream() { "chat.completion.chunk" } else { "chat.completion" },
        "created": unix_seconds(),
        "model": model,
    });
    if sampling.is_stream() {
        let chunks = Chunks::new(head, &started, &sampling);
        let format = ChatEvents::new(chunks, call_ids, logprobs);
        return Ok(event_stream(started.into_stream(format)));
    }
    let (answers, usage) = started.finished(call).await?;
    let choices = generate::best(&answers, &sampling).into_iter().enumerate();
    let choices = choices.map(|(index, at)| choice(index, &answers[at], &call_ids[at], logprobs));
    let mut body = head;
    body["choices"] = choices.collect();
    body["usage"] = usage.to_json();
    Ok(json(StatusCode::OK, &body))
}

/// Checks a chat request and submits it to the engine.
///
/// # Errors
/// Returns 400 if the request is malformed, 404 for an unknown model, and the engine's refusal.
pub(crate) fn start(call: &ApiCall, body: &Value) -> Result<StartedChat, ApiError> {
    let mut request: ChatRequest = fields_of(body)?;
    call.check_model(&request.model)?;
    // Chat completions do not have this field.
    request.sampling.ignore_best_of();
    request.sampling.check(false)?;
    let prompt = request.prompt(Tools::prompt(body).as_deref())?;
    let shape = request.shape(body)?;
    let started = generate::start_all(call, &[prompt], &request.sampling, &shape)?;
    let ids = |id, answer: &Answer| call_ids(call, id, answer.calls.names.len());
    let tracks = started.tracks.iter();
    let call_ids = tracks.map(|track| ids(track.generation.id(), &track.answer)).collect();
    let ChatRequest { model, sampling, .. } = request;
    Ok(StartedChat { model, sampling, started, call_ids })
}

/// Returns the number of tokens in the prompt of a chat request.
///
/// # Errors
/// Returns 400 if the request is malformed, and 404 for an unknown model.
pub(crate) fn count(call: &ApiCall, body: &Value) -> Result<u32, ApiError> {
    let request: ChatRequest = fields_of(body)?;
    call.check_model(&request.model)?;
    request.prompt(Tools::prompt(body).as_deref()).map(|prompt| token_count(&prompt))
}

impl ChatRequest {
    /// Returns the prompt for the model: the conversation, followed by the start of a new answer.
    /// With `continue_final_message`, as in vLLM and SGLang, the last message is left open instead.
    ///
    /// # Errors
    /// Returns 400 if the two options contradict each other.
    fn prompt(&self, tools: Option<&str>) -> Result<Vec<u32>, ApiError> {
        let conversation = conversation(&self.messages, tools)?;
        if !self.continue_final_message.unwrap_or(false) {
            return Ok(conversation.into_prompt());
        }
        if self.add_generation_prompt.unwrap_or(true) {
            let message = "continue_final_message needs add_generation_prompt to be false";
            return Err(ApiError::invalid(message, Some("continue_final_message")));
        }
        Ok(conversation.into_open_prompt())
    }

    fn shape(&self, body: &Value) -> Result<Shape, ApiError> {
        let tools = Tools::of(body)?;
        let form = Shape::of(&body["response_format"])?;
        let Some(last) = self.messages.last() else { return Ok(form) };
        let asked = text_of(&parts_of(&last.content)?);
        Ok(tools.calls(&asked, last.role == "user").unwrap_or(form))
    }
}

/// Returns the conversation in a body of `/tokenize` or of a chat.
pub(crate) fn conversation_of(body: &Value) -> Result<Conversation, ApiError> {
    let messages = serde_json::from_value::<Vec<Message>>(body["messages"].clone());
    let messages = messages.map_err(|error| {
        ApiError::invalid(format!("messages are not valid: {error}"), Some("messages"))
    })?;
    conversation(&messages, Tools::prompt(body).as_deref())
}

fn conversation(messages: &[Message], tools: Option<&str>) -> Result<Conversation, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages must not be empty", Some("messages")));
    }
    let mut conversation = Conversation::default();
    if let Some(tools) = tools {
        conversation.push("tools", tools);
    }
    for message in messages {
        let mut parts = parts_of(&message.content)?;
        for call in message.tool_calls.iter().flatten() {
            let function = &call["function"];
            let name = function["name"].as_str().unwrap_or("");
            let arguments = function["arguments"].as_str().unwrap_or("{}");
            parts.push(TextContent::Text(call_text(name, arguments)));
        }
        conversation.push_parts(&message.role, &parts);
    }
    Ok(conversation)
}

/// Returns ids for the first `count` tool calls of an answer.
pub(crate) fn call_ids(call: &ApiCall, id: RequestId, count: usize) -> Vec<String> {
    let instance = call.replica.instance;
    // Each call has an instance of its own, so that the ids of one answer differ.
    (1..).take(count).map(|at| opaque_id("call_", instance.rotate_left(at), id)).collect()
}

fn choice(index: usize, answer: &Answer, ids: &[String], top: Option<usize>) -> Value {
    let calls = (0..answer.calls_made()).map(|call| {
        let function =
            json!({ "name": answer.calls.names[call], "arguments": answer.arguments(call) });
        json!({ "id": ids[call], "type": "function", "function": function })
    });
    let calls: Vec<Value> = calls.collect();
    let mut message = json!({ "role": "assistant", "content": answer.text(), "refusal": null });
    // Also if the answer was cut before its first call: the frame of a call is never content.
    if !answer.calls.names.is_empty() {
        message["content"] = Value::Null;
        message["tool_calls"] = Value::Array(calls);
    }
    let logprobs =
        top.map(|top| json!({ "content": logprobs::of_chat(answer, top), "refusal": null }));
    json!({
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": answer.reason(),
        "stop_reason": answer.stop,
    })
}
