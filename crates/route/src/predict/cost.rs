//! What serving a request at one replica is predicted to take and to cost.

use serde::Serialize;

/// The predicted cost of one replica for one request, in milliseconds.
///
/// The terms stand apart so that explanations can show each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cost {
    /// What it takes to answer a request without a prompt.
    pub floor_ms: f32,
    /// Until its turn comes there.
    pub wait_ms: f32,
    /// Reading the part of the prompt that is not cached there.
    pub prefill_ms: f32,
    /// Generating the reply; 0 where only the first token counts.
    pub decode_ms: f32,
    /// What reading its prompt costs those that run there: their next tokens come later.
    pub stall_ms: f32,
    /// What one more request costs those that run there, by its own generating.
    pub crowding_ms: f32,
    /// For not knowing how loaded it is.
    pub doubt_ms: f32,
    /// What its session's stay there is worth. It is taken off.
    pub session_ms: f32,
    /// Decides among what is all but equal, the same for equal prompts.
    pub tie_ms: f32,
}

impl Cost {
    /// All terms together.
    #[must_use]
    pub fn total_ms(&self) -> f32 {
        self.first_token_ms()
            + self.decode_ms
            + self.stall_ms
            + self.crowding_ms
            + self.doubt_ms
            + self.tie_ms
            - self.session_ms
    }

    /// When the first token is predicted to come.
    #[must_use]
    pub fn first_token_ms(&self) -> f32 {
        self.floor_ms + self.wait_ms + self.prefill_ms
    }
}

/// The number within 0 and a billion, or 0 if it is not finite: sums and products of what is left
/// are numbers.
pub(super) fn sound(number: f32) -> f32 {
    if number.is_finite() { number.clamp(0.0, SOUND_MAX) } else { 0.0 }
}

/// Eleven days in milliseconds, and more tokens than any prompt or cache has.
const SOUND_MAX: f32 = 1e9;
