//! What the gateway must know of a JSON body, read without building a tree.
//!
//! Nothing may be read here otherwise than by the engine that the body goes to. So every field
//! that engines read in different ways (twice, in another case, of a type that some would
//! coerce) is refused. What is left out of [`Facts`] goes through unread, however odd it is.

mod body_error;
mod members;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

pub use body_error::{BodyError, BodyErrorKind};
use members::Members;
pub(crate) use members::Source;

/// The top-level fields that are read, in the order of [`Field`].
const FIELD_NAMES: [&str; 23] = [
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
    "n",
    "previous_response_id",
    "cache_salt",
    "extra_key",
    "lora_path",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "store",
    "request_id",
];

/// Fields by which engines change what they put before the first message.
const TEMPLATE_FIELDS: [Field; 3] =
    [Field::ChatTemplate, Field::ChatTemplateKwargs, Field::ReasoningEffort];

/// Positions in [`FIELD_NAMES`].
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
    N,
    PreviousResponseId,
    CacheSalt,
    ExtraKey,
    LoraPath,
    ChatTemplate,
    ChatTemplateKwargs,
    ReasoningEffort,
    Store,
    RequestId,
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
    /// Most tokens to generate: `max_completion_tokens`, `max_output_tokens` or the older
    /// `max_tokens`; `None` if it is no whole number.
    pub max_tokens: Option<u64>,
    /// How many answers; `None` if it is no whole number.
    pub n: Option<u64>,
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
    let members = source.members(source.object()?, &FIELD_NAMES)?;
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
    let count = |field: Field| members.value(field as usize)?.get().parse().ok();
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
        adapter: span(Field::LoraPath),
        template: TEMPLATE_FIELDS.map(|field| (FIELD_NAMES[field as usize], span(field))),
        user: members
            .value(Field::User as usize)
            .and_then(|raw| source.text(raw, "user").ok().flatten())
            .map(|field| field.value),
        max_tokens: [Field::MaxCompletionTokens, Field::MaxOutputTokens, Field::MaxTokens]
            .into_iter()
            .find_map(count),
        n: count(Field::N),
        previous_response_id: members
            .value(Field::PreviousResponseId as usize)
            .map_or(Ok(None), |raw| source.text(raw, "previous_response_id"))?
            .map(|field| field.value),
        is_stored: members.value(Field::Store as usize).is_none_or(|raw| raw.get() != "false")
            && not_null(members.value(Field::RequestId as usize)).is_none(),
        insert_at: source.object_start() + 1,
        is_empty_object: members.is_empty(),
        model_value: model_raw.map(|raw| source.span(raw)),
        include_usage_value: options.include_usage_value,
    })
}

#[derive(Default)]
struct StreamOptions {
    span: Option<Range<usize>>,
    include_usage: Option<bool>,
    include_usage_value: Option<Range<usize>>,
}

fn stream_options(
    source: &Source<'_>,
    members: &Members<'_, { FIELD_NAMES.len() }>,
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
    let options = source.members(raw.get(), &["include_usage"])?;
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
