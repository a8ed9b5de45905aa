//! Stream of a response: named events, numbered in sequence.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::draft::Draft;
use super::logprobs::Scored;
use super::response_items::{empty_part, status, text_part};
use super::response_store::{StoreState, StoredResponse};
use super::{ApiError, sse};
use crate::answer::{Answer, AnswerPart};
use crate::event_stream::EventFormat;
use crate::replica::EmulatedReplica;

/// Writer of the events of one response.
pub(crate) struct ResponseEvents {
    draft: Arc<Draft>,
    /// Replica that stores the response at its end; `None` if it must not be stored, or already is.
    store: Option<Arc<EmulatedReplica>>,
    next_number: u64,
    /// Number of the first event that is written; earlier ones are skipped.
    first_number: u64,
    has_begun: bool,
    calls_begun: usize,
    /// Answer that a fault ended early; `None` for the draft's own.
    cut_answer: Option<Answer>,
}

impl ResponseEvents {
    pub(crate) fn new(draft: Arc<Draft>, store: Option<Arc<EmulatedReplica>>) -> Self {
        Self {
            draft,
            store,
            next_number: 0,
            first_number: 0,
            has_begun: false,
            calls_begun: 0,
            cut_answer: None,
        }
    }

    /// Returns the writer with all events before number `first` left out.
    pub(crate) fn starting_at(self, first: u64) -> Self {
        Self { first_number: first, ..self }
    }

    fn push(&mut self, events: &mut VecDeque<Bytes>, name: &str, mut event: Value) {
        // Skipped events are counted, so that the numbers stay right.
        if self.next_number >= self.first_number {
            event["type"] = name.into();
            event["sequence_number"] = self.next_number.into();
            events.push_back(sse::named(name, &self.text(event)));
        }
        self.next_number += 1;
    }

    /// Returns the text of an event, with its response in the order of the draft.
    fn text(&self, mut event: Value) -> String {
        let response = event.as_object_mut().and_then(|fields| fields.remove("response"));
        let rest = event.to_string();
        match response {
            Some(response) => {
                let response = self.draft.text(response);
                format!("{{\"response\":{response},{}", &rest[1..])
            }
            None => rest,
        }
    }

    /// Adds to an event the ids of the text's message and part.
    fn about_text(&self, mut event: Value) -> Value {
        event["item_id"] = self.draft.output.message.as_str().into();
        event["output_index"] = 0.into();
        event["content_index"] = 0.into();
        event
    }

    fn begin_message(&mut self, events: &mut VecDeque<Bytes>) {
        let item = self.draft.output.message("in_progress", &[]);
        let added = json!({ "output_index": 0, "item": item });
        self.push(events, "response.output_item.added", added);
        let added = self.about_text(json!({ "part": empty_part() }));
        self.push(events, "response.content_part.added", added);
    }

    fn end_message(&mut self, answer: &Answer, events: &mut VecDeque<Bytes>) {
        let part = text_part(answer, self.draft.logprobs);
        let done = json!({ "text": part["text"], "logprobs": part["logprobs"] });
        let done = self.about_text(done);
        self.push(events, "response.output_text.done", done);
        let done = self.about_text(json!({ "part": part }));
        self.push(events, "response.content_part.done", done);
        let item = self.draft.output.message(status(answer), &[part]);
        self.push(events, "response.output_item.done", json!({ "output_index": 0, "item": item }));
    }

    fn begin_call(&mut self, call: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        // The call before ends when the next one begins.
        if let Some(before) = call.checked_sub(1) {
            self.end_call(before, answer, events);
        }
        let name = answer.calls.names[call].as_str();
        let item = self.draft.output.call("in_progress", call, name, "");
        let added = json!({ "output_index": call, "item": item });
        self.push(events, "response.output_item.added", added);
    }

    fn end_call(&mut self, call: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        let name = answer.calls.names[call].as_str();
        let arguments = answer.arguments(call).unwrap_or_default();
        let output = &self.draft.output;
        let item = output.call(status(answer), call, name, arguments);
        let done = json!({
            "item_id": output.call_item(call),
            "output_index": call,
            "name": name,
            "arguments": arguments,
        });
        self.push(events, "response.function_call_arguments.done", done);
        self.push(
            events,
            "response.output_item.done",
            json!({ "output_index": call, "item": item }),
        );
    }
}

impl EventFormat for ResponseEvents {
    fn start(&mut self, events: &mut VecDeque<Bytes>) {
        let first = if self.draft.is_background { "queued" } else { "in_progress" };
        for (name, status) in [("created", first), ("in_progress", "in_progress")] {
            let event = json!({ "response": self.draft.body(status) });
            self.push(events, &format!("response.{name}"), event);
        }
    }

    fn token(&mut self, _index: usize, answer: &Answer, token: u32, events: &mut VecDeque<Bytes>) {
        let is_message = answer.calls.names.is_empty();
        if is_message && !std::mem::replace(&mut self.has_begun, true) {
            self.begin_message(events);
        }
        for (part, text) in answer.pieces(token) {
            match part {
                AnswerPart::Said => {
                    let scored = self.draft.logprobs.map(|top| Scored::said(answer, token, top));
                    let scored: Vec<Value> = scored.iter().map(Scored::to_chat).collect();
                    let delta = self.about_text(json!({ "delta": text, "logprobs": scored }));
                    self.push(events, "response.output_text.delta", delta);
                }
                AnswerPart::Arguments(call) => {
                    if self.calls_begun <= call {
                        self.calls_begun = call + 1;
                        self.begin_call(call, answer, events);
                    }
                    let item_id = self.draft.output.call_item(call);
                    let delta = json!({ "item_id": item_id, "output_index": call, "delta": text });
                    self.push(events, "response.function_call_arguments.delta", delta);
                }
                AnswerPart::Unsaid => {}
            }
        }
    }

    fn done(&mut self, _index: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        if self.has_begun {
            self.end_message(answer, events);
        }
        if let Some(last) = self.calls_begun.checked_sub(1) {
            self.end_call(last, answer, events);
        }
        self.cut_answer = answer.early_end.map(|_| answer.clone());
    }

    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        let answer = self.cut_answer.as_ref().unwrap_or(&self.draft.answer);
        let body = self.draft.ended(answer, cached_tokens);
        // Stored before the end is sent, since the client may fetch the response at once.
        if let Some(replica) = self.store.as_ref().filter(|_| self.cut_answer.is_none()) {
            let stored =
                StoredResponse::new(Arc::clone(&self.draft), StoreState::Done { cached_tokens });
            replica.responses().insert(stored);
        }
        // vLLM has no other event for an answer that was aborted.
        let name = if self.cut_answer.is_some() { "completed" } else { status(answer) };
        self.push(events, &format!("response.{name}"), json!({ "response": body }));
    }

    fn leave(&mut self, _events: &mut VecDeque<Bytes>) {
        // These streams have no `[DONE]`.
    }

    fn fail(&mut self, events: &mut VecDeque<Bytes>) {
        let error = ApiError::engine_dead();
        let error = json!({ "code": "server_error", "message": error.message(), "param": null });
        self.push(events, "error", error);
    }
}
