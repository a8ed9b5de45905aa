//! Stream of a message in Anthropic's form: named events, a start and a stop of each block of
//! content.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::error::ApiError;
use super::messages::{stop_of, usage_json};
use super::sse;
use crate::answer::{Answer, AnswerPart};
use crate::event_stream::EventFormat;
use crate::usage::TokenUsage;

/// Writer of the events of one message.
pub(super) struct MessageEvents {
    /// Message without content and usage.
    head: Value,
    /// Usage so far.
    usage: TokenUsage,
    /// Ids of the tool calls that the answer will make.
    call_ids: Vec<String>,
    /// True if cached tokens are reported only at the end.
    tells_cached_late: bool,
    has_begun: bool,
    /// Block that is open; `None` before the first one and after the last one.
    open: Option<AnswerPart>,
    /// Number of blocks so far.
    blocks: usize,
    /// Reason of the end and stop sequence, once they are known.
    stop: Value,
}

impl MessageEvents {
    pub(super) fn new(
        head: Value,
        prompt_tokens: u32,
        call_ids: Vec<String>,
        tells_cached_late: bool,
    ) -> Self {
        Self {
            head,
            usage: TokenUsage { prompt_tokens, ..TokenUsage::default() },
            call_ids,
            tells_cached_late,
            has_begun: false,
            open: None,
            blocks: 0,
            stop: Value::Null,
        }
    }

    fn begin(&mut self, events: &mut VecDeque<Bytes>) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let mut message = self.head.clone();
        message["usage"] = if self.tells_cached_late {
            json!({ "input_tokens": self.usage.prompt_tokens, "output_tokens": 0 })
        } else {
            usage_json(TokenUsage { completion_tokens: 0, ..self.usage })
        };
        push(events, "message_start", json!({ "message": message }));
    }

    /// Opens the block of a part of the answer, unless it is open.
    fn open(&mut self, part: AnswerPart, answer: &Answer, events: &mut VecDeque<Bytes>) {
        if self.open == Some(part) {
            return;
        }
        self.stop_block(events);
        let block = match part {
            AnswerPart::Arguments(call) => json!({
                "type": "tool_use",
                "id": self.call_ids.get(call),
                "name": answer.calls.names.get(call),
                "input": {},
            }),
            AnswerPart::Said | AnswerPart::Unsaid => json!({ "type": "text", "text": "" }),
        };
        let event = json!({ "index": self.blocks, "content_block": block });
        push(events, "content_block_start", event);
        // Anthropic sends one at the beginning, and more in silent times.
        if self.blocks == 0 {
            push(events, "ping", json!({}));
        }
        self.open = Some(part);
        self.blocks += 1;
    }

    fn stop_block(&mut self, events: &mut VecDeque<Bytes>) {
        if self.open.take().is_some() {
            push(events, "content_block_stop", json!({ "index": self.blocks - 1 }));
        }
    }
}

impl EventFormat for MessageEvents {
    fn start(&mut self, _events: &mut VecDeque<Bytes>) {
        // As in vLLM, nothing is sent before the first token.
    }

    fn note_cached(&mut self, cached_tokens: u32) {
        self.usage.cached_tokens = cached_tokens;
    }

    fn token(&mut self, _index: usize, answer: &Answer, token: u32, events: &mut VecDeque<Bytes>) {
        self.begin(events);
        self.usage.completion_tokens += 1;
        for (part, text) in answer.pieces(token) {
            let delta = match part {
                AnswerPart::Said => json!({ "type": "text_delta", "text": text }),
                AnswerPart::Arguments(_) => {
                    json!({ "type": "input_json_delta", "partial_json": text })
                }
                AnswerPart::Unsaid => continue,
            };
            self.open(part, answer, events);
            let event = json!({ "index": self.blocks - 1, "delta": delta });
            push(events, "content_block_delta", event);
        }
    }

    fn done(&mut self, _index: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        self.begin(events);
        self.stop_block(events);
        let (reason, sequence) = stop_of(answer);
        self.stop = json!({ "stop_reason": reason, "stop_sequence": sequence });
    }

    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        let usage = TokenUsage { cached_tokens, ..self.usage };
        let usage = if self.tells_cached_late {
            usage_json(usage)
        } else {
            json!({ "output_tokens": usage.completion_tokens })
        };
        push(events, "message_delta", json!({ "delta": self.stop, "usage": usage }));
        push(events, "message_stop", json!({}));
    }

    fn leave(&mut self, events: &mut VecDeque<Bytes>) {
        // vLLM writes the same when its own chat stream ends without a reason.
        self.stop_block(events);
        push(events, "message_stop", json!({}));
    }

    fn fail(&mut self, events: &mut VecDeque<Bytes>) {
        events.push_back(sse::named("error", &ApiError::engine_dead().anthropic_body()));
    }
}

fn push(events: &mut VecDeque<Bytes>, name: &str, mut event: Value) {
    event["type"] = name.into();
    events.push_back(sse::named(name, &event));
}
