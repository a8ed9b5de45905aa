//! `POST /v1/completions`.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::chunks::Chunks;
use super::completion_stream::CompletionEvents;
use super::logprobs::Lists;
use super::sampling::{Sampling, alternatives};
use super::shape::Shape;
use super::{ApiCall, ApiError, Reply, event_stream, fields_of, generate, json};
use crate::answer::Answer;
use crate::clock::unix_seconds;
use crate::text::{Conversation, detokenize, tokens_of};

#[derive(Debug, Deserialize)]
struct CompletionRequest {
    model: String,
    prompt: TextOrTokens,
    suffix: Option<String>,
    echo: Option<bool>,
    #[serde(flatten)]
    sampling: Sampling,
}

/// Prompt or input of a request: text or token numbers, alone or in a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum TextOrTokens {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl TextOrTokens {
    /// Returns each input as tokens.
    pub(crate) fn into_token_lists(self) -> Vec<Vec<u32>> {
        match self {
            Self::Text(text) => vec![tokens_of(&text)],
            Self::Texts(texts) => texts.iter().map(|text| tokens_of(text)).collect(),
            Self::Tokens(tokens) => vec![tokens],
            Self::TokenLists(lists) => lists,
        }
    }
}

/// Prompt that is repeated before an answer; empty without echo.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptEcho {
    pub(crate) text: String,
    pub(crate) tokens: Vec<u32>,
}

pub(crate) async fn answer(call: &ApiCall) -> Reply {
    let body: Value = call.json()?;
    call.check_stream_options(&body)?;
    let request: CompletionRequest = fields_of(&body)?;
    call.check_model(&request.model)?;
    let (sampling, echoes) = (&request.sampling, request.echo.unwrap_or(false));
    sampling.check(echoes)?;
    let logprobs = alternatives(&body, "logprobs")?;
    let shape = Shape::of(&body["response_format"])?;
    let prompts = request.prompt.into_token_lists();
    if prompts.is_empty() {
        return Err(ApiError::invalid("prompt must not be empty", Some("prompt")));
    }
    let echoes: Vec<PromptEcho> = prompts.iter().map(|prompt| echo(prompt, echoes)).collect();
    let prompts = match request.suffix.as_deref().filter(|suffix| !suffix.is_empty()) {
        // The echo is that of the prompt alone, without the suffix.
        Some(suffix) => prompts.into_iter().map(|prompt| between(prompt, suffix)).collect(),
        None => prompts,
    };
    let started = generate::start_all(call, &prompts, sampling, &shape)?;
    let head = json!({
        "id": started.id(call, "cmpl-"),
        "object": "text_completion",
        "created": unix_seconds(),
        "model": request.model,
    });
    if sampling.is_stream() {
        let chunks = Chunks::new(head, &started, sampling);
        let each = sampling.candidates();
        let echoes = echoes.into_iter().flat_map(|echo| vec![echo; each]).collect();
        let format = CompletionEvents::new(chunks, echoes, logprobs);
        return Ok(event_stream(started.into_stream(format)));
    }
    let (answers, usage) = started.finished(call).await?;
    let best = generate::best(&answers, sampling).into_iter().enumerate();
    let choices = best.map(|(index, at)| {
        choice(index, &answers[at], &echoes[at / sampling.candidates()], logprobs)
    });
    let mut body = head;
    body["choices"] = choices.collect();
    body["usage"] = usage.to_json();
    Ok(json(StatusCode::OK, &body))
}

fn echo(prompt: &[u32], echoes: bool) -> PromptEcho {
    if !echoes {
        return PromptEcho::default();
    }
    PromptEcho { text: detokenize(prompt), tokens: prompt.to_vec() }
}

/// Returns the prompt for a text between `prompt` and `suffix`, in the form that code models use.
fn between(prompt: Vec<u32>, suffix: &str) -> Vec<u32> {
    let mut conversation = Conversation::default();
    conversation.push("fim_suffix", suffix);
    conversation.push_open("fim_prefix", &prompt);
    conversation.into_tokens()
}

fn choice(index: usize, answer: &Answer, echo: &PromptEcho, top: Option<usize>) -> Value {
    let logprobs = top.map(|top| {
        let mut lists = Lists::default();
        lists.push_prompt(&echo.tokens, top);
        let before = echo.text.chars().count();
        (0..answer.tokens).for_each(|token| lists.push_said(answer, token, top, before));
        lists.to_json()
    });
    json!({
        "index": index,
        "text": format!("{}{}", echo.text, answer.text()),
        "logprobs": logprobs,
        "finish_reason": answer.reason(),
        "stop_reason": answer.stop,
    })
}
