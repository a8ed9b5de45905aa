//! Reply that a latency model learns from.

use spillway_types::Prediction;

/// State of a request when it was sent, and the time until its reply began, or until all of it was
/// there.
///
/// A value that is negative or not finite makes the whole reply useless, and the model ignores it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObservedLatency {
    /// Tokens of the prompt, from the reply if it has them, or else as predicted.
    pub prompt_tokens: f32,
    /// Tokens of the prompt that were in the replica's cache.
    pub cached_tokens: f32,
    /// Requests that ran at the replica when this one was sent.
    pub running: f32,
    /// Requests before this one in the replica's queue; see [`Prediction::queued`].
    pub queued: f32,
    /// Tokens to be read before this prompt; see [`Prediction::pending_tokens`].
    pub pending_tokens: f32,
    /// Tokens that were generated in [`took_ms`](Self::took_ms) after the first one: 0 for the first
    /// token of a stream, all others of a reply in one piece.
    pub written_tokens: f32,
    /// Milliseconds from sending the request to the first token of a stream, or to all of a reply in
    /// one piece.
    pub took_ms: f32,
}

impl ObservedLatency {
    /// Returns a reply whose first token came after `took_ms`, to a request sent with this
    /// prediction.
    ///
    /// Set the token counts from the reply where it has them, and for a reply in one piece the tokens
    /// that were written.
    #[must_use]
    pub fn of(prediction: &Prediction, took_ms: f32) -> Self {
        Self {
            prompt_tokens: prediction.prompt_tokens as f32,
            cached_tokens: prediction.cached_tokens as f32,
            running: prediction.running,
            queued: prediction.queued,
            pending_tokens: prediction.pending_tokens,
            written_tokens: 0.0,
            took_ms,
        }
    }

    /// Returns the reply with its cached tokens limited to the prompt; `None` if a value makes no
    /// sense.
    pub(super) fn sound(mut self) -> Option<Self> {
        let Self { prompt_tokens, cached_tokens, running, queued, pending_tokens, .. } = self;
        let Self { written_tokens, took_ms, .. } = self;
        let all = [prompt_tokens, cached_tokens, running, queued, pending_tokens];
        let mut all = all.into_iter().chain([written_tokens, took_ms]);
        if !all.all(|number| (0.0..=SOUND_MAX).contains(&number)) {
            return None;
        }
        self.cached_tokens = cached_tokens.min(prompt_tokens);
        Some(self)
    }
}

/// Largest plausible value: more tokens than any prompt has, and a day in milliseconds.
const SOUND_MAX: f32 = 1e8;
