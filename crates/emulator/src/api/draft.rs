//! Draft of a response of `/v1/responses`.

use serde_json::{Value, json};
use spillway_engine::RequestId;

use crate::answer::{Answer, Finish};
use crate::clock::unix_seconds;
use crate::text::token_count;

use super::response_items::{OutputIds, status};

/// Response whose whole content is computed before its first token is due.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) output: OutputIds,
    /// Id of the request in the engine.
    pub(crate) request: RequestId,
    pub(crate) answer: Answer,
    pub(crate) is_background: bool,
    /// Number of alternatives reported with each token; `None` without logprobs.
    pub(crate) logprobs: Option<usize>,
    /// Approximate bytes in memory.
    pub(crate) bytes: usize,
    pub(super) prompt: Vec<u32>,
    pub(super) items: Vec<Value>,
    /// Fields that do not change from state to state.
    pub(super) fields: Value,
}

impl Draft {
    /// Returns the response before its end, with this status.
    pub(crate) fn body(&self, status: &str) -> Value {
        let mut body = self.fields.clone();
        body["id"] = self.id.as_str().into();
        body["status"] = status.into();
        body
    }

    /// Returns the complete response.
    pub(crate) fn completed(&self, cached_tokens: u32) -> Value {
        let mut body = self.body(status(self.answer.finish));
        body["output"] = self.output.output(&self.answer, self.logprobs);
        if self.answer.finish == Finish::Length {
            body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        let (input, output) = (token_count(&self.prompt), self.answer.tokens);
        body["usage"] = json!({
            "input_tokens": input,
            "input_tokens_details": { "cached_tokens": cached_tokens },
            "output_tokens": output,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": input + output,
        });
        body
    }

    #[cfg(test)]
    pub(crate) fn example(id: &str, bytes: usize) -> Self {
        use crate::answer::Length;
        Self {
            id: id.to_owned(),
            output: OutputIds { message: String::new(), calls: Vec::new() },
            request: RequestId(1),
            answer: Answer::new(&[1], 0, Length::Exactly(2)),
            is_background: true,
            logprobs: None,
            bytes,
            prompt: vec![1],
            items: Vec::new(),
            fields: fields_from(&json!({})),
        }
    }
}

/// Returns the fields that a response repeats from its request.
pub(super) fn fields_from(body: &Value) -> Value {
    let given = |name: &str, otherwise: Value| match &body[name] {
        Value::Null => otherwise,
        value => value.clone(),
    };
    json!({
        "object": "response",
        "created_at": unix_seconds(),
        "background": given("background", json!(false)),
        "error": null,
        "incomplete_details": null,
        "instructions": body["instructions"],
        "max_output_tokens": body["max_output_tokens"],
        "metadata": body["metadata"],
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": given("parallel_tool_calls", json!(true)),
        "previous_response_id": body["previous_response_id"],
        "store": given("store", json!(true)),
        "temperature": given("temperature", json!(1.0)),
        "text": given("text", json!({ "format": { "type": "text" } })),
        "tool_choice": given("tool_choice", json!("auto")),
        "tools": given("tools", json!([])),
        "top_logprobs": given("top_logprobs", json!(0)),
        "top_p": given("top_p", json!(1.0)),
        "truncation": "disabled",
        "usage": null,
    })
}
