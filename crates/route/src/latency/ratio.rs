//! A ratio of two amounts that are seen together, newer ones counting more.

use serde::{Deserialize, Serialize};

/// Two sums that forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ratio {
    above: f64,
    below: f64,
}

impl Ratio {
    /// Takes in a pair; each later one makes it count a `keep`-th.
    pub(super) fn add(&mut self, above: f32, below: f32, keep: f64) {
        self.above = self.above * keep + f64::from(above);
        self.below = self.below * keep + f64::from(below);
    }

    /// The ratio of what was seen and of `prior`, which counts like a pair with `weight` below.
    pub(super) fn or(&self, prior: f32, weight: f64) -> f32 {
        ((self.above + f64::from(prior) * weight) / (self.below + weight)) as f32
    }

    /// Whether both are numbers that [`Ratio::add`] can have made.
    pub(super) fn is_sound(&self) -> bool {
        [self.above, self.below].iter().all(|sum| sum.is_finite() && *sum >= 0.0)
    }
}
