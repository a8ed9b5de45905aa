//! Predicted time of a request at the replica that it was sent to.

use serde::Serialize;

/// The prediction that a plan was made by, kept to be compared with what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prediction {
    /// Milliseconds from sending the request to the reply's first token: all terms that are time.
    pub first_token_ms: f32,
    /// Of these, milliseconds until the request's turn comes.
    pub wait_ms: f32,
    /// Of these, milliseconds of reading the prompt tokens that are not cached.
    pub prefill_ms: f32,
    /// Milliseconds from the first token to the end of a reply in one piece; 0 for a stream.
    pub rest_ms: f32,
    /// Prompt tokens that are expected to be in the replica's cache.
    pub cached_tokens: u32,
    /// Prompt tokens in all, by the model's usual bytes for a token.
    pub prompt_tokens: u32,
    /// Requests that ran at the replica, as far as known.
    pub running: f32,
    /// Requests in the replica's queue if they account for the wait; 0 if `pending_tokens` do.
    pub queued: f32,
    /// Prompt tokens of this node's requests that the replica has to read first, if they account
    /// for the wait; 0 if `queued` does.
    pub pending_tokens: f32,
}
