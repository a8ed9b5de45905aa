//! What a request says about going on with its stream elsewhere.

use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::unfit::Unfit;
use crate::Facts;
use crate::body::{NameTable, Source};
use crate::splice::{Changes, UsageWish, asks_throughout, change};
use crate::splice::{Edit, Segments, apply, json_string};

/// The fields that are read, in the order of [`Field`].
const NAMES: [&str; 11] = [
    "messages",
    "prompt",
    "stop",
    "seed",
    "temperature",
    "response_format",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "add_generation_prompt",
    "continue_final_message",
];

static FIELDS: NameTable<{ NAMES.len() }> = NameTable::new(NAMES);

/// Positions in [`NAMES`].
#[derive(Clone, Copy)]
enum Field {
    Messages,
    Prompt,
    Stop,
    Seed,
    Temperature,
    ResponseFormat,
    MaxTokens,
    MaxCompletionTokens,
    MinTokens,
    AddGenerationPrompt,
    ContinueFinalMessage,
}

/// Fields that must not be set to anything but what changes nothing; the names of vLLM and SGLang
/// beside OpenAI's.
const BARRED: [(&str, Unfit); 30] = [
    ("n", Unfit::SeveralAnswers),
    ("best_of", Unfit::SeveralAnswers),
    ("use_beam_search", Unfit::SeveralAnswers),
    ("tools", Unfit::Tools),
    ("functions", Unfit::Tools),
    ("function_call", Unfit::Tools),
    ("guided_json", Unfit::Structured),
    ("guided_regex", Unfit::Structured),
    ("guided_choice", Unfit::Structured),
    ("guided_grammar", Unfit::Structured),
    ("structured_outputs", Unfit::Structured),
    ("structural_tag", Unfit::Structured),
    ("regex", Unfit::Structured),
    ("ebnf", Unfit::Structured),
    ("json_schema", Unfit::Structured),
    ("grammar", Unfit::Structured),
    ("logprobs", Unfit::Logprobs),
    ("top_logprobs", Unfit::Logprobs),
    ("prompt_logprobs", Unfit::Logprobs),
    ("return_token_ids", Unfit::Logprobs),
    ("return_hidden_states", Unfit::Logprobs),
    ("echo", Unfit::Echo),
    ("suffix", Unfit::Suffix),
    ("frequency_penalty", Unfit::Penalties),
    ("presence_penalty", Unfit::Penalties),
    ("prompt_embeds", Unfit::TokenPrompt),
    ("input_embeds", Unfit::TokenPrompt),
    ("input_ids", Unfit::TokenPrompt),
    ("truncate_prompt_tokens", Unfit::TokenPrompt),
    ("audio", Unfit::Media),
];

static BARRED_NAMES: NameTable<{ BARRED.len() }> = NameTable::new({
    let mut names = [""; BARRED.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = BARRED[at].0;
        at += 1;
    }
    names
});

/// Values that change nothing, as they are written.
const HARMLESS: [&str; 6] = ["null", "false", "0", "0.0", "[]", "\"\""];

/// Which API a stream is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionApi {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Text,
}

/// What the client wants to be told of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageTelling {
    /// Nothing.
    Never,
    /// The event at the end.
    AtEnd,
    /// In every event.
    Throughout,
}

/// What a request that can be continued says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    api: CompletionApi,
    /// Where text is put in: behind the last message, or behind the prompt's last character.
    end: usize,
    stops: Vec<String>,
    /// The least of its limits.
    tokens_max: Option<u64>,
    limits: SmallVec<[(Range<usize>, u64); 2]>,
    least: Option<(Range<usize>, u64)>,
    /// Where the two fields are that have a chat continued, or where they can be put in.
    switches: [Range<usize>; 2],
    insert_at: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Format<'b> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'b RawValue>,
}

impl UsageTelling {
    /// What the client itself asked for.
    #[must_use]
    pub fn of(facts: &Facts<'_>, body: &[u8]) -> Self {
        match (facts.include_usage, asks_throughout(facts, body)) {
            (Some(true), true) => Self::Throughout,
            (Some(true), false) => Self::AtEnd,
            _ => Self::Never,
        }
    }
}

/// The body with usage asked for in every event, where a stream's engine knows how to tell it: then
/// the tokens sent so far are known at any time. Others ignore it. With another model name, if one
/// is given; other bytes stay as they were.
///
/// `facts` must be what [`crate::read_facts`] said of this very body.
#[must_use]
pub fn ask_throughout(body: &Bytes, facts: &Facts<'_>, new_model: Option<&str>) -> Segments {
    change(body, facts, &Changes { model: new_model, usage: UsageWish::Throughout, salt: None })
}

impl Terms {
    /// Reads a request of one of the two APIs, in one pass.
    ///
    /// # Errors
    /// Why its stream can't be continued, whatever comes of it.
    pub fn read(body: &[u8], api: CompletionApi) -> Result<Self, Unfit> {
        let source = Source::new(body).map_err(|_| Unfit::Unreadable)?;
        let object = source.object().map_err(|_| Unfit::Unreadable)?;
        let found = source.members(object, &BARRED_NAMES).map_err(|_| Unfit::Unreadable)?;
        for (index, (name, unfit)) in BARRED.iter().enumerate() {
            let value = found.value(index).map_or("null", RawValue::get);
            let is_one_answer = *unfit == Unfit::SeveralAnswers && value == "1";
            let is_no_call = *name == "function_call" && value == "\"none\"";
            if !HARMLESS.contains(&value) && !is_one_answer && !is_no_call {
                return Err(*unfit);
            }
        }
        let members = source.members(object, &FIELDS).map_err(|_| Unfit::Unreadable)?;
        let value = |field: Field| members.value(field as usize).filter(|raw| raw.get() != "null");
        if value(Field::ResponseFormat).is_some_and(|format| !is_plain(format)) {
            return Err(Unfit::Structured);
        }
        if value(Field::Seed).is_some() && !value(Field::Temperature).is_some_and(is_zero) {
            return Err(Unfit::Seed);
        }
        let is = |field, text| value(field).is_some_and(|raw| raw.get() == text);
        if is(Field::ContinueFinalMessage, "true") || is(Field::AddGenerationPrompt, "false") {
            return Err(Unfit::Prefilled);
        }
        let number = |field: Field| -> Result<Option<(Range<usize>, u64)>, Unfit> {
            let Some(raw) = value(field) else { return Ok(None) };
            let number = raw.get().parse().map_err(|_| Unfit::Unreadable)?;
            Ok(Some((source.span(raw), number)))
        };
        let limits = [number(Field::MaxTokens)?, number(Field::MaxCompletionTokens)?];
        let limits: SmallVec<[_; 2]> = limits.into_iter().flatten().collect();
        let tokens_max = limits.iter().map(|(_, limit)| *limit).min();
        if api == CompletionApi::Text && tokens_max.is_none() {
            return Err(Unfit::NoLimit);
        }
        let insert_at = source.object_start() + 1;
        let switch = |field: Field| {
            let value = members.value(field as usize);
            value.map_or(insert_at..insert_at, |raw| source.span(raw))
        };
        Ok(Self {
            api,
            end: match api {
                CompletionApi::Chat => end_of(&source, value(Field::Messages), ['[', ']'])?,
                CompletionApi::Text => end_of(&source, value(Field::Prompt), ['"', '"'])?,
            },
            stops: value(Field::Stop).map_or(Ok(Vec::new()), read_stops)?,
            tokens_max,
            limits,
            least: number(Field::MinTokens)?,
            switches: [switch(Field::AddGenerationPrompt), switch(Field::ContinueFinalMessage)],
            insert_at,
        })
    }

    /// Which API it is for.
    #[must_use]
    pub fn api(&self) -> CompletionApi {
        self.api
    }

    /// Most tokens that the whole answer may have; `None` if only the engine's context bounds it.
    #[must_use]
    pub fn tokens_max(&self) -> Option<u64> {
        self.tokens_max
    }

    /// Whether the text ends with a part of a stop sequence. The replica that goes on would look for
    /// the sequence in its own part only, and so miss it.
    #[must_use]
    pub fn has_stop_begun(&self, text: &str) -> bool {
        let begins = |stop: &String| {
            let mut ends = stop.char_indices().map(|(at, letter)| at + letter.len_utf8());
            ends.any(|end| text.ends_with(&stop[..end]))
        };
        self.stops.iter().any(begins)
    }

    /// The request by which a replica goes on behind `text`, of which `tokens` were counted. `body`
    /// must be the one that was read.
    #[must_use]
    pub fn body_behind(&self, body: &Bytes, text: &str, tokens: u64) -> Segments {
        let mut edits = SmallVec::<[Edit; 8]>::new();
        let quoted = json_string(text);
        match self.api {
            CompletionApi::Chat => {
                let message = [b",{\"role\":\"assistant\",\"content\":", &*quoted, b"}"].concat();
                edits.push(Edit { at: self.end..self.end, with: message.into() });
                let names = ["add_generation_prompt", "continue_final_message"];
                for ((at, name), value) in self.switches.iter().zip(names).zip(["false", "true"]) {
                    // The object has `messages` in it, so a comma is always right.
                    let is_new = at.start == self.insert_at;
                    let with = if is_new { format!("\"{name}\":{value},") } else { value.into() };
                    edits.push(Edit { at: at.clone(), with: with.into() });
                }
            }
            CompletionApi::Text => {
                let inner = quoted.slice(1..quoted.len() - 1);
                edits.push(Edit { at: self.end..self.end, with: inner });
            }
        }
        for (at, limit) in self.limits.iter().chain(&self.least) {
            let left = limit.saturating_sub(tokens).to_string();
            edits.push(Edit { at: at.clone(), with: left.into() });
        }
        edits.sort_by_key(|edit| edit.at.start);
        apply(body, edits)
    }
}

/// Where the last thing inside a value's two delimiters ends; it must have something inside.
fn end_of(
    source: &Source<'_>,
    value: Option<&RawValue>,
    [open, close]: [char; 2],
) -> Result<usize, Unfit> {
    let raw = value.ok_or(Unfit::TokenPrompt)?;
    let inner = raw.get().strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let inner = inner.ok_or(Unfit::TokenPrompt)?;
    // A prompt may be empty; a list of messages is not.
    if open == '[' && inner.trim().is_empty() {
        return Err(Unfit::Unreadable);
    }
    Ok(source.span(raw).end - 1)
}

fn read_stops(raw: &RawValue) -> Result<Vec<String>, Unfit> {
    match serde_json::from_str(raw.get()) {
        Ok(Stops::One(stop)) => Ok(vec![stop]),
        Ok(Stops::Many(stops)) => Ok(stops),
        Err(_) => Err(Unfit::Unreadable),
    }
}

fn is_plain(format: &RawValue) -> bool {
    let format = serde_json::from_str::<Format<'_>>(format.get());
    format.is_ok_and(|format| format.kind.is_some_and(|kind| kind.get() == "\"text\""))
}

fn is_zero(number: &RawValue) -> bool {
    number.get().parse() == Ok(0.0)
}
