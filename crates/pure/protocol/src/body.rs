//! Facts that the gateway needs from a JSON body, read without building a tree.
//!
//! The gateway must read each field like the engine that the body goes to. Fields that engines read
//! in different ways (given twice, in another case) are therefore refused. Numbers and flags in
//! forms that some engines convert count as converted. Fields without a place in [`Facts`] pass
//! unread, however odd they are.

mod abridged;
mod body_error;
mod members;
mod name_table;
mod non_finite;
mod numbers;
mod prompt_load;

use std::borrow::Cow;
use std::ops::Range;

use crate::engine_fields::{self, EngineFields};

pub(crate) use abridged::LongTexts;
pub use body_error::{BodyError, BodyErrorKind};
pub(crate) use members::CheckedBody;
use members::Members;
pub(crate) use name_table::{NameTable, folded};
pub(crate) use numbers::{Number, flag, number};
pub use prompt_load::PromptLoad;

/// Top-level fields whose value is read, in the order of [`Field`].
const FACT_NAMES: [&str; 29] = [
    "model",
    "stream",
    "stream_options",
    "messages",
    "prompt",
    "input",
    "query",
    "tools",
    "instructions",
    "user",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "max_new_tokens",
    "n_predict",
    "num_predict",
    "min_tokens",
    "n",
    "best_of",
    "n_cmpl",
    "num_return_sequences",
    "previous_response_id",
    "conversation",
    "cache_salt",
    "extra_key",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "store",
];

/// Further fields that engines read as parts of a prompt.
const TEXT_NAMES: [&str; 18] = [
    "text_1",
    "data_1",
    "queries",
    "documents",
    "items",
    "text_2",
    "data_2",
    "texts",
    "inputs",
    "suffix",
    "input_ids",
    "prompt_token_ids",
    "prompt_embeds",
    "input_embeds",
    "tokens",
    "context",
    "previous_response",
    "previous_input_messages",
];
/// Indexes of [`TEXT_NAMES`] of embeddings in place of text.
const EMBEDDINGS: Range<usize> = 12..14;
/// Indexes of [`TEXT_NAMES`] of queries, which are compared with each document.
const QUERIES: Range<usize> = 0..3;
/// Indexes of [`TEXT_NAMES`] of lists of documents, each of which is compared with a query.
const DOCUMENTS: Range<usize> = 3..8;

const TEXTS_AT: usize = FACT_NAMES.len();
const ENGINE_AT: usize = TEXTS_AT + TEXT_NAMES.len();
const NAMES: usize = ENGINE_AT + engine_fields::NAMES.len();

/// Names of all top-level fields that are read.
const FIELD_NAMES: [&str; NAMES] = {
    let mut names = [""; NAMES];
    let mut at = 0;
    while at < NAMES {
        names[at] = if at < TEXTS_AT {
            FACT_NAMES[at]
        } else if at < ENGINE_AT {
            TEXT_NAMES[at - TEXTS_AT]
        } else {
            engine_fields::NAMES[at - ENGINE_AT]
        };
        at += 1;
    }
    names
};

static FIELDS: NameTable<NAMES> = NameTable::new(FIELD_NAMES);
static OPTIONS: NameTable<1> = NameTable::new(["include_usage"]);

/// Fields by which engines change the text in front of the first message.
const TEMPLATE_FIELDS: [Field; 3] =
    [Field::ChatTemplate, Field::ChatTemplateKwargs, Field::ReasoningEffort];

/// Fields that limit the tokens of an answer, on any endpoint. The engine decides which of them
/// counts.
const OUTPUT_FIELDS: [Field; 7] = [
    Field::MaxCompletionTokens,
    Field::MaxOutputTokens,
    Field::MaxTokens,
    Field::MaxNewTokens,
    Field::NPredict,
    Field::NumPredict,
    Field::MinTokens,
];

/// Fields for the number of answers.
const ANSWER_FIELDS: [Field; 4] =
    [Field::N, Field::BestOf, Field::NCmpl, Field::NumReturnSequences];

/// Indexes of [`FACT_NAMES`].
#[derive(Clone, Copy)]
enum Field {
    Model,
    Stream,
    StreamOptions,
    Messages,
    Prompt,
    Input,
    Query,
    Tools,
    Instructions,
    User,
    MaxCompletionTokens,
    MaxOutputTokens,
    MaxTokens,
    MaxNewTokens,
    NPredict,
    NumPredict,
    MinTokens,
    N,
    BestOf,
    NCmpl,
    NumReturnSequences,
    PreviousResponseId,
    Conversation,
    CacheSalt,
    ExtraKey,
    ChatTemplate,
    ChatTemplateKwargs,
    ReasoningEffort,
    Store,
}

/// Field that has the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// `messages`: a conversation.
    Messages,
    /// `prompt`: text or tokens without roles.
    Prompt,
    /// `input`: text or a conversation.
    Input,
    /// `query`: text to compare documents with.
    Query,
}

/// String in the body, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextField<'b> {
    /// Text with escapes resolved; borrowed if there are none.
    pub value: Cow<'b, str>,
    /// Place of the JSON string in the body, quotes included.
    pub span: Range<usize>,
}

/// Facts of a JSON body for routing and streaming. All ranges are offsets in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<'b> {
    /// Name of the requested model; `None` if absent or null.
    pub model: Option<TextField<'b>>,
    /// True if the answer is a stream of events.
    pub stream: bool,
    /// Value of `stream_options.include_usage`; `None` if absent or null.
    pub include_usage: Option<bool>,
    /// Place of the value of `stream_options`; `None` if absent.
    pub stream_options: Option<Range<usize>>,
    /// Place of the value of `messages`, `prompt`, `input` or `query`: the first that is not null.
    pub prompt: Option<Range<usize>>,
    /// Field that `prompt` is the value of.
    pub prompt_kind: Option<PromptKind>,
    /// Place of the value of `tools`, unless null; engines put it before the messages.
    pub tools: Option<Range<usize>>,
    /// Place of the value of `instructions`, unless null; engines put it before the input.
    pub instructions: Option<Range<usize>>,
    /// Places of the values of the fields that separate cache entries, unless null: `cache_salt` of
    /// vLLM, `extra_key` of SGLang.
    pub cache_salts: [Option<Range<usize>>; 2],
    /// Place of the value of `lora_path`, SGLang's field for an adapter, unless null. Other engines
    /// take an adapter's name as the model.
    pub adapter: Option<Range<usize>>,
    /// Name and place of the value of each field that changes the text before the first message.
    pub(crate) template: [(&'static str, Option<Range<usize>>); TEMPLATE_FIELDS.len()],
    /// Name of the end user from the client; `None` if it is no string.
    pub user: Option<Cow<'b, str>>,
    /// Largest number of tokens of one answer: the maximum of all fields that any engine may use.
    /// `None` if no field has a number.
    pub max_tokens: Option<u32>,
    /// True if `max_tokens` is from a value that some engines ignore: text, or a number with point
    /// or exponent.
    pub is_converted: bool,
    /// True if a field has a negative number, which means an answer of any length, or no number at
    /// all.
    pub is_unbounded: bool,
    /// Number of answers to each prompt: the largest of `n`, `best_of` and similar fields; at least
    /// 1.
    pub answers: u32,
    /// Fields that steer the engine, unless null.
    pub engine_fields: EngineFields,
    /// Places of further parts of prompts, in the order of [`TEXT_NAMES`]; `None` if absent or
    /// null.
    pub(crate) texts: [Option<Range<usize>>; TEXT_NAMES.len()],
    /// Places of the values of [`Self::cache_salts`], even if null.
    pub(crate) cache_salt_values: [Option<Range<usize>>; 2],
    /// Id of the stored response that this request continues.
    pub previous_response_id: Option<Cow<'b, str>>,
    /// True if the engine puts text that it has stored before the prompt: earlier turns, or a prompt
    /// that the body names by its id.
    pub has_stored_text: bool,
    /// True if the client may fetch the response later. False if `store` is `false`, or if there is
    /// a `request_id`: some engines use it as the response's id, so a client could choose an id of
    /// another.
    pub is_stored: bool,
    /// Offset just after the body's `{`, where a field can be inserted.
    pub insert_at: usize,
    /// True if a field inserted there needs no comma after it.
    pub is_empty_object: bool,
    /// Places of the texts of long strings anywhere in the body, in order, as far as known.
    pub(crate) long_texts: LongTexts,
    /// Place of the value of `model`, even if null.
    pub(crate) model_value: Option<Range<usize>>,
    /// Place of the value of `stream_options.include_usage`, even if null.
    pub(crate) include_usage_value: Option<Range<usize>>,
}

/// Reads the facts of a request body, in time linear in its length. While it reads, it uses memory
/// of at most that length, mostly 2 KiB, and one byte per level of nesting.
///
/// # Errors
/// Returns [`BodyError`] if the body is no JSON object in UTF-8, or if engines would read it
/// differently.
pub fn read_facts(body: &[u8]) -> Result<Facts<'_>, BodyError> {
    let source = CheckedBody::new(body)?;
    let mut members = source.members(source.object()?, &FIELDS)?;
    let mut long_texts = members.take_long_texts();
    for text in &mut long_texts {
        *text = text.start + source.object_start()..text.end + source.object_start();
    }
    let options = stream_options(&source, &members)?;
    let value = |field: Field| members.value(field as usize);
    let model_raw = value(Field::Model);
    let span = |field: Field| Some(source.span(not_null(value(field))?));
    let prompt = [
        (Field::Messages, PromptKind::Messages),
        (Field::Prompt, PromptKind::Prompt),
        (Field::Input, PromptKind::Input),
        (Field::Query, PromptKind::Query),
    ];
    // Engines use the first of these fields that is not null.
    let prompt = prompt.into_iter().find_map(|(field, kind)| Some((span(field)?, kind)));
    let (prompt, prompt_kind) = prompt.unzip();
    let has_stored_text =
        has_stored_text(&members, prompt.as_ref().map(|range| &body[range.clone()]));
    let output = output(&members);
    let engine = |index: usize| not_null(members.value(ENGINE_AT + index));
    let engine_fields = (0..engine_fields::NAMES.len()).filter(|at| engine(*at).is_some());
    let engine_fields =
        engine_fields.map(EngineFields::at).fold(EngineFields::NONE, EngineFields::with);
    Ok(Facts {
        model: model_raw.map_or(Ok(None), |raw| source.text(raw, "model"))?,
        stream: value(Field::Stream).and_then(flag).unwrap_or(false),
        include_usage: options.include_usage,
        stream_options: options.span,
        prompt,
        prompt_kind,
        tools: span(Field::Tools),
        instructions: span(Field::Instructions),
        cache_salts: [Field::CacheSalt, Field::ExtraKey].map(span),
        // The adapter is also one of the fields that steer the engine.
        adapter: engine(LORA_PATH).map(|raw| source.span(raw)),
        template: TEMPLATE_FIELDS.map(|field| (FACT_NAMES[field as usize], span(field))),
        // Engines do not act on `user`, so a value of another type is no error.
        user: value(Field::User)
            .and_then(|raw| source.text(raw, "user").ok().flatten())
            .map(|field| field.value),
        max_tokens: output.tokens_max,
        is_converted: output.is_converted,
        is_unbounded: output.is_unbounded,
        answers: output.answers,
        engine_fields,
        texts: std::array::from_fn(|at| {
            not_null(members.value(TEXTS_AT + at)).map(|raw| source.span(raw))
        }),
        cache_salt_values: [Field::CacheSalt, Field::ExtraKey]
            .map(|field| members.value(field as usize).map(|raw| source.span(raw))),
        has_stored_text,
        previous_response_id: value(Field::PreviousResponseId)
            // Ids begin with a letter, so that no number is one of a stored response.
            .filter(|raw| raw.starts_with(['"', '[', '{']))
            .map_or(Ok(None), |raw| source.text(raw, "previous_response_id"))?
            .map(|field| field.value),
        // Any other value, even a wrong one, counts as stored, since an engine might take it so.
        is_stored: value(Field::Store).is_none_or(|raw| raw != "false")
            && engine(REQUEST_ID).is_none(),
        insert_at: source.object_start() + 1,
        is_empty_object: members.is_empty(),
        long_texts,
        model_value: model_raw.map(|raw| source.span(raw)),
        include_usage_value: options.include_usage_value,
    })
}

/// Returns true if a request has the engine read text that is not in its body. `prompt` is the
/// value of the first prompt.
fn has_stored_text(members: &Members<'_, NAMES>, prompt: Option<&[u8]>) -> bool {
    let is_given = |field: Field| not_null(members.value(field as usize)).is_some();
    // An object has the id of a stored prompt; a prompt of its own is text or a list.
    is_given(Field::PreviousResponseId)
        || is_given(Field::Conversation)
        || prompt.is_some_and(|prompt| prompt.starts_with(b"{"))
}

/// Index of the field that names an adapter.
const LORA_PATH: usize = engine_field("lora_path");
/// Index of the field that some engines use as the id of the response.
const REQUEST_ID: usize = engine_field("request_id");

/// Returns the index of a field among those that steer the engine.
const fn engine_field(name: &str) -> usize {
    let mut at = 0;
    while !is_equal(engine_fields::NAMES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

/// Compares slices in constants, where `==` is not available.
const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Length and number of answers that a body asks for.
struct Output {
    tokens_max: Option<u32>,
    is_converted: bool,
    is_unbounded: bool,
    answers: u32,
}

fn output(members: &Members<'_, NAMES>) -> Output {
    let mut output =
        Output { tokens_max: None, is_converted: false, is_unbounded: false, answers: 1 };
    for field in OUTPUT_FIELDS {
        match members.value(field as usize).map_or(Number::None, number) {
            // Engines take zero for "not given", or refuse it.
            Number::None | Number::Some(0) => {}
            Number::Some(tokens) => output.tokens_max = output.tokens_max.max(Some(tokens)),
            Number::Converted(tokens) => {
                output.tokens_max = output.tokens_max.max((tokens > 0).then_some(tokens));
                output.is_converted = true;
            }
            // Some engines take -1 for "without limit", and those that ignore what is no number
            // have a default that is unknown here.
            Number::Negative | Number::Other => output.is_unbounded = true,
        }
    }
    for field in ANSWER_FIELDS {
        match members.value(field as usize).map_or(Number::None, number) {
            Number::None => {}
            // Engines that ignore the field give one answer.
            Number::Some(answers) | Number::Converted(answers) => {
                output.answers = output.answers.max(answers);
            }
            Number::Negative | Number::Other => output.is_unbounded = true,
        }
    }
    output
}

#[derive(Default)]
struct StreamOptions {
    span: Option<Range<usize>>,
    include_usage: Option<bool>,
    include_usage_value: Option<Range<usize>>,
}

fn stream_options(
    source: &CheckedBody<'_>,
    members: &Members<'_, NAMES>,
) -> Result<StreamOptions, BodyError> {
    let Some(raw) = members.value(Field::StreamOptions as usize) else {
        return Ok(StreamOptions::default());
    };
    let span = Some(source.span(raw));
    // Null means the same as an absent field. The engine decides about a value that is no object.
    if !raw.starts_with('{') {
        return Ok(StreamOptions { span, ..StreamOptions::default() });
    }
    let options = source.members(raw, &OPTIONS)?;
    let value = options.value(0);
    Ok(StreamOptions {
        span,
        include_usage: value.and_then(flag),
        include_usage_value: value.map(|raw| source.span(raw)),
    })
}

fn not_null(raw: Option<&str>) -> Option<&str> {
    raw.filter(|raw| *raw != "null")
}

#[cfg(test)]
pub(crate) mod body_test;
