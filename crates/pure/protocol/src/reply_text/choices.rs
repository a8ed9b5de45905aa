//! Choices of chats and completions, whole or as changes in events.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Open, ReplyReader, ReplyShape, To, from_json, is_empty};

/// One of a reply's choices, or what an event adds to it.
#[derive(Debug, Deserialize)]
pub(super) struct Choice<'e> {
    #[serde(default)]
    index: u64,
    /// Addition to a chat's message.
    #[serde(borrow)]
    delta: Option<ChatMessage<'e>>,
    /// Chat's message as a whole.
    #[serde(borrow)]
    message: Option<ChatMessage<'e>>,
    /// Text of a completion.
    #[serde(borrow)]
    text: Option<&'e RawValue>,
    #[serde(borrow)]
    finish_reason: Option<&'e RawValue>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage<'e> {
    #[serde(borrow)]
    content: Option<&'e RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<ToolCall<'e>>>,
    #[serde(borrow)]
    reasoning_content: Option<&'e RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'e RawValue>,
    #[serde(borrow)]
    refusal: Option<&'e RawValue>,
    #[serde(borrow)]
    function_call: Option<&'e RawValue>,
    #[serde(borrow)]
    audio: Option<&'e RawValue>,
}

#[derive(Debug, Deserialize)]
struct ToolCall<'e> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<&'e RawValue>,
    #[serde(borrow)]
    function: Option<Function<'e>>,
}

#[derive(Debug, Deserialize)]
struct Function<'e> {
    #[serde(borrow)]
    name: Option<&'e RawValue>,
    #[serde(borrow)]
    arguments: Option<&'e RawValue>,
}

/// Returns the choice of index 0.
pub(super) fn first<'c, 'e>(choices: &'c [Choice<'e>]) -> Option<&'c Choice<'e>> {
    choices.iter().find(|choice| choice.index == 0)
}

/// Reads a choice; `None` if its index is not 0.
pub(super) fn if_first(json: &[u8]) -> Option<Choice<'_>> {
    from_json(json).filter(|choice: &Choice<'_>| choice.index == 0)
}

impl ReplyReader {
    /// Reads the first choice, or an addition to it.
    pub(super) fn choice(&mut self, choice: &Choice<'_>, to: To<'_>) -> Option<()> {
        match (self.shape, choice.text) {
            (ReplyShape::Text, Some(text)) => self.content(text, to)?,
            (ReplyShape::Message { .. }, Some(_)) => return None,
            (_, None) => {}
        }
        if let Some(message) = choice.delta.as_ref().or(choice.message.as_ref()) {
            self.chat_message(message, to)?;
        }
        if choice.finish_reason.is_some() || choice.message.is_some() {
            return self.end(to);
        }
        Some(())
    }

    fn chat_message(&mut self, message: &ChatMessage<'_>, to: To<'_>) -> Option<()> {
        let ChatMessage { reasoning_content, reasoning, refusal, function_call, audio, .. } =
            message;
        // Engines cache reasoning behind the prompt, and clients do not send it back.
        let others = [reasoning_content, reasoning, refusal, function_call, audio];
        if others.into_iter().flatten().any(|other| !is_empty(other)) {
            return None;
        }
        if let Some(content) = message.content {
            self.content(content, to)?;
        }
        let calls = message.tool_calls.iter().flatten();
        (0..).zip(calls).try_for_each(|(at, call)| self.tool_call(at, call, to))
    }

    fn tool_call(&mut self, at: u64, call: &ToolCall<'_>, to: To<'_>) -> Option<()> {
        let function = call.function.as_ref()?;
        let index = call.index.unwrap_or(at);
        if self.open != Open::Call(index) {
            let before: &[u8] = match self.open {
                Open::Nothing => b"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[",
                Open::Text => b"\",\"tool_calls\":[",
                Open::Call(last) if last < index => b"\"}},",
                _ => return None,
            };
            to(before);
            to(b"{\"id\":\"");
            self.text(call.id?, to)?;
            to(b"\",\"type\":\"function\",\"function\":{\"name\":\"");
            self.text(function.name?, to)?;
            to(b"\",\"arguments\":\"");
            self.open = Open::Call(index);
        }
        match function.arguments {
            Some(arguments) if !is_empty(arguments) => self.text(arguments, to),
            _ => Some(()),
        }
    }
}
