//! Predicted cost of serving a request in a region.

use serde::Serialize;

use crate::terms::terms;

terms! {
    /// Predicted cost of one region for one request, in milliseconds of time to first token.
    ///
    /// The terms stand apart so that logs and explanations can show each.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
    pub struct SpillCost {
        /// Round-trip time to the region.
        pub network_ms: f32,
        /// Time until the request's turn comes there.
        pub wait_ms: f32,
        /// Time to read the part of the prompt that is not cached there.
        pub prefill_ms: f32,
        /// Delay of the requests that run there while the prompt is read.
        pub stall_ms: f32,
        /// Price that the operator sets on the region.
        pub price_ms: f32,
        /// Penalty for the risk that the region's state has changed and it refuses.
        pub doubt_ms: f32,
        /// Delay of the requests behind this one by its wait.
        pub crowding_ms: f32,
    }
}

impl SpillCost {
    /// Returns the sum of all terms.
    #[must_use]
    pub fn total_ms(&self) -> f32 {
        self.first_token_ms() + self.stall_ms + self.price_ms + self.doubt_ms + self.crowding_ms
    }

    /// Returns the sum of the terms that are time: the predicted time to first token.
    #[must_use]
    pub fn first_token_ms(&self) -> f32 {
        self.network_ms + self.wait_ms + self.prefill_ms
    }
}

/// Returns the number clamped to 0 and a billion, or 0 if it is not finite: an impossible time or
/// count is ignored, and sums and products are finite.
pub(super) fn sound(number: f32) -> f32 {
    if number.is_finite() { number.clamp(0.0, SOUND_MAX) } else { 0.0 }
}

/// Largest number: eleven days in milliseconds, and more requests than any region has.
const SOUND_MAX: f32 = 1e9;
