//! Draft of a response of `/v1/responses`.

use serde_json::{Value, json};
use spillway_engine::RequestId;

use super::response_items::{OutputIds, status};
use crate::answer::{Answer, Finish};
use crate::clock::unix_seconds;
use crate::text::token_count;

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
    /// True if `usage` is the first field of the response's text.
    pub(crate) usage_first: bool,
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

    /// Returns the response at its end, with `answer`, which a fault may have ended early.
    pub(crate) fn ended(&self, answer: &Answer, cached_tokens: u32) -> Value {
        let mut body = self.body(status(answer));
        body["output"] = self.output.output(answer, self.logprobs);
        if answer.finish == Finish::Length && answer.early_end.is_none() {
            body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        body["usage"] = self.usage(answer.tokens, cached_tokens);
        body
    }

    /// Returns the complete response.
    pub(crate) fn completed(&self, cached_tokens: u32) -> Value {
        self.ended(&self.answer, cached_tokens)
    }

    /// Returns the response without any output.
    pub(crate) fn empty(&self) -> Value {
        let mut body = self.body("incomplete");
        body["usage"] = self.usage(0, 0);
        body
    }

    /// Returns the text of a response in the order that the replica's options demand.
    pub(crate) fn text(&self, mut body: Value) -> String {
        let usage = body.as_object_mut().filter(|_| self.usage_first);
        // All other fields follow in the order of the alphabet.
        match usage.and_then(|fields| fields.remove("usage")) {
            Some(usage) => format!("{{\"usage\":{usage},{}", &body.to_string()[1..]),
            None => body.to_string(),
        }
    }

    fn usage(&self, output_tokens: u32, cached_tokens: u32) -> Value {
        let input_tokens = token_count(&self.prompt);
        json!({
            "input_tokens": input_tokens,
            "input_tokens_details": { "cached_tokens": cached_tokens },
            "output_tokens": output_tokens,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": input_tokens + output_tokens,
        })
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
            usage_first: false,
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
