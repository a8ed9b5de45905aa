//! Generation of answers, common to all endpoints that generate.

use serde_json::{Value, json};
use spillway_engine::RequestId;

use super::sampling::Sampling;
use super::shape::Shape;
use super::{ApiCall, ApiError, logprobs};
use crate::answer::{Answer, Finish, Length};
use crate::driver::{DriverJob, DriverProgress, Lost};
use crate::event_stream::{EventFormat, EventStream, Track};
use crate::fault::Fault;
use crate::replica::EmulatedReplica;
use crate::text::{opaque_id, token_count};
use crate::usage::TokenUsage;

/// Largest number of prompts of one request that are in the engine at the same time.
const PREFILLS_AT_ONCE: usize = 64;
/// Largest number of answers to one request, over all of its prompts.
const TRACKS_MAX: usize = 1_024;
/// Largest number of tokens in prompts and answers of one request: a bound on its memory.
const TOKENS_MAX: u64 = 1 << 22;

/// Answers in generation.
pub(crate) struct Started {
    /// Answers to the first prompt, followed by those to the next one.
    pub(crate) tracks: Vec<Track>,
    /// Number of tokens of each prompt.
    pub(crate) prompt_tokens: Vec<u32>,
}

/// Submits a prompt to the engine for one answer in prose.
///
/// # Errors
/// Returns the errors of [`start_all`].
pub(crate) fn start(
    call: &ApiCall,
    prompt: &[u32],
    sampling: &Sampling,
) -> Result<Started, ApiError> {
    start_all(call, &[prompt.to_vec()], sampling, &Shape::Prose)
}

/// Submits several prompts to the engine at once.
///
/// # Errors
/// Returns an error if the request asks for too much, or if the engine refuses it.
pub(crate) fn start_all(
    call: &ApiCall,
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    shape: &Shape,
) -> Result<Started, ApiError> {
    let replica = &call.replica;
    let each = sampling.candidates();
    // One request must not take the whole engine.
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
    let jobs = answers.iter().zip(&outputs).enumerate().map(|(at, (answer, output))| DriverJob {
        prompt: &prompts[at / each],
        output,
        finish: answer.finish,
        salt,
        session: call.session(),
    });
    let generations = replica.driver.submit_together(&jobs.collect::<Vec<_>>())?;
    call.start();
    let tracks =
        generations.into_iter().zip(answers).enumerate().map(|(at, (generation, answer))| {
            // The cached tokens of a prompt are counted once, with its first answer.
            Track::new(generation, answer, at % each == 0)
        });
    let prompt_tokens = prompts.iter().map(|prompt| token_count(prompt)).collect();
    let started = Started { tracks: tracks.collect(), prompt_tokens };
    call.note_usage(TokenUsage { prompt_tokens: started.prompt_tokens(), ..<_>::default() });
    Ok(started)
}

/// Returns the bounds on the answers to each prompt.
///
/// # Errors
/// Returns 400 if the request may need more than [`TOKENS_MAX`].
fn lengths(
    prompts: &[Vec<u32>],
    sampling: &Sampling,
    tokens_max: u32,
) -> Result<Vec<Length>, ApiError> {
    let each = prompts.iter().map(|prompt| sampling.length(prompt.len(), tokens_max));
    let lengths: Vec<Length> = each.collect::<Result<_, _>>()?;
    let tokens = prompts.iter().zip(&lengths).map(|(prompt, length)| {
        // An answer without a prescribed length is short, so it does not count.
        let most = if let Length::AtMost(_) = length { 0 } else { length.most() };
        (prompt.len() as u64 + u64::from(most)) * sampling.candidates() as u64
    });
    if tokens.sum::<u64>() > TOKENS_MAX {
        let message = format!("at most {TOKENS_MAX} tokens can be asked for at once");
        return Err(ApiError::invalid(message, Some("max_tokens")));
    }
    Ok(lengths)
}

/// Submits prompts that are only read, without an answer, and waits for them.
///
/// They are submitted in groups, since one request must not fill the queue.
pub(crate) async fn prefill(call: &ApiCall, prompts: &[Vec<u32>]) -> Result<(), ApiError> {
    let prompt_tokens = prompts.iter().map(|prompt| token_count(prompt)).sum();
    let mut usage = TokenUsage { prompt_tokens, ..TokenUsage::default() };
    for group in prompts.chunks(PREFILLS_AT_ONCE) {
        let mut generations = Vec::with_capacity(group.len());
        for prompt in group {
            let job = DriverJob {
                prompt,
                output: &[],
                finish: Finish::Stop,
                salt: 0,
                session: call.session(),
            };
            generations.push(call.replica.driver.submit(job)?);
        }
        call.start();
        for generation in generations {
            usage.cached_tokens += generation.finished().await?;
        }
    }
    call.note_usage(usage);
    Ok(())
}

impl Started {
    /// Returns the id of the response.
    pub(crate) fn id(&self, call: &ApiCall, prefix: &str) -> String {
        let first = self.tracks.first().map(|track| track.generation.id());
        opaque_id(prefix, call.replica.instance, first.unwrap_or(RequestId(0)))
    }

    /// Returns the number of tokens of all prompts.
    pub(crate) fn prompt_tokens(&self) -> u32 {
        self.prompt_tokens.iter().sum()
    }

    /// Waits until all answers are complete, or until a fault ends them early. Under
    /// [`Fault::Empty`] there are no answers.
    pub(crate) async fn finished(
        self,
        call: &ApiCall,
    ) -> Result<(Vec<Answer>, TokenUsage), ApiError> {
        let mut usage = TokenUsage { prompt_tokens: self.prompt_tokens(), ..<_>::default() };
        let mut answers = Vec::with_capacity(self.tracks.len());
        let mut has_early_end = false;
        for track in self.tracks {
            if call.replica.fault() == Fault::Empty {
                (answers, has_early_end) = (Vec::new(), true);
                usage.completion_tokens = 0;
                break;
            }
            let tells_cached = track.tells_cached;
            let (answer, cached_tokens) = finish_track(track, &call.replica).await?;
            usage.cached_tokens += if tells_cached { cached_tokens } else { 0 };
            usage.completion_tokens += answer.tokens;
            has_early_end |= answer.early_end.is_some();
            answers.push(answer);
        }
        call.note_usage(usage);
        if has_early_end {
            call.note_early_end();
        }
        Ok((answers, usage))
    }

    /// Returns the answers as a stream in the form of `format`.
    pub(crate) fn into_stream(self, format: impl EventFormat + 'static) -> EventStream {
        let prompt_tokens = self.prompt_tokens();
        EventStream::new(self.tracks, Box::new(format), prompt_tokens)
    }
}

/// Waits until an answer is complete, or until a fault ends it early. Returns the answer, and the
/// number of cached tokens of its prompt.
async fn finish_track(mut track: Track, replica: &EmulatedReplica) -> Result<(Answer, u32), Lost> {
    let mut tokens = 0;
    loop {
        let early_end = replica.fault().early_end(tokens.into());
        if let Some(end) = early_end.filter(|_| tokens < track.answer.tokens) {
            track.answer.end_early(tokens, end);
            return Ok((track.answer, track.generation.cached_tokens()));
        }
        match track.generation.progress().await? {
            DriverProgress::Token => tokens += 1,
            DriverProgress::Finished { cached_tokens } => return Ok((track.answer, cached_tokens)),
            DriverProgress::Cancelled => return Err(Lost),
        }
    }
}

/// Returns the indexes of the answers that the client gets: for each prompt the likeliest ones, in
/// the order of the prompts.
pub(crate) fn best(answers: &[Answer], sampling: &Sampling) -> Vec<usize> {
    let each = sampling.candidates();
    let groups = answers.chunks(each).enumerate();
    let best = groups.flat_map(|(group, candidates)| {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        // Scores are only computed if there is something to choose.
        if sampling.answers() < each {
            let score = |at: usize| logprobs::mean(&candidates[at]);
            order.sort_by(|one, other| score(*other).total_cmp(&score(*one)));
        }
        order.truncate(sampling.answers());
        order.into_iter().map(move |at| group * each + at)
    });
    best.collect()
}

impl TokenUsage {
    /// Returns the usage in the form of chat and text completions.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": { "cached_tokens": self.cached_tokens },
        })
    }
}
