//! Speed of a replica, as learned from its replies.

use serde::{Deserialize, Serialize};

/// Time that one replica takes for one request, as learned so far; the model's starting profile
/// fills what could not be learned yet. All numbers are finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Milliseconds to the first byte of a request without a prompt at an idle replica.
    pub floor_ms: f32,
    /// Milliseconds to read one prompt token that is not cached.
    pub prefill_ms: f32,
    /// Further milliseconds for each such token and each thousand tokens before it: attention over
    /// a long context.
    pub prefill_ms_per_thousand: f32,
    /// Part by which reading a prompt takes longer for each request that runs at the same time.
    pub prefill_per_running: f32,
    /// Milliseconds between two generated tokens of one request.
    pub decode_ms: f32,
    /// Milliseconds of one decode step without any context to read,
    #[serde(default)]
    pub step_ms: f32,
    /// and for each thousand tokens of context that the running requests hold together.
    #[serde(default)]
    pub step_ms_per_thousand: f32,
    /// True if that was learned; else it is the profile's.
    #[serde(default)]
    pub is_decode_known: bool,
    /// Requests that end each second while the replica is busy; 0 if unknown.
    pub ends_per_s: f32,
    /// Bytes of prompt text for one token.
    pub bytes_per_token: f32,
    /// Tokens that the replica's KV cache holds; 0 if unknown.
    pub kv_tokens: f32,
    /// 1 if learned from many recent replies, 0 if nothing was learned yet.
    pub trust: f32,
}

impl Speed {
    /// Speed of a replica of which nothing is known: the profile of a mid-range GPU with an
    /// 8-billion model.
    pub const UNKNOWN: Self = Self {
        floor_ms: 20.0,
        prefill_ms: 0.1,
        prefill_ms_per_thousand: 0.002,
        prefill_per_running: 0.02,
        decode_ms: 15.0,
        step_ms: 15.0,
        step_ms_per_thousand: 0.0,
        is_decode_known: false,
        ends_per_s: 0.0,
        bytes_per_token: 4.0,
        kv_tokens: 0.0,
        trust: 0.0,
    };

    /// Returns the milliseconds to read a prompt of so many bytes, of which the first
    /// `cached_bytes` are cached.
    #[must_use]
    pub fn reading_ms(&self, prompt_bytes: f32, cached_bytes: f32) -> f32 {
        // Not divided by 0: an empty prompt would take NaN milliseconds.
        let tokens = |bytes: f32| bytes / self.bytes_per_token.max(f32::MIN_POSITIVE);
        let prompt = tokens(prompt_bytes);
        let cached = tokens(cached_bytes).min(prompt);
        // A token takes longer the more tokens precede it: this is the mean for those after
        // `cached`.
        let before = (prompt + cached) / 2.0 / 1_000.0;
        (prompt - cached) * (self.prefill_ms + self.prefill_ms_per_thousand * before)
    }
}

impl Default for Speed {
    fn default() -> Self {
        Self::UNKNOWN
    }
}
