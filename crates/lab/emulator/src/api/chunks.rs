//! Common frame of the events of a completion stream.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::error::ApiError;
use super::generate::Started;
use super::sampling::Sampling;
use super::sse::{self, TextEvent};
use crate::usage::TokenUsage;

/// Placeholder in an event for the usage so far.
const USAGE_MARK: &str = "<the usage so far goes here>";

/// Frame of all events of one stream.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Id, object kind, time and model.
    head: Value,
    /// Number of tokens of all prompts.
    prompt_tokens: u32,
    /// True if the client asked for the usage at the end.
    includes_usage: bool,
    /// True if each event reports the usage so far.
    throughout: bool,
    /// Number of prompt tokens and of generated tokens so far, for each answer.
    counts: Vec<(u32, u32)>,
}

impl Chunks {
    /// Creates the frame of a stream whose events all have the fields of `head`.
    pub(crate) fn new(head: Value, started: &Started, sampling: &Sampling) -> Self {
        let each = sampling.candidates();
        let prompts = started.prompt_tokens.iter();
        Self {
            head,
            prompt_tokens: started.prompt_tokens(),
            includes_usage: sampling.include_usage(),
            throughout: sampling.usage_throughout(),
            counts: prompts.flat_map(|tokens| vec![(*tokens, 0); each]).collect(),
        }
    }

    /// Counts one more token of answer `index`.
    pub(crate) fn count(&mut self, index: usize) {
        self.counts[index].1 += 1;
    }

    /// Returns an event about answer `index`; `choice` has everything but that index.
    pub(crate) fn event(&self, index: usize, choice: Value) -> Bytes {
        self.filled(index, sse::data(&self.chunk(index, choice)))
    }

    /// Returns a template of events that differ only in the text at [`TextEvent::MARK`].
    pub(crate) fn template(&self, index: usize, choice: Value) -> TextEvent {
        TextEvent::new(&self.chunk(index, choice))
    }

    /// Returns the event with the usage so far filled in, if the client asked for that.
    pub(crate) fn filled(&self, index: usize, event: Bytes) -> Bytes {
        if !self.throughout {
            return event;
        }
        let (prompt_tokens, completion_tokens) = self.counts[index];
        let usage = TokenUsage { prompt_tokens, completion_tokens, cached_tokens: 0 };
        let mut usage = usage.to_json();
        // As in vLLM, cached tokens are reported only at the end.
        usage.as_object_mut().map(|fields| fields.remove("prompt_tokens_details"));
        let text = String::from_utf8_lossy(&event);
        text.replace(&format!("\"{USAGE_MARK}\""), &usage.to_string()).into()
    }

    /// Writes the end of the stream.
    pub(crate) fn finish(&self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        if self.includes_usage {
            let mut chunk = self.head.clone();
            let completion_tokens = self.counts.iter().map(|(_, tokens)| tokens).sum();
            let prompt_tokens = self.prompt_tokens;
            chunk["choices"] = json!([]);
            chunk["usage"] =
                TokenUsage { prompt_tokens, completion_tokens, cached_tokens }.to_json();
            events.push_back(sse::data(&chunk));
        }
        events.push_back(sse::DONE);
    }

    /// Writes the error of an engine that died, and the end of the stream, as vLLM does.
    pub(crate) fn fail(events: &mut VecDeque<Bytes>) {
        events.push_back(sse::data(&ApiError::engine_dead().openai_body()));
        events.push_back(sse::DONE);
    }

    fn chunk(&self, index: usize, mut choice: Value) -> Value {
        choice["index"] = index.into();
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([choice]);
        if self.includes_usage {
            chunk["usage"] = if self.throughout { USAGE_MARK.into() } else { Value::Null };
        }
        chunk
    }
}
