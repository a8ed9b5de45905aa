//! `POST /v1/completions`.

use std::collections::VecDeque;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::EventFormat;
use crate::text::{Finish, tokenize};

use super::generate::{self, Sampling, Throughout, Usage};
use super::sse::{self, TextEvent};
use super::{ApiError, Call, Reply, event_stream, json, unix_seconds};

#[derive(Debug, Deserialize)]
struct CompletionRequest {
    model: String,
    prompt: TextOrTokens,
    #[serde(flatten)]
    sampling: Sampling,
}

/// What APIs accept as a prompt or input: text or token numbers, alone or in a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum TextOrTokens {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

impl TextOrTokens {
    /// Each input as tokens.
    pub(crate) fn into_token_lists(self) -> Vec<Vec<u32>> {
        let tokens = |text: &String| {
            let mut tokens = Vec::new();
            tokenize(text, &mut tokens);
            tokens
        };
        match self {
            Self::Text(text) => vec![tokens(&text)],
            Self::Texts(texts) => texts.iter().map(tokens).collect(),
            Self::Tokens(tokens) => vec![tokens],
            Self::TokenLists(lists) => lists,
        }
    }
}

pub(crate) async fn answer(call: &Call) -> Reply {
    let request: CompletionRequest = call.json()?;
    call.check_model(&request.model)?;
    let prompts = request.prompt.into_token_lists();
    let [prompt] = prompts.as_slice() else {
        return Err(ApiError::invalid("exactly one prompt is supported", Some("prompt")));
    };
    let started = generate::start(call, prompt, &request.sampling)?;
    let head = json!({
        "id": started.id(call, "cmpl-"),
        "object": "text_completion",
        "created": unix_seconds(),
        "model": request.model,
    });
    if request.sampling.is_stream() {
        let usage = request.sampling.include_usage().then(|| started.usage(0));
        let throughout = usage.filter(|_| request.sampling.usage_throughout());
        let throughout = throughout.map(Throughout::new);
        let finish = started.answer.finish;
        let format = CompletionEvents::new(&head, finish, (usage, throughout));
        return Ok(event_stream(started.into_stream(format)));
    }
    let (answer, usage) = started.finished().await?;
    let mut body = head;
    body["choices"] = json!([choice(&answer.text, Some(answer.finish))]);
    body["usage"] = usage.to_json();
    Ok(json(StatusCode::OK, &body))
}

fn choice(text: &str, finish: Option<Finish>) -> Value {
    json!({
        "index": 0,
        "text": text,
        "logprobs": null,
        "finish_reason": finish.map(Finish::as_str),
    })
}

/// A text completion as a stream: tokens, finish reason, perhaps usage, `[DONE]`.
struct CompletionEvents {
    token: TextEvent,
    end: Bytes,
    usage: Option<(Value, Usage)>,
    throughout: Option<Throughout>,
}

impl CompletionEvents {
    fn new(
        head: &Value,
        finish: Finish,
        (usage, throughout): (Option<Usage>, Option<Throughout>),
    ) -> Self {
        let so_far = throughout.map_or(Value::Null, |_| Value::from(Throughout::MARK));
        let chunk = |choices: Value| {
            let mut chunk = head.clone();
            chunk["choices"] = choices;
            if usage.is_some() {
                chunk["usage"] = so_far.clone();
            }
            chunk
        };
        Self {
            token: TextEvent::new(&chunk(json!([choice(TextEvent::MARK, None)]))),
            end: sse::data(&chunk(json!([choice("", Some(finish))]))),
            usage: usage.map(|usage| (chunk(json!([])), usage)),
            throughout,
        }
    }

    fn filled(&self, event: Bytes) -> Bytes {
        match self.throughout {
            Some(throughout) => throughout.fill(&event),
            None => event,
        }
    }
}

impl EventFormat for CompletionEvents {
    fn start(&mut self, _events: &mut VecDeque<Bytes>) {}

    fn token(&mut self, text: &str, events: &mut VecDeque<Bytes>) {
        if let Some(throughout) = &mut self.throughout {
            throughout.count();
        }
        events.push_back(self.filled(self.token.with(text)));
    }

    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>) {
        events.push_back(self.filled(self.end.clone()));
        if let Some((mut chunk, usage)) = self.usage.take() {
            chunk["usage"] = Usage { cached_tokens, ..usage }.to_json();
            events.push_back(sse::data(&chunk));
        }
        events.push_back(sse::DONE);
    }
}
