//! One reply, as a latency model takes it in.

use spillway_types::Prediction;

/// What was known of a request when it was sent, and when its reply began.
///
/// What is not finite or negative makes the whole reply useless, and it is passed over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Tokens of the prompt, by the reply if it tells, else as predicted.
    pub prompt_tokens: f32,
    /// Of these, those that were in the replica's cache.
    pub cached_tokens: f32,
    /// Requests that ran at the replica when it was sent.
    pub running: f32,
    /// Requests before it in the replica's queue; see [`Prediction::queued`].
    pub queued: f32,
    /// Tokens to be read before its own; see [`Prediction::pending_tokens`].
    pub pending_tokens: f32,
    /// Milliseconds from sending it to the first byte of the reply's body.
    pub first_token_ms: f32,
}

impl Seen {
    /// A reply that began after `first_token_ms`, to a request that was sent with this prediction.
    ///
    /// Set the counts of tokens to what the reply says, where it says it.
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

    /// The same if it makes sense, with no more cached than there is.
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

/// More than any prompt has tokens, and a day in milliseconds.
const SOUND_MAX: f32 = 1e8;
