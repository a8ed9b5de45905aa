//! What the gateway must know of a JSON body, read without building a tree.
//!
//! Nothing may be read here otherwise than by the engine that the body goes to. So every field
//! that engines read in different ways (twice, in another case, of a type that some would
//! coerce) is refused. What is left out of [`Facts`] goes through unread, however odd it is.

mod body_error;
mod members;
mod name_table;
mod numbers;
mod prompt_load;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use crate::engine_fields::{self, EngineFields};

pub use body_error::{BodyError, BodyErrorKind};
use members::Members;
pub(crate) use members::Source;
pub(crate) use name_table::{NameTable, folded};
pub(crate) use numbers::{Number, number};
pub use prompt_load::PromptLoad;

/// The top-level fields that are read for what they say, in the order of [`Field`].
const FACT_NAMES: [&str; 28] = [
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
/// Those of [`TEXT_NAMES`] that each of the others is compared with.
const QUERIES: Range<usize> = 0..3;
/// Those whose elements are compared with a query, one by one.
const DOCUMENTS: Range<usize> = 3..8;

const TEXTS_AT: usize = FACT_NAMES.len();
const ENGINE_AT: usize = TEXTS_AT + TEXT_NAMES.len();
const NAMES: usize = ENGINE_AT + engine_fields::NAMES.len();

/// All top-level fields that are read.
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

/// Fields by which engines change what they put before the first message.
const TEMPLATE_FIELDS: [Field; 3] =
    [Field::ChatTemplate, Field::ChatTemplateKwargs, Field::ReasoningEffort];

/// Fields that limit how many tokens an answer has, whatever the endpoint: which of them counts is up to
/// the engine.
const OUTPUT_FIELDS: [Field; 7] = [
    Field::MaxCompletionTokens,
    Field::MaxOutputTokens,
    Field::MaxTokens,
    Field::MaxNewTokens,
    Field::NPredict,
    Field::NumPredict,
    Field::MinTokens,
];

/// Fields that say how many answers are made.
const ANSWER_FIELDS: [Field; 4] =
    [Field::N, Field::BestOf, Field::NCmpl, Field::NumReturnSequences];

/// Positions in [`FACT_NAMES`].
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
    CacheSalt,
    ExtraKey,
    ChatTemplate,
    ChatTemplateKwargs,
    ReasoningEffort,
    Store,
}

/// Which field the prompt stands in.
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

/// A string of the body, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextField<'b> {
    /// The text with escapes resolved; borrowed where there are none.
    pub value: Cow<'b, str>,
    /// The JSON string in the body, with its quotes.
    pub span: Range<usize>,
}

/// What a JSON body says about how to route and stream it. All ranges are offsets in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<'b> {
    /// The model asked for; `None` if absent or null.
    pub model: Option<TextField<'b>>,
    /// Whether the answer is a stream of events.
    pub stream: bool,
    /// `stream_options.include_usage`; `None` if absent or null.
    pub include_usage: Option<bool>,
    /// The value of `stream_options`: an object or null.
    pub stream_options: Option<Range<usize>>,
    /// The JSON value of `messages`, `prompt`, `input` or `query`: the first that is not null.
    pub prompt: Option<Range<usize>>,
    /// Which of these it is.
    pub prompt_kind: Option<PromptKind>,
    /// The JSON value of `tools`, unless null; engines put it before the messages.
    pub tools: Option<Range<usize>>,
    /// The JSON value of `instructions`, unless null; engines put it before the input.
    pub instructions: Option<Range<usize>>,
    /// The JSON values of what engines keep cache entries apart by (`cache_salt` of vLLM, `extra_key`
    /// of SGLang), unless null.
    pub cache_salts: [Option<Range<usize>>; 2],
    /// The JSON value of `lora_path`, an adapter in SGLang's words, unless null. Others name an
    /// adapter as the model.
    pub adapter: Option<Range<usize>>,
    /// Name and JSON value of each field that changes what stands before the first message.
    pub(crate) template: [(&'static str, Option<Range<usize>>); TEMPLATE_FIELDS.len()],
    /// The end user as the client names them; `None` if it is no string.
    pub user: Option<Cow<'b, str>>,
    /// Most tokens of one answer: the largest of all fields that any engine could take it from. `None`
    /// if none says it.
    pub max_tokens: Option<u32>,
    /// A field says by a negative number that an answer may be as long as it likes.
    pub is_unbounded: bool,
    /// Answers to each prompt: the largest of `n`, `best_of` and what else engines call it; at least 1.
    pub answers: u32,
    /// The fields that steer the engine, unless null.
    pub engine_fields: EngineFields,
    /// Further parts of prompts, in the order of their names; `None` where absent or null.
    pub(crate) texts: [Option<Range<usize>>; TEXT_NAMES.len()],
    /// The value of each of [`Self::cache_salts`], even if it is null.
    pub(crate) cache_salt_values: [Option<Range<usize>>; 2],
    /// The stored response that this request continues.
    pub previous_response_id: Option<Cow<'b, str>>,
    /// Whether the response may be asked for again: not if `store` is `false`, nor by a `request_id`,
    /// which some engines take for the response's id, so that clients could choose those of others.
    pub is_stored: bool,
    /// Just after the body's `{`, where a field can be put in.
    pub insert_at: usize,
    /// Whether a field put in there needs no comma after it.
    pub is_empty_object: bool,
    /// The value of `model`, even if it is null.
    pub(crate) model_value: Option<Range<usize>>,
    /// The value of `stream_options.include_usage`, even if it is null.
    pub(crate) include_usage_value: Option<Range<usize>>,
}

/// Reads the facts of a request body in one pass, in time linear in its length. Memory beyond
/// the result is at most one byte per level of nesting.
///
/// # Errors
/// [`BodyError`] if the body is no JSON object in UTF-8, or if engines would not agree on it.
pub fn read_facts(body: &[u8]) -> Result<Facts<'_>, BodyError> {
    let source = Source::new(body)?;
    let members = source.members(source.object()?, &FIELDS)?;
    let options = stream_options(&source, &members)?;
    let model_raw = members.value(Field::Model as usize);
    let span = |field: Field| Some(source.span(not_null(members.value(field as usize))?));
    let prompt = [
        (Field::Messages, PromptKind::Messages),
        (Field::Prompt, PromptKind::Prompt),
        (Field::Input, PromptKind::Input),
        (Field::Query, PromptKind::Query),
    ];
    let prompt = prompt.into_iter().find_map(|(field, kind)| Some((span(field)?, kind)));
    let (prompt, prompt_kind) = prompt.unzip();
    let output = output(&source, &members)?;
    let engine = |index: usize| not_null(members.value(ENGINE_AT + index));
    let engine_fields = (0..engine_fields::NAMES.len()).filter(|at| engine(*at).is_some());
    let engine_fields =
        engine_fields.map(EngineFields::at).fold(EngineFields::NONE, EngineFields::with);
    Ok(Facts {
        model: model_raw.map_or(Ok(None), |raw| source.text(raw, "model"))?,
        stream: flag(&source, members.value(Field::Stream as usize), "stream")?.unwrap_or(false),
        include_usage: options.include_usage,
        stream_options: options.span,
        prompt,
        prompt_kind,
        tools: span(Field::Tools),
        instructions: span(Field::Instructions),
        cache_salts: [Field::CacheSalt, Field::ExtraKey].map(span),
        adapter: engine(LORA_PATH).map(|raw| source.span(raw)),
        template: TEMPLATE_FIELDS.map(|field| (FACT_NAMES[field as usize], span(field))),
        user: members
            .value(Field::User as usize)
            .and_then(|raw| source.text(raw, "user").ok().flatten())
            .map(|field| field.value),
        max_tokens: output.tokens_max,
        is_unbounded: output.is_unbounded,
        answers: output.answers,
        engine_fields,
        texts: std::array::from_fn(|at| {
            not_null(members.value(TEXTS_AT + at)).map(|raw| source.span(raw))
        }),
        cache_salt_values: [Field::CacheSalt, Field::ExtraKey]
            .map(|field| members.value(field as usize).map(|raw| source.span(raw))),
        previous_response_id: members
            .value(Field::PreviousResponseId as usize)
            .map_or(Ok(None), |raw| source.text(raw, "previous_response_id"))?
            .map(|field| field.value),
        is_stored: members.value(Field::Store as usize).is_none_or(|raw| raw.get() != "false")
            && engine(REQUEST_ID).is_none(),
        insert_at: source.object_start() + 1,
        is_empty_object: members.is_empty(),
        model_value: model_raw.map(|raw| source.span(raw)),
        include_usage_value: options.include_usage_value,
    })
}

/// The field that names an adapter.
const LORA_PATH: usize = engine_field("lora_path");
/// The field that some engines take for the id of the response.
const REQUEST_ID: usize = engine_field("request_id");

/// The position of a field among those that steer the engine.
const fn engine_field(name: &str) -> usize {
    let mut at = 0;
    while !is_equal(engine_fields::NAMES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    at
}

/// Compares in constants, where `==` of slices is not available.
const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// What a body says of the length and number of its answers.
struct Output {
    tokens_max: Option<u32>,
    is_unbounded: bool,
    answers: u32,
}

fn output(source: &Source<'_>, members: &Members<'_, NAMES>) -> Result<Output, BodyError> {
    let mut output = Output { tokens_max: None, is_unbounded: false, answers: 1 };
    for field in OUTPUT_FIELDS {
        match members.value(field as usize).map_or(Number::None, number) {
            // Engines take zero for "not said", or refuse it.
            Number::None | Number::Some(0) => {}
            Number::Some(tokens) => output.tokens_max = output.tokens_max.max(Some(tokens)),
            Number::Negative => output.is_unbounded = true,
            Number::Other => return Err(wrong_number(source, members, field)),
        }
    }
    for field in ANSWER_FIELDS {
        match members.value(field as usize).map_or(Number::None, number) {
            Number::None => {}
            Number::Some(answers) => output.answers = output.answers.max(answers),
            Number::Negative | Number::Other => return Err(wrong_number(source, members, field)),
        }
    }
    Ok(output)
}

/// Engines read `"5"`, `5.0` and `5e0` as five, or refuse them.
fn wrong_number(source: &Source<'_>, members: &Members<'_, NAMES>, field: Field) -> BodyError {
    let at = members.value(field as usize).map_or(0..0, |raw| source.span(raw)).start;
    let field = FACT_NAMES[field as usize];
    let expected = "a whole number of at most 4294967295, without quotes, point or exponent";
    source.error(at, BodyErrorKind::WrongType { field, expected })
}

#[derive(Default)]
struct StreamOptions {
    span: Option<Range<usize>>,
    include_usage: Option<bool>,
    include_usage_value: Option<Range<usize>>,
}

fn stream_options(
    source: &Source<'_>,
    members: &Members<'_, NAMES>,
) -> Result<StreamOptions, BodyError> {
    let Some(raw) = members.value(Field::StreamOptions as usize) else {
        return Ok(StreamOptions::default());
    };
    let span = Some(source.span(raw));
    if raw.get() == "null" {
        return Ok(StreamOptions { span, ..StreamOptions::default() });
    }
    if !raw.get().starts_with('{') {
        return Err(source.wrong_type(raw, "stream_options", "an object"));
    }
    let options = source.members(raw.get(), &OPTIONS)?;
    let value = options.value(0);
    Ok(StreamOptions {
        span,
        include_usage: flag(source, value, "stream_options.include_usage")?,
        include_usage_value: value.map(|raw| source.span(raw)),
    })
}

/// Engines that read fields through pydantic take `1` and `"true"` for true and others don't, so
/// only JSON's own booleans pass.
fn flag(
    source: &Source<'_>,
    raw: Option<&RawValue>,
    name: &'static str,
) -> Result<Option<bool>, BodyError> {
    let Some(raw) = raw else { return Ok(None) };
    match raw.get() {
        "true" => Ok(Some(true)),
        "false" => Ok(Some(false)),
        "null" => Ok(None),
        _ => Err(source.wrong_type(raw, name, "a boolean")),
    }
}

fn not_null(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
}

#[cfg(test)]
pub(crate) mod body_test;
