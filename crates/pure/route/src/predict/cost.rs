//! Predicted cost of serving a request at one replica.

use serde::Serialize;

use crate::terms::terms;

terms! {
    /// Predicted cost of one replica for one request, in milliseconds.
    ///
    /// The terms stand apart so that explanations can show each.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
    pub struct Cost {
        // The mean of all, by weight, and what is beyond twice that.
        /// Time to answer a request without a prompt.
        pub floor_ms: f32,
        /// Time until the request's turn comes there.
        pub wait_ms: f32,
        /// Time to read the part of the prompt that is not cached there.
        pub prefill_ms: f32,
        // By the mean of all, and what is clearly beyond it.
        /// Time to generate the reply; 0 where only the first token counts.
        pub decode_ms: f32,
        /// Delay of the requests that run there while the prompt is read.
        pub stall_ms: f32,
        /// Delay of the request, and of those that run there, by long contexts.
        pub context_ms: f32,
        /// Delay of the requests that run there by one more.
        pub crowding_ms: f32,
        /// Value of keeping the session at its replica, subtracted.
        pub session_ms: f32,
        // Equal for equal prompts.
        /// Tie-breaker between nearly equal candidates.
        pub tie_ms: f32,
    }
}

impl Cost {
    /// Returns the sum of all terms.
    #[must_use]
    pub fn total_ms(&self) -> f32 {
        self.first_token_ms()
            + self.decode_ms
            + self.stall_ms
            + self.context_ms
            + self.crowding_ms
            + self.tie_ms
            - self.session_ms
    }

    /// Returns the predicted time to first token.
    #[must_use]
    pub fn first_token_ms(&self) -> f32 {
        self.floor_ms + self.wait_ms + self.prefill_ms
    }
}

/// Returns the number clamped to 0 and a billion, or 0 if it is not finite, so that sums and
/// products are finite.
pub(super) fn sound(number: f32) -> f32 {
    if number.is_finite() { number.clamp(0.0, SOUND_MAX) } else { 0.0 }
}

/// Largest number: eleven days in milliseconds, and more tokens than any prompt or cache has.
const SOUND_MAX: f32 = 1e9;
