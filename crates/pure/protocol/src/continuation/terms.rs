//! Terms of a request for continuing its stream on another replica.

use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::unfit::Unfit;
use crate::Facts;
use crate::body::{CheckedBody, NameTable, Number, flag, number};
use crate::splice::{Changes, UsageWish, asks_throughout, change};
use crate::splice::{Edit, Segments, apply, json_string};

/// Names of the fields that are read, in the order of [`TermField`].
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

/// Indexes of [`NAMES`].
#[derive(Clone, Copy)]
enum TermField {
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

/// Fields that prevent a continuation, unless their value has no effect. Includes the names of vLLM
/// and SGLang beside OpenAI's.
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

/// Values without effect, as JSON text.
const HARMLESS: [&str; 6] = ["null", "false", "0", "0.0", "[]", "\"\""];

/// API of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionApi {
    /// Chat completions, `/v1/chat/completions`.
    Chat,
    /// Text completions, `/v1/completions`.
    Text,
}

/// Usage reports that the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageTelling {
    /// None.
    Never,
    /// An event at the end of the stream.
    AtEnd,
    /// A report in every event.
    Throughout,
}

/// Terms of a request that can be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    api: CompletionApi,
    /// Offset where text is inserted: behind the last message, or behind the prompt's last
    /// character.
    end: usize,
    stops: Vec<String>,
    /// Smallest of the limits; `None` without a limit.
    tokens_max: Option<u64>,
    limits: SmallVec<[(Range<usize>, u64); 2]>,
    least: Option<(Range<usize>, u64)>,
    /// Places of the two fields that make an engine continue a chat; empty ranges where they can be
    /// inserted.
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
    /// Returns the usage reports that the client itself asked for.
    #[must_use]
    pub fn of(facts: &Facts<'_>, body: &[u8]) -> Self {
        match (facts.include_usage, asks_throughout(facts, body)) {
            (Some(true), true) => Self::Throughout,
            (Some(true), false) => Self::AtEnd,
            _ => Self::Never,
        }
    }

    /// Returns the reports of a stream that also has to give the usage of this wish.
    #[must_use]
    pub fn and(self, wish: UsageWish) -> Self {
        match (self, wish) {
            (Self::Throughout, _) | (_, UsageWish::Throughout) => Self::Throughout,
            (Self::AtEnd, _) | (_, UsageWish::AtEnd) => Self::AtEnd,
            (Self::Never, UsageWish::AsSent) => Self::Never,
        }
    }
}

/// Returns the body with usage requested in every event, so that the number of tokens sent so far
/// is known at any time. Engines that do not know the option ignore it, or refuse the request.
/// `new_model` replaces the model's name. All other bytes stay as they are.
///
/// `facts` must be those that [`crate::read_facts`] returned for this very body.
#[must_use]
pub fn ask_throughout(body: &Bytes, facts: &Facts<'_>, new_model: Option<&str>) -> Segments {
    change(body, facts, &Changes { model: new_model, usage: UsageWish::Throughout, salt: None })
}

impl Terms {
    /// Reads the terms of a request to one of the two APIs, in one pass.
    ///
    /// # Errors
    /// Returns the reason why its stream cannot be continued.
    pub fn read(body: &[u8], api: CompletionApi) -> Result<Self, Unfit> {
        let source = CheckedBody::new(body).map_err(|_| Unfit::Unreadable)?;
        let object = source.object().map_err(|_| Unfit::Unreadable)?;
        let found = source.members(object, &BARRED_NAMES).map_err(|_| Unfit::Unreadable)?;
        for (index, (name, unfit)) in BARRED.iter().enumerate() {
            let value = found.value(index).unwrap_or("null");
            // One answer is what the engine gives without the field.
            let is_one_answer = *unfit == Unfit::SeveralAnswers && value == "1";
            let is_no_call = *name == "function_call" && value == "\"none\"";
            if !HARMLESS.contains(&value) && !is_one_answer && !is_no_call {
                return Err(*unfit);
            }
        }
        let members = source.members(object, &FIELDS).map_err(|_| Unfit::Unreadable)?;
        let value = |field: TermField| members.value(field as usize).filter(|raw| *raw != "null");
        if value(TermField::ResponseFormat).is_some_and(|format| !is_plain(format)) {
            return Err(Unfit::Structured);
        }
        // At temperature 0 the seed has no effect, so the text can be continued.
        if value(TermField::Seed).is_some() && !value(TermField::Temperature).is_some_and(is_zero) {
            return Err(Unfit::Seed);
        }
        let is_not = |field, usual| value(field).is_some_and(|raw| flag(raw) != Some(usual));
        if is_not(TermField::ContinueFinalMessage, false)
            || is_not(TermField::AddGenerationPrompt, true)
        {
            return Err(Unfit::Prefilled);
        }
        let limit = |field: TermField| -> Result<Option<(Range<usize>, u64)>, Unfit> {
            let Some(raw) = value(field) else { return Ok(None) };
            match number(raw) {
                Number::Some(limit) | Number::Converted(limit) => {
                    Ok(Some((source.span(raw), limit.into())))
                }
                Number::None | Number::Negative | Number::Other => Err(Unfit::Unreadable),
            }
        };
        let limits = [limit(TermField::MaxTokens)?, limit(TermField::MaxCompletionTokens)?];
        let limits: SmallVec<[_; 2]> = limits.into_iter().flatten().collect();
        let tokens_max = limits.iter().map(|(_, limit)| *limit).min();
        // Without a limit the engine's own default holds, which the gateway does not know.
        if api == CompletionApi::Text && tokens_max.is_none() {
            return Err(Unfit::NoLimit);
        }
        let insert_at = source.object_start() + 1;
        let switch = |field: TermField| {
            let value = members.value(field as usize);
            value.map_or(insert_at..insert_at, |raw| source.span(raw))
        };
        Ok(Self {
            api,
            end: match api {
                CompletionApi::Chat => end_of(&source, value(TermField::Messages), ['[', ']'])?,
                CompletionApi::Text => end_of(&source, value(TermField::Prompt), ['"', '"'])?,
            },
            stops: value(TermField::Stop).map_or(Ok(Vec::new()), read_stops)?,
            tokens_max,
            limits,
            least: limit(TermField::MinTokens)?,
            switches: [
                switch(TermField::AddGenerationPrompt),
                switch(TermField::ContinueFinalMessage),
            ],
            insert_at,
        })
    }

    /// Returns the API of the request.
    #[must_use]
    pub fn api(&self) -> CompletionApi {
        self.api
    }

    /// Returns the largest number of tokens of the whole answer; `None` if only the engine's
    /// context bounds it.
    #[must_use]
    pub fn tokens_max(&self) -> Option<u64> {
        self.tokens_max
    }

    /// Returns true if `text` ends with the beginning of a stop sequence. The second replica would
    /// look for the sequence only in its own part, and so miss it.
    #[must_use]
    pub fn has_stop_begun(&self, text: &str) -> bool {
        let begins = |stop: &String| {
            let mut ends = stop.char_indices().map(|(at, letter)| at + letter.len_utf8());
            ends.any(|end| text.ends_with(&stop[..end]))
        };
        self.stops.iter().any(begins)
    }

    /// Returns the request that makes a replica continue behind `text`, which has `tokens` tokens.
    /// `body` must be the body that these terms were read from.
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
                    // The object has at least the field `messages`, so a comma is always right.
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
            // The answer so far is part of the new prompt, so each limit falls by its tokens.
            let left = limit.saturating_sub(tokens).to_string();
            edits.push(Edit { at: at.clone(), with: left.into() });
        }
        edits.sort_by_key(|edit| edit.at.start);
        apply(body, edits)
    }
}

/// Returns the offset of a value's closing delimiter.
///
/// # Errors
/// Returns a reason if the value does not have the delimiters, or if a list of messages is empty.
fn end_of(
    source: &CheckedBody<'_>,
    value: Option<&str>,
    [open, close]: [char; 2],
) -> Result<usize, Unfit> {
    let raw = value.ok_or(Unfit::TokenPrompt)?;
    let inner = raw.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let inner = inner.ok_or(Unfit::TokenPrompt)?;
    // A prompt may be empty, a list of messages may not.
    if open == '[' && inner.trim().is_empty() {
        return Err(Unfit::Unreadable);
    }
    Ok(source.span(raw).end - 1)
}

fn read_stops(raw: &str) -> Result<Vec<String>, Unfit> {
    match serde_json::from_str(raw) {
        Ok(Stops::One(stop)) => Ok(vec![stop]),
        Ok(Stops::Many(stops)) => Ok(stops),
        Err(_) => Err(Unfit::Unreadable),
    }
}

fn is_plain(format: &str) -> bool {
    let format = serde_json::from_str::<Format<'_>>(format);
    format.is_ok_and(|format| format.kind.is_some_and(|kind| kind.get() == "\"text\""))
}

fn is_zero(number: &str) -> bool {
    number.parse() == Ok(0.0)
}
