//! A response as a stream of named events, numbered in sequence.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::body::EventFormat;
use crate::replica::Replica;
use crate::text::Answer;

use super::generate::Usage;
use super::responses::{Draft, status, text_part};
use super::sse;

/// Writes the events of one response.
pub(crate) struct ResponseEvents {
    replica: Arc<Replica>,
    draft: Draft,
    answer: Answer,
    usage: Usage,
    next_number: u64,
    begun: bool,
}

impl ResponseEvents {
    pub(crate) fn new(replica: Arc<Replica>, draft: Draft, answer: Answer, usage: Usage) -> Self {
        Self { replica, draft, answer, usage, next_number: 0, begun: false }
    }

    fn push(&mut self, events: &mut VecDeque<Bytes>, name: &str, mut event: Value) {
        event["type"] = name.into();
        event["sequence_number"] = self.next_number.into();
        self.next_number += 1;
        events.push_back(sse::named(name, &event));
    }

    /// An event about the text: which message and which part of it.
    fn about_text(&self, mut event: Value) -> Value {
        event["item_id"] = self.draft.message_id.as_str().into();
        event["output_index"] = 0.into();
        event["content_index"] = 0.into();
        event
    }

    fn begin(&mut self, events: &mut VecDeque<Bytes>) {
        let item = json!({
            "id": self.draft.message_id,
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        });
        let added = json!({ "output_index": 0, "item": item });
        self.push(events, "response.output_item.added", added);
        let added = self.about_text(json!({ "part": text_part("") }));
        self.push(events, "response.content_part.added", added);
    }
}

impl EventFormat for ResponseEvents {
    fn start(&mut self, events: &mut VecDeque<Bytes>) {
        for name in ["response.created", "response.in_progress"] {
            self.push(events, name, json!({ "response": self.draft.in_progress() }));
        }
    }

    fn token(&mut self, text: &str, events: &mut VecDeque<Bytes>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.begin(events);
        }
        let delta = self.about_text(json!({ "delta": text, "logprobs": [] }));
        self.push(events, "response.output_text.delta", delta);
    }

    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        let text = self.answer.text.clone();
        let status = status(self.answer.finish);
        let done = self.about_text(json!({ "text": text, "logprobs": [] }));
        self.push(events, "response.output_text.done", done);
        let done = self.about_text(json!({ "part": text_part(&text) }));
        self.push(events, "response.content_part.done", done);
        let item = self.draft.message(status, &text);
        self.push(events, "response.output_item.done", json!({ "output_index": 0, "item": item }));
        let body = self.draft.completed(&self.answer, Usage { cached_tokens, ..self.usage });
        // Stored before the client learns of it, since it may ask for it at once.
        self.draft.keep(&self.replica, &self.answer, &body);
        self.push(events, &format!("response.{status}"), json!({ "response": body }));
    }
}
