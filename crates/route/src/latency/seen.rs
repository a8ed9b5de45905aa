//! Reply that a latency model learns from.

use spillway_types::Prediction;

/// State of a request when it was sent, and the time until its reply began.
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
    /// Milliseconds from sending the request to the first byte of the reply's body.
    pub first_token_ms: f32,
}

impl ObservedLatency {
    /// Returns a reply that began after `first_token_ms`, to a request sent with this prediction.
    ///
    /// Set the token counts from the reply where it has them.
    #[must_use]
    pub fn of(prediction: &Prediction, first_token_ms: f32) -> Self {
        Self {
            prompt_tokens: prediction.prompt_tokens as f32,
            cached_tokens: prediction.cached_tokens as f32,
            running: prediction.running,
            queued: prediction.queued,
            pending_tokens: prediction.pending_tokens,
            first_token_ms,
        }
    }

    /// Returns the reply with its cached tokens limited to the prompt; `None` if a value makes no
    /// sense.
    pub(super) fn sound(mut self) -> Option<Self> {
        let Self { prompt_tokens, cached_tokens, running, queued, pending_tokens, first_token_ms } =
            self;
        let all = [prompt_tokens, cached_tokens, running, queued, pending_tokens, first_token_ms];
        if !all.iter().all(|number| (0.0..=SOUND_MAX).contains(number)) {
            return None;
        }
        self.cached_tokens = cached_tokens.min(prompt_tokens);
        Some(self)
    }
}

/// Largest plausible value: more tokens than any prompt has, and a day in milliseconds.
const SOUND_MAX: f32 = 1e8;
