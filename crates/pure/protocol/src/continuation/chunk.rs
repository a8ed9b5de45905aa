//! Parsed event of a completion.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::terms::CompletionApi;
use super::unfit::Unfit;
use crate::Usage;
use crate::reply::read_usage;
use crate::sse::event::{field, lines};
use crate::sse::usage_chunk::UsageChunk;

/// Complete event.
#[derive(Clone, Debug)]
pub(crate) enum ChunkEvent {
    /// Event without data: comments or other fields.
    Empty(Bytes),
    /// Event `[DONE]`.
    Done(Bytes),
    /// Event with data, at this range of its bytes.
    Data(Bytes, Range<usize>),
}

impl ChunkEvent {
    pub(crate) fn read(bytes: Bytes) -> Self {
        let mut data: Vec<&[u8]> = Vec::with_capacity(1);
        data.extend(lines(&bytes).filter_map(|line| field(line, b"data")));
        let at = match data.as_slice() {
            [] => return Self::Empty(bytes),
            [one] if one.trim_ascii_end() == b"[DONE]" => return Self::Done(bytes),
            [one] => {
                let start = one.as_ptr().addr() - bytes.as_ptr().addr();
                start..start + one.len()
            }
            // Between tokens of JSON, a line break is only white space, so the lines can be joined.
            several => {
                let joined = [b"data: ", &*several.join(&b' '), b"\n\n"].concat();
                let at = b"data: ".len()..joined.len() - 2;
                return Self::Data(joined.into(), at);
            }
        };
        Self::Data(bytes, at)
    }
}

/// Fields of an event that matter to its stream. A field given as `null` holds `null`, not `None`.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'e> {
    /// JSON of the whole chunk.
    #[serde(skip)]
    json: &'e [u8],
    #[serde(borrow, default, deserialize_with = "raw")]
    pub(super) id: Option<&'e RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    pub(super) created: Option<&'e RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    pub(super) model: Option<&'e RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    pub(super) system_fingerprint: Option<&'e RawValue>,
    #[serde(borrow, default, deserialize_with = "raw")]
    pub(super) usage: Option<&'e RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'e RawValue>,
    #[serde(borrow, default)]
    choices: Vec<ChunkChoice<'e>>,
}

#[derive(Debug, Deserialize)]
struct ChunkChoice<'e> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: Option<&'e RawValue>,
    text: Option<String>,
    #[serde(borrow)]
    finish_reason: Option<&'e RawValue>,
    #[serde(borrow)]
    logprobs: Option<&'e RawValue>,
}

#[derive(Debug, Deserialize)]
struct Delta<'e> {
    #[serde(borrow)]
    role: Option<&'e RawValue>,
    content: Option<String>,
    #[serde(borrow)]
    tool_calls: Option<&'e RawValue>,
    #[serde(borrow)]
    function_call: Option<&'e RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'e RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'e RawValue>,
    #[serde(borrow)]
    refusal: Option<&'e RawValue>,
    #[serde(borrow)]
    audio: Option<&'e RawValue>,
}

/// Content that an event adds to the answer.
#[derive(Debug)]
pub(super) struct ChunkContent<'e> {
    pub(super) text: String,
    /// Delta of the event, if it has a role.
    pub(super) role_in: Option<&'e RawValue>,
    pub(super) has_finish: bool,
    /// Reason why the event cannot be continued elsewhere; `None` if it can.
    pub(super) unfit: Option<Unfit>,
}

impl<'e> Chunk<'e> {
    /// Parses a chunk; `None` if the data are no chunk.
    pub(super) fn read(json: &'e [u8]) -> Option<Self> {
        let chunk: Self = serde_json::from_slice(json).ok()?;
        Some(Self { json, ..chunk })
    }

    /// Returns the usage in the chunk.
    pub(super) fn reported_usage(&self) -> Option<Usage> {
        read_usage(self.usage?.get().as_bytes())
    }

    /// Returns true if the chunk is the one that reports usage at the end of a stream.
    pub(super) fn is_of_usage(&self) -> bool {
        self.choices.is_empty() && self.usage.is_some_and(|usage| usage.get() != "null")
    }

    /// Returns true if a client that did not ask for usage gets nothing of the chunk.
    pub(super) fn is_spent(&self) -> bool {
        UsageChunk::read(self.json).is_some_and(|chunk| chunk.is_of_usage())
    }

    pub(super) fn said(&self, api: CompletionApi) -> ChunkContent<'e> {
        let mut said =
            ChunkContent { text: String::new(), role_in: None, has_finish: false, unfit: None };
        let choice = match self.choices.as_slice() {
            [] => return said,
            [choice] if choice.index == 0 => choice,
            // Several choices, or one that is not the first.
            _ => return ChunkContent { unfit: Some(Unfit::SeveralAnswers), ..said },
        };
        said.has_finish = choice.finish_reason.is_some();
        if is_said(choice.logprobs) {
            said.unfit = Some(Unfit::Logprobs);
        }
        match (api, choice.delta) {
            (CompletionApi::Text, _) => said.text = choice.text.clone().unwrap_or_default(),
            (CompletionApi::Chat, None) => {}
            (CompletionApi::Chat, Some(raw)) => match serde_json::from_str(raw.get()) {
                Ok(delta) => said.read(delta, raw),
                Err(_) => said.unfit = Some(Unfit::Unreadable),
            },
        }
        said
    }
}

impl<'e> ChunkContent<'e> {
    fn read(&mut self, delta: Delta<'_>, raw: &'e RawValue) {
        self.role_in = is_said(delta.role).then_some(raw);
        let others = [
            (delta.tool_calls, Unfit::Tools),
            (delta.function_call, Unfit::Tools),
            (delta.reasoning_content, Unfit::Reasoning),
            (delta.reasoning, Unfit::Reasoning),
            (delta.refusal, Unfit::Unreadable),
            (delta.audio, Unfit::Media),
        ];
        let other = others.into_iter().find(|(value, _)| is_said(*value));
        self.unfit = self.unfit.or_else(|| other.map(|(_, unfit)| unfit));
        self.text = delta.content.unwrap_or_default();
    }
}

/// Returns true if a value is present and not null or empty.
fn is_said(value: Option<&RawValue>) -> bool {
    value.is_some_and(|value| !["null", "[]", "{}", "\"\""].contains(&value.get()))
}

/// Deserializes a value as it stands, even `null`.
fn raw<'de: 'e, 'e, D: Deserializer<'de>>(value: D) -> Result<Option<&'e RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}
