//! Stream of a text completion: prompts if wanted, tokens, finish reasons, usage if wanted,
//! `[DONE]`.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::chunks::Chunks;
use super::completions::PromptEcho;
use super::logprobs::Lists;
use super::sse::{self, TextEvent};
use crate::answer::{Answer, AnswerPart};
use crate::event_stream::EventFormat;

/// Writer of the events of one text completion.
pub(crate) struct CompletionEvents {
    chunks: Chunks,
    choices: Vec<CompletionChoice>,
    /// Number of alternatives reported with each token; `None` without logprobs.
    logprobs: Option<usize>,
}

struct CompletionChoice {
    /// Template of an event with a piece of text.
    text: TextEvent,
    /// Echo of the prompt; empty without echo.
    echo: PromptEcho,
    has_begun: bool,
}

impl CompletionEvents {
    /// Creates a writer with one answer for each echo.
    pub(crate) fn new(chunks: Chunks, echoes: Vec<PromptEcho>, logprobs: Option<usize>) -> Self {
        let choice = |(index, echo)| {
            let text = chunks.template(index, choice(TextEvent::MARK));
            CompletionChoice { text, echo, has_begun: false }
        };
        let choices = echoes.into_iter().enumerate().map(choice).collect();
        Self { chunks, choices, logprobs }
    }

    /// Writes the echo of a prompt before the first token of its answer.
    fn begin(&mut self, index: usize, events: &mut VecDeque<Bytes>) {
        let CompletionChoice { echo, has_begun, .. } = &mut self.choices[index];
        if std::mem::replace(has_begun, true) || echo.tokens.is_empty() {
            return;
        }
        let mut choice = choice(&echo.text);
        if let Some(top) = self.logprobs {
            let mut lists = Lists::default();
            lists.push_prompt(&echo.tokens, top);
            choice["logprobs"] = lists.to_json();
        }
        events.push_back(self.chunks.event(index, choice));
    }
}

impl EventFormat for CompletionEvents {
    fn start(&mut self, _events: &mut VecDeque<Bytes>) {}

    fn token(&mut self, index: usize, answer: &Answer, token: u32, events: &mut VecDeque<Bytes>) {
        self.begin(index, events);
        self.chunks.count(index);
        let mut pieces = answer.pieces(token).filter(|(part, _)| *part == AnswerPart::Said);
        let text = pieces.next().map(|(_, text)| text);
        let state = &self.choices[index];
        match (self.logprobs, text) {
            (None, None) => {}
            (None, Some(text)) => {
                events.push_back(self.chunks.filled(index, state.text.with(text)));
            }
            (Some(top), text) => {
                let mut lists = Lists::default();
                lists.push_said(answer, token, top, state.echo.text.chars().count());
                let mut choice = choice(text.unwrap_or(""));
                choice["logprobs"] = lists.to_json();
                events.push_back(self.chunks.event(index, choice));
            }
        }
    }

    fn done(&mut self, index: usize, answer: &Answer, events: &mut VecDeque<Bytes>) {
        self.begin(index, events);
        let mut choice = choice("");
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

fn choice(text: &str) -> Value {
    json!({ "text": text, "logprobs": null, "finish_reason": null })
}
