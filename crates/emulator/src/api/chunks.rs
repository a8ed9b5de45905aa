//! Events of a stream of completions: what stands in each of them, and how it ends.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::generate::{Started, Usage};
use super::sampling::Sampling;
use super::sse::{self, TextEvent};

/// What stands in an event for the usage so far.
const USAGE_MARK: &str = "<the usage so far goes here>";

/// The frame of all events of one stream.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Id, kind, time and model.
    head: Value,
    /// What will have been used at the end, if that is to be told.
    usage: Option<Usage>,
    /// Whether each event tells the usage so far.
    throughout: bool,
    /// Prompt tokens and tokens said so far of each answer.
    counts: Vec<(u32, u32)>,
}

impl Chunks {
    /// For a stream whose events all have the fields of `head`.
    pub(crate) fn new(head: Value, started: &Started, sampling: &Sampling) -> Self {
        let each = sampling.candidates();
        let prompts = started.prompt_tokens.iter();
        Self {
            head,
            usage: sampling.include_usage().then(|| started.usage(0)),
            throughout: sampling.usage_throughout(),
            counts: prompts.flat_map(|tokens| vec![(*tokens, 0); each]).collect(),
        }
    }

    /// Answer `index` said a token more.
    pub(crate) fn count(&mut self, index: usize) {
        self.counts[index].1 += 1;
    }

    /// An event about answer `index`, of which `choice` tells all but its number.
    pub(crate) fn event(&self, index: usize, choice: Value) -> Bytes {
        self.filled(index, sse::data(&self.chunk(index, choice)))
    }

    /// An event in which only a text differs each time: [`TextEvent::MARK`] stands for it.
    pub(crate) fn template(&self, index: usize, choice: Value) -> TextEvent {
        TextEvent::new(&self.chunk(index, choice))
    }

    /// The event with the usage so far, if that is to be told.
    pub(crate) fn filled(&self, index: usize, event: Bytes) -> Bytes {
        if !self.throughout {
            return event;
        }
        let (prompt_tokens, completion_tokens) = self.counts[index];
        let usage = Usage { prompt_tokens, completion_tokens, cached_tokens: 0 };
        let mut usage = usage.to_json();
        // As vLLM has it: what was cached is told at the end.
        usage.as_object_mut().map(|fields| fields.remove("prompt_tokens_details"));
        let text = String::from_utf8_lossy(&event);
        text.replace(&format!("\"{USAGE_MARK}\""), &usage.to_string()).into()
    }

    /// The end of the stream.
    pub(crate) fn finish(&self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        if let Some(usage) = self.usage {
            let mut chunk = self.head.clone();
            chunk["choices"] = json!([]);
            chunk["usage"] = Usage { cached_tokens, ..usage }.to_json();
            events.push_back(sse::data(&chunk));
        }
        events.push_back(sse::DONE);
    }

    fn chunk(&self, index: usize, mut choice: Value) -> Value {
        choice["index"] = index.into();
        let mut chunk = self.head.clone();
        chunk["choices"] = json!([choice]);
        if self.usage.is_some() {
            chunk["usage"] = if self.throughout { USAGE_MARK.into() } else { Value::Null };
        }
        chunk
    }
}
