//! Stream of a chat completion: roles, tokens and calls, finish reasons, usage if wanted, `[DONE]`.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::chunks::Chunks;
use super::logprobs::Scored;
use super::sse::{self, TextEvent};
use crate::answer::{Answer, AnswerPart};
use crate::event_stream::EventFormat;

/// Writer of the events of one chat completion.
pub(crate) struct ChatEvents {
    chunks: Chunks,
    choices: Vec<ChatChoice>,
    /// Number of alternatives reported with each token; `None` without logprobs.
    logprobs: Option<usize>,
    has_begun: bool,
}

/// Progress of one answer.
struct ChatChoice {
    /// Template of an event with a piece of content.
    content: TextEvent,
    /// Ids of the tool calls that the answer will make.
    call_ids: Vec<String>,
    /// Number of calls whose name has been sent.
    calls_begun: usize,
}

impl ChatEvents {
    /// Creates a writer with one answer for each list of call ids.
    pub(crate) fn new(chunks: Chunks, call_ids: Vec<Vec<String>>, logprobs: Option<usize>) -> Self {
        let choice = |(index, call_ids)| {
            let content = chunks.template(index, delta(&json!({ "content": TextEvent::MARK })));
            ChatChoice { content, call_ids, calls_begun: 0 }
        };
        let choices = call_ids.into_iter().enumerate().map(choice).collect();
        Self { chunks, choices, logprobs, has_begun: false }
    }

    fn begin(&mut self, events: &mut VecDeque<Bytes>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let role = delta(&json!({ "role": "assistant", "content": "" }));
            let indices = 0..self.choices.len();
            events.extend(indices.map(|index| self.chunks.event(index, role.clone())));
        }
    }

    /// Writes a piece of the arguments of a call; before the first piece it writes the call's name.
    fn call(
        &mut self,
        index: usize,
        (call, name): (usize, &str),
        arguments: &str,
        events: &mut VecDeque<Bytes>,
    ) {
        let choice = &mut self.choices[index];
        // The first event of a call has its name, the later ones only arguments.
        if choice.calls_begun <= call {
            choice.calls_begun = call + 1;
            let begun = json!({
                "index": call,
                "id": choice.call_ids.get(call),
                "type": "function",
                "function": { "name": name, "arguments": "" },
            });
            events.push_back(self.chunks.event(index, delta(&json!({ "tool_calls": [begun] }))));
        }
        let more = json!({ "index": call, "function": { "arguments": arguments } });
        events.push_back(self.chunks.event(index, delta(&json!({ "tool_calls": [more] }))));
    }

    fn content(&self, index: usize, text: &str, scored: Option<Value>) -> Bytes {
        match scored {
            None => self.chunks.filled(index, self.choices[index].content.with(text)),
            Some(scored) => {
                let mut choice = delta(&json!({ "content": text }));
                choice["logprobs"] = json!({ "content": [scored] });
                self.chunks.event(index, choice)
            }
        }
    }
}

impl EventFormat for ChatEvents {
    fn start(&mut self, _events: &mut VecDeque<Bytes>) {
        // As in vLLM, nothing is sent before the first token: the time to first token is also the
        // time to the first byte.
    }

    fn token(&mut self, index: usize, answer: &Answer, token: u32, events: &mut VecDeque<Bytes>) {
        self.begin(events);
        self.chunks.count(index);
        let mut scored = self.logprobs.map(|top| Scored::said(answer, token, top).to_chat());
        for (part, text) in answer.pieces(token) {
            match part {
                AnswerPart::Said => events.push_back(self.content(index, text, scored.take())),
                AnswerPart::Arguments(call) => {
                    let name = answer.calls.names.get(call).map_or("", String::as_str);
                    self.call(index, (call, name), text, events);
                }
                AnswerPart::Unsaid => {}
            }
        }
        // A token without content of its own still has a logprob.
        if let Some(scored) = scored.filter(|_| answer.calls.names.is_empty()) {
            events.push_back(self.content(index, "", Some(scored)));
        }
    }

    fn done(&mut self, index: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        self.begin(events);
        let mut choice = delta(&json!({}));
        choice["finish_reason"] = answer.reason().into();
        choice["stop_reason"] = json!(answer.stop);
        events.push_back(self.chunks.event(index, choice));
    }

    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        self.chunks.finish(cached_tokens, events);
    }

    fn leave(&mut self, events: &mut VecDeque<Bytes>) {
        events.push_back(sse::DONE);
    }

    fn fail(&mut self, events: &mut VecDeque<Bytes>) {
        Chunks::fail(events);
    }
}

fn delta(delta: &Value) -> Value {
    json!({ "delta": delta, "logprobs": null, "finish_reason": null })
}
