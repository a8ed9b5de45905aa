//! Expected service rate of a queue before a rate was measured.

use crate::Asker;

/// Mean size of recent requests, and the rate at which such requests are expected to be served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foresight {
    rate_per_s: Option<f32>,
    /// Mean size in tokens of the requests that waited or were refused, and how many count.
    tokens: f32,
    count: f32,
}

impl Foresight {
    /// Adds a request that waits or is refused.
    pub(super) fn note(&mut self, asker: &Asker) {
        self.count = (self.count + 1.0).min(COUNT_MAX);
        self.tokens += (asker.tokens as f32 - self.tokens) / self.count;
    }

    /// Returns the mean size in tokens of recent requests and this one.
    pub(super) fn tokens(&self, asker: &Asker) -> f32 {
        (self.tokens * self.count + asker.tokens as f32) / (self.count + 1.0)
    }

    /// Sets the expected requests per second; `None` if unknown.
    pub(super) fn expect(&mut self, rate_per_s: Option<f32>) {
        self.rate_per_s = rate_per_s.filter(|rate| rate.is_finite() && *rate > 0.0);
    }

    /// Returns the seconds until the turn of a request behind `before` others; `None` if no rate is
    /// expected.
    pub(super) fn wait_s(&self, before: f32) -> Option<f32> {
        self.rate_per_s.map(|rate| (before + 1.0) / rate)
    }
}

/// Recent requests that count for the mean size.
const COUNT_MAX: f32 = 256.0;
