//! Ratio of two amounts that are seen in pairs, with newer pairs counting more.

use serde::{Deserialize, Serialize};

/// Two fading sums and their ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ratio {
    above: f64,
    below: f64,
}

impl Ratio {
    /// Adds a pair, and scales all earlier ones by `keep`.
    pub(super) fn add(&mut self, above: f32, below: f32, keep: f64) {
        self.above = self.above * keep + f64::from(above);
        self.below = self.below * keep + f64::from(below);
    }

    /// Returns the ratio of the sums and of `prior`, which counts like a pair with `weight` below.
    pub(super) fn or(&self, prior: f32, weight: f64) -> f32 {
        ((self.above + f64::from(prior) * weight) / (self.below + weight)) as f32
    }

    /// Returns both sums.
    pub(super) fn sums(&self) -> (f64, f64) {
        (self.above, self.below)
    }

    /// Returns true if [`Ratio::add`] can have made these sums.
    pub(super) fn is_sound(&self) -> bool {
        [self.above, self.below].iter().all(|sum| sum.is_finite() && *sum >= 0.0)
    }
}
