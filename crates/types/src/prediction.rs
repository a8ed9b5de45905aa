//! What a request was predicted to take where it was sent.

use serde::Serialize;

/// The prediction that a plan went by, kept to be compared with what is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// Milliseconds from sending it to the reply's first token: all terms that are time.
    pub first_token_ms: f32,
    /// Of these, until its turn comes.
    pub wait_ms: f32,
    /// Of these, reading what is not cached.
    pub prefill_ms: f32,
    /// Prompt tokens that are expected to be in the replica's cache.
    pub cached_tokens: u32,
    /// Prompt tokens in all, by the model's usual bytes for a token.
    pub prompt_tokens: u32,
    /// Requests that ran at the replica, as far as known.
    pub running: f32,
    /// Requests in the replica's queue whose turns were what it has to wait for; 0 if it was rather
    /// what follows.
    pub queued: f32,
    /// Prompt tokens of this node's requests that the replica has to read before, if those were
    /// what it has to wait for.
    pub pending_tokens: f32,
}
