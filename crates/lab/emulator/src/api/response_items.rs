//! Input and output items of a response.

use serde_json::{Value, json};

use super::content::{parts_of, text_of};
use super::shape::call_text;
use super::{ApiError, logprobs};
use crate::answer::{Answer, EarlyEnd, Finish};
use crate::text::Conversation;

/// Returns the input as a list of items. An item without an id gets `prefix` and its position.
///
/// # Errors
/// Returns 400 if the input is neither a text nor a list of items.
pub(crate) fn input_items(input: &Value, prefix: &str) -> Result<Vec<Value>, ApiError> {
    let wrong = || ApiError::invalid("input must be a text or a list of items", Some("input"));
    let items = match input {
        Value::String(text) => vec![json!({ "role": "user", "content": text })],
        Value::Array(items) if !items.is_empty() => items.clone(),
        _ => return Err(wrong()),
    };
    items
        .into_iter()
        .enumerate()
        .map(|(at, item)| whole_item(item, prefix, at).ok_or_else(wrong))
        .collect()
}

/// Fills in the fields that clients may leave out; `None` if the value is no item.
fn whole_item(mut item: Value, prefix: &str, at: usize) -> Option<Value> {
    let fields = item.as_object_mut()?;
    let is_message = fields.contains_key("content") && fields.contains_key("role");
    let kind = if is_message { "message" } else { "unknown" };
    fields.entry("type").or_insert_with(|| kind.into());
    fields.entry("id").or_insert_with(|| format!("{prefix}_{at}").into());
    fields.entry("status").or_insert_with(|| "completed".into());
    // A plain text becomes a list of one part.
    if let Some(Value::String(text)) = fields.get("content") {
        let kind = if fields["role"] == "assistant" { "output_text" } else { "input_text" };
        let part = json!({ "type": kind, "text": text });
        fields.insert("content".to_owned(), json!([part]));
    }
    Some(item)
}

/// Appends items to a conversation.
pub(crate) fn push_items(conversation: &mut Conversation, items: &[Value]) -> Result<(), ApiError> {
    for item in items {
        let text = |field: &str| item[field].as_str().unwrap_or("").to_owned();
        match item["type"].as_str() {
            Some("function_call") => {
                conversation.push("assistant", &call_text(&text("name"), &text("arguments")));
            }
            Some("function_call_output") => {
                conversation.push_parts("tool", &parts_of(&item["output"])?);
            }
            _ if item.get("content").is_some() => {
                let role = item["role"].as_str().unwrap_or("user");
                conversation.push_parts(role, &parts_of(&item["content"])?);
            }
            // Other items, such as reasoning, are part of the prompt as they are.
            _ => conversation.push("tool", &item.to_string()),
        }
    }
    Ok(())
}

/// Returns the text of the last item, and true if it came from a user.
pub(crate) fn last_said(items: &[Value]) -> Result<(String, bool), ApiError> {
    let Some(last) = items.last() else { return Ok(<_>::default()) };
    Ok((text_of(&parts_of(&last["content"])?), last["role"] == "user"))
}

/// Ids of the message and the tool calls in a response's output.
#[derive(Clone, Debug)]
pub(crate) struct OutputIds {
    pub(crate) message: String,
    pub(crate) calls: Vec<String>,
}

impl OutputIds {
    /// Returns the output items of a response whose answer is complete.
    pub(crate) fn output(&self, answer: &Answer, top: Option<usize>) -> Value {
        let status = status(answer);
        if answer.calls.names.is_empty() {
            return json!([self.message(status, &[text_part(answer, top)])]);
        }
        let calls = (0..answer.calls_made()).map(|call| {
            let arguments = answer.arguments(call).unwrap_or_default();
            self.call(status, call, &answer.calls.names[call], arguments)
        });
        calls.collect()
    }

    /// Returns the message as an item.
    pub(crate) fn message(&self, status: &str, content: &[Value]) -> Value {
        json!({
            "id": self.message,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        })
    }

    /// Returns a tool call as an item.
    pub(crate) fn call(&self, status: &str, at: usize, name: &str, arguments: &str) -> Value {
        json!({
            "id": self.call_item(at),
            "type": "function_call",
            "status": status,
            "call_id": self.calls.get(at),
            "name": name,
            "arguments": arguments,
        })
    }

    /// Returns the id of the item of call `at`.
    pub(crate) fn call_item(&self, at: usize) -> String {
        self.calls.get(at).map_or_else(String::new, |id| id.replace("call_", "fc_"))
    }
}

/// Returns OpenAI's word for the status of a response that ended. An answer that was aborted is
/// cancelled, as in vLLM.
pub(crate) fn status(answer: &Answer) -> &'static str {
    match (answer.early_end, answer.finish) {
        (Some(EarlyEnd::Aborted), _) => "cancelled",
        (None, Finish::Stop) => "completed",
        (Some(EarlyEnd::Unexplained), _) | (None, Finish::Length) => "incomplete",
    }
}

/// Returns the text of an answer as a part of a message.
pub(crate) fn text_part(answer: &Answer, top: Option<usize>) -> Value {
    let mut part = empty_part();
    part["text"] = answer.text().into();
    if let Some(top) = top {
        part["logprobs"] = logprobs::of_chat(answer, top).into();
    }
    part
}

/// Returns a part of a message before its first token.
pub(crate) fn empty_part() -> Value {
    json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] })
}
