//! What serving a request in some place is predicted to take.

use serde::Serialize;

/// The predicted cost of one region for one request, in milliseconds of time to first token.
///
/// The terms stand apart so that logs and explanations can show each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpillCost {
    /// There and back.
    pub network_ms: f32,
    /// Until its turn comes there.
    pub wait_ms: f32,
    /// Reading the part of the prompt that is not cached there.
    pub prefill_ms: f32,
    /// What the operator adds for the region.
    pub price_ms: f32,
    /// For the risk that it is not as the region reported, so that the way there is in vain.
    pub doubt_ms: f32,
    /// What its waiting costs those that come behind it.
    pub crowding_ms: f32,
}

impl SpillCost {
    /// All terms together.
    #[must_use]
    pub fn total_ms(&self) -> f32 {
        self.first_token_ms() + self.price_ms + self.doubt_ms + self.crowding_ms
    }

    /// The terms that are time: when the first token is predicted to arrive.
    #[must_use]
    pub fn first_token_ms(&self) -> f32 {
        self.network_ms + self.wait_ms + self.prefill_ms
    }
}

/// The number within 0 and a billion, or 0 if it is not finite: what can't be a time or a count counts
/// nothing, and sums and products of what is left are numbers.
pub(super) fn sound(number: f32) -> f32 {
    if number.is_finite() { number.clamp(0.0, SOUND_MAX) } else { 0.0 }
}

/// Eleven days in milliseconds, and more requests than any region has.
const SOUND_MAX: f32 = 1e9;
