//! What is expected of a queue before its rate was measured.

use crate::Asker;

/// How large the requests of late are, and how fast such requests are expected to be served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Foresight {
    rate_per_s: Option<f32>,
    /// Mean size in tokens of those that waited or were turned away, and how many count.
    tokens: f32,
    count: f32,
}

impl Foresight {
    /// Adds a request that waits or is turned away.
    pub(super) fn note(&mut self, asker: &Asker) {
        self.count = (self.count + 1.0).min(COUNT_MAX);
        self.tokens += (asker.tokens as f32 - self.tokens) / self.count;
    }

    /// The mean size in tokens of the requests that are there, with this one.
    pub(super) fn tokens(&self, asker: &Asker) -> f32 {
        (self.tokens * self.count + asker.tokens as f32) / (self.count + 1.0)
    }

    /// Expects so many of them to be served in a second; `None` if nobody knows.
    pub(super) fn expect(&mut self, rate_per_s: Option<f32>) {
        self.rate_per_s = rate_per_s.filter(|rate| rate.is_finite() && *rate > 0.0);
    }

    /// Seconds until the turn of one that stands behind so many; `None` if nothing is expected.
    pub(super) fn wait_s(&self, before: f32) -> Option<f32> {
        self.rate_per_s.map(|rate| (before + 1.0) / rate)
    }
}

/// Requests of late that count for their mean size.
const COUNT_MAX: f32 = 256.0;
