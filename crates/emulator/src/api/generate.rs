//! What all endpoints that generate have in common.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{EventFormat, EventStream};
use crate::driver::{Generation, Job};
use crate::text::{Answer, Finish, Length, hash_tokens, opaque_id, tokenize};

use super::{ApiError, Call};

/// Prompts of one request that are in the engine together.
const PREFILLS_AT_ONCE: usize = 64;

/// The fields that say how to generate. Others, like `temperature`, change nothing here.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Sampling {
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    max_output_tokens: Option<u32>,
    #[serde(default)]
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    ignore_eos: Option<bool>,
    seed: Option<i64>,
    /// Keeps cache entries apart, as vLLM and SGLang have it.
    cache_salt: Option<Value>,
    /// The same, as SGLang has it.
    extra_key: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

impl Sampling {
    /// So many tokens, no fewer.
    pub(crate) fn exactly(tokens: u32) -> Self {
        Self { max_tokens: Some(tokens), ignore_eos: Some(true), ..Self::default() }
    }

    /// Whether the answer is to come as a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream ends with its usage.
    pub(crate) fn include_usage(&self) -> bool {
        self.stream_options.and_then(|options| options.include_usage).unwrap_or(false)
    }

    /// Whether each event of a stream tells the usage so far; vLLM wants both options for that.
    pub(crate) fn usage_throughout(&self) -> bool {
        let told = self.stream_options.and_then(|options| options.continuous_usage_stats);
        self.include_usage() && told.unwrap_or(false)
    }

    /// What its cache entries are kept apart by; 0 if by nothing.
    fn cache_salt(&self) -> u64 {
        let salts = [&self.cache_salt, &self.extra_key];
        if salts.iter().all(|salt| salt.as_ref().is_none_or(Value::is_null)) {
            return 0;
        }
        let mut tokens = Vec::new();
        tokenize(&json!(salts).to_string(), &mut tokens);
        hash_tokens(&tokens)
    }

    fn length(&self, prompt_tokens: usize, tokens_max: u32) -> Result<Length, ApiError> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(ApiError::invalid("only n = 1 is supported", Some("n")));
        }
        let asked = self.max_completion_tokens.or(self.max_tokens).or(self.max_output_tokens);
        if asked == Some(0) {
            return Err(ApiError::invalid("max_tokens must be at least 1", Some("max_tokens")));
        }
        let room = u64::from(tokens_max).saturating_sub(prompt_tokens as u64);
        let least = u64::from(asked.unwrap_or(1));
        if least > room {
            return Err(ApiError::context_exceeded(tokens_max, prompt_tokens, least));
        }
        let most = asked.unwrap_or_else(|| u32::try_from(room).unwrap_or(u32::MAX));
        // Without a limit of the client's own, there must be an end of the model's.
        let endless = self.ignore_eos.unwrap_or(false) && asked.is_some();
        Ok(if endless { Length::Exactly(most) } else { Length::AtMost(most) })
    }
}

/// An answer that the engine works on.
pub(crate) struct Started {
    pub(crate) generation: Generation,
    pub(crate) answer: Answer,
    pub(crate) prompt_tokens: u32,
}

/// Hands a prompt to the engine.
pub(crate) fn start(call: &Call, prompt: &[u32], sampling: &Sampling) -> Result<Started, ApiError> {
    let replica = &call.replica;
    let tokens_max = replica.driver.config().context_tokens_max;
    let length = sampling.length(prompt.len(), tokens_max)?;
    let seed = replica.seed ^ sampling.seed.unwrap_or(0).cast_unsigned();
    let answer = Answer::new(prompt, seed, length);
    let output = answer.to_tokens();
    let job = Job { prompt, output: &output, finish: answer.finish, salt: sampling.cache_salt() };
    let generation = replica.driver.submit(job)?;
    call.start();
    Ok(Started { generation, answer, prompt_tokens: token_count(prompt) })
}

/// Hands prompts to the engine that need reading but no answer, and waits for them.
///
/// They are batched, but only so many at a time, since one request must not fill the queue.
pub(crate) async fn prefill(call: &Call, prompts: &[Vec<u32>]) -> Result<(), ApiError> {
    for group in prompts.chunks(PREFILLS_AT_ONCE) {
        let mut generations = Vec::with_capacity(group.len());
        for prompt in group {
            let job = Job { prompt, output: &[], finish: Finish::Stop, salt: 0 };
            generations.push(call.replica.driver.submit(job)?);
        }
        call.start();
        for generation in generations {
            generation.finished().await?;
        }
    }
    Ok(())
}

impl Started {
    /// An id for the answer.
    pub(crate) fn id(&self, call: &Call, prefix: &str) -> String {
        opaque_id(prefix, call.replica.instance, self.generation.id())
    }

    /// What it will have used once it is done.
    pub(crate) fn usage(&self, cached_tokens: u32) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.answer.tokens,
            cached_tokens,
        }
    }

    /// Waits for the end.
    pub(crate) async fn finished(self) -> Result<(Answer, Usage), ApiError> {
        let mut usage = self.usage(0);
        usage.cached_tokens = self.generation.finished().await?;
        Ok((self.answer, usage))
    }

    /// The answer as a stream in the form of `format`.
    pub(crate) fn into_stream(self, format: impl EventFormat + 'static) -> EventStream {
        EventStream::new(self.generation, self.answer, Box::new(format))
    }
}

/// Usage in every event of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throughout {
    usage: Usage,
}

impl Throughout {
    /// What stands in an event for the usage.
    pub(crate) const MARK: &'static str = "<the usage so far goes here>";

    /// For a stream whose whole usage will be this.
    pub(crate) fn new(usage: Usage) -> Self {
        Self { usage: Usage { completion_tokens: 0, ..usage } }
    }

    /// A token more was said.
    pub(crate) fn count(&mut self) {
        self.usage.completion_tokens += 1;
    }

    /// The event with the usage so far.
    pub(crate) fn fill(self, event: &Bytes) -> Bytes {
        let mut usage = self.usage.to_json();
        // As vLLM has it: what was cached is told at the end.
        usage.as_object_mut().map(|fields| fields.remove("prompt_tokens_details"));
        let text = String::from_utf8_lossy(event);
        text.replace(&format!("\"{}\"", Self::MARK), &usage.to_string()).into()
    }
}

/// Tokens that a request took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    pub(crate) completion_tokens: u32,
    /// Those of `prompt_tokens` that were in the prefix cache.
    pub(crate) cached_tokens: u32,
}

impl Usage {
    /// As chat and text completions report it.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens },
        })
    }
}

/// How many tokens these are.
pub(crate) fn token_count(tokens: &[u32]) -> u32 {
    u32::try_from(tokens.len()).unwrap_or(u32::MAX)
}
