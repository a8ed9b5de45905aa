//! Times to first token of a replica, for operators.

use std::time::{Duration, Instant};

use crate::latency::PeakEwma;
use crate::quantile::{QuantileWindow, Samples};

/// Times to first token of a replica's streams. Replies in one piece are not among them: their first
/// byte comes after their last token.
#[derive(Clone, Debug)]
pub(crate) struct FirstTokens {
    average: PeakEwma,
    times: QuantileWindow,
}

impl FirstTokens {
    pub(crate) fn new(now: Instant) -> Self {
        Self { average: PeakEwma::default(), times: QuantileWindow::new(now) }
    }

    /// Adds the time to first token of a stream that began at `now`.
    pub(crate) fn record(&mut self, now: Instant, time: Duration) {
        self.average.record(now, time);
        self.times.record(now, time);
    }

    /// Returns the average in milliseconds, which follows peaks at once; `None` if it is too old.
    pub(crate) fn average_ms(&self, now: Instant) -> Option<f32> {
        let average = self.average.reading(now);
        average.is_known().then_some(average.value)
    }

    /// Returns the 99th percentile of the last seconds in milliseconds; `None` without streams.
    pub(crate) fn p99_ms(&self, now: Instant) -> Option<f32> {
        let mut samples = Samples::new();
        self.times.add_to(&mut samples, now);
        samples.p99_ms().map(|(p99_ms, _)| p99_ms)
    }
}
