//! What all endpoints that generate have in common.

use serde_json::{Value, json};
use spillway_engine::RequestId;

use crate::answer::{Answer, Finish, Length};
use crate::body::{EventFormat, EventStream, Track};
use crate::driver::Job;
use crate::text::opaque_id;

use super::sampling::Sampling;
use super::shape::Shape;
use super::{ApiError, Call, logprobs};

/// Prompts of one request that are in the engine together.
const PREFILLS_AT_ONCE: usize = 64;
/// Most answers that one request may ask for, over all of its prompts.
const TRACKS_MAX: usize = 1_024;
/// Most tokens of prompts and answers of one request: what is held in memory for it.
const TOKENS_MAX: u64 = 1 << 22;

/// Answers that the engine works on.
pub(crate) struct Started {
    /// The answers to the first prompt, then those to the next one.
    pub(crate) tracks: Vec<Track>,
    /// Tokens of each prompt.
    pub(crate) prompt_tokens: Vec<u32>,
}

/// Hands a prompt to the engine that wants one answer in prose.
pub(crate) fn start(call: &Call, prompt: &[u32], sampling: &Sampling) -> Result<Started, ApiError> {
    start_all(call, &[prompt.to_vec()], (sampling, &Shape::Prose))
}

/// Hands prompts to the engine, all together.
pub(crate) fn start_all(
    call: &Call,
    prompts: &[Vec<u32>],
    (sampling, shape): (&Sampling, &Shape),
) -> Result<Started, ApiError> {
    let replica = &call.replica;
    let each = sampling.candidates();
    if prompts.len().saturating_mul(each) > TRACKS_MAX {
        let message = format!("at most {TRACKS_MAX} answers can be asked for at once");
        return Err(ApiError::invalid(message, Some("n")));
    }
    let lengths = lengths(prompts, sampling, replica.driver.config().context_tokens_max)?;
    let mut answers = Vec::with_capacity(prompts.len() * each);
    for (prompt, length) in prompts.iter().zip(lengths) {
        answers.extend((0..each).map(|index| {
            let seed = replica.seed ^ sampling.seed(index);
            let answer = shape.answer(prompt, seed, length);
            answer.stopped_at(sampling.stops(), sampling.shows_stop())
        }));
    }
    let outputs: Vec<Vec<u32>> = answers.iter().map(Answer::to_tokens).collect();
    let salt = sampling.cache_salt();
    let jobs = answers.iter().zip(&outputs).enumerate().map(|(at, (answer, output))| Job {
        prompt: &prompts[at / each],
        output,
        finish: answer.finish,
        salt,
    });
    let generations = replica.driver.submit_together(&jobs.collect::<Vec<_>>())?;
    call.start();
    let tracks = generations.into_iter().zip(answers).enumerate().map(|(at, pair)| {
        // What was cached of a prompt is told once, as its first answer found it.
        Track::new(pair, at % each == 0)
    });
    let prompt_tokens = prompts.iter().map(|prompt| token_count(prompt)).collect();
    Ok(Started { tracks: tracks.collect(), prompt_tokens })
}

/// How long the answers to each prompt may be.
fn lengths(
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    tokens_max: u32,
) -> Result<Vec<Length>, ApiError> {
    let each = prompts.iter().map(|prompt| sampling.length(prompt.len(), tokens_max));
    let lengths: Vec<Length> = each.collect::<Result<_, _>>()?;
    let tokens = prompts.iter().zip(&lengths).map(|(prompt, length)| {
        // What a model says by its own choice is short.
        let most = if let Length::AtMost(_) = length { 0 } else { length.most() };
        (prompt.len() as u64 + u64::from(most)) * sampling.candidates() as u64
    });
    if tokens.sum::<u64>() > TOKENS_MAX {
        let message = format!("at most {TOKENS_MAX} tokens can be asked for at once");
        return Err(ApiError::invalid(message, Some("max_tokens")));
    }
    Ok(lengths)
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
        let first = self.tracks.first().map(|track| track.generation.id());
        opaque_id(prefix, call.replica.instance, first.unwrap_or(RequestId(0)))
    }

    /// What it will have used once it is done.
    pub(crate) fn usage(&self, cached_tokens: u32) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens.iter().sum(),
            completion_tokens: self.tracks.iter().map(|track| track.answer.tokens).sum(),
            cached_tokens,
        }
    }

    /// Waits for the end.
    pub(crate) async fn finished(self) -> Result<(Vec<Answer>, Usage), ApiError> {
        let mut usage = self.usage(0);
        let mut answers = Vec::with_capacity(self.tracks.len());
        for track in self.tracks {
            let cached_tokens = track.generation.finished().await?;
            usage.cached_tokens += if track.tells_cached { cached_tokens } else { 0 };
            answers.push(track.answer);
        }
        Ok((answers, usage))
    }

    /// The answers as a stream in the form of `format`.
    pub(crate) fn into_stream(self, format: impl EventFormat + 'static) -> EventStream {
        EventStream::new(self.tracks, Box::new(format))
    }
}

/// Where the answers stand that the client gets: of the answers to each prompt the likeliest, in the
/// order in which they were asked for.
pub(crate) fn best(answers: &[Answer], sampling: &Sampling) -> Vec<usize> {
    let each = sampling.candidates();
    let groups = answers.chunks(each).enumerate();
    let best = groups.flat_map(|(group, candidates)| {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        if sampling.answers() < each {
            let score = |at: usize| logprobs::mean(&candidates[at]);
            order.sort_by(|one, other| score(*other).total_cmp(&score(*one)));
        }
        order.truncate(sampling.answers());
        order.into_iter().map(move |at| group * each + at)
    });
    best.collect()
}

/// Tokens that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
