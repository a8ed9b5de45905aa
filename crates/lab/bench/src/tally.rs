//! Counts and latencies of one timed window of load.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::sse::EventCounter;

/// Longest duration that a histogram records, in nanoseconds; longer ones count as this long.
const NANOS_MAX: u64 = 60_000_000_000;

/// Counters and histograms of all requests that ended since the last reset.
#[derive(Debug)]
pub(crate) struct LoadTally {
    requests: u64,
    errors: u64,
    tokens: u64,
    first_error: Option<String>,
    latency: Histogram<u64>,
    first_token: Histogram<u64>,
    gap: Histogram<u64>,
}

/// Figures of one window.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    /// Length of the window in seconds.
    pub(crate) seconds: f64,
    /// Number of requests that succeeded inside the window.
    pub(crate) requests: u64,
    /// Number of requests that failed: an error, a status other than 200, or a reply that broke
    /// off.
    pub(crate) errors: u64,
    /// Text of the first error.
    pub(crate) first_error: Option<String>,
    /// Number of events with data that arrived inside the window.
    pub(crate) tokens: u64,
    /// Time from the intended start of a request to its last byte.
    pub(crate) latency: Percentiles,
    /// Time from the intended start of a request to its first token; `None` without streams.
    pub(crate) first_token: Option<Percentiles>,
    /// Time between two tokens of a stream; `None` without streams.
    pub(crate) gap: Option<Percentiles>,
}

/// Percentiles of one distribution in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Percentiles {
    /// Median.
    pub(crate) p50_us: f64,
    /// 90th percentile.
    pub(crate) p90_us: f64,
    /// 99th percentile.
    pub(crate) p99_us: f64,
    /// Largest value.
    pub(crate) max_us: f64,
}

impl LoadTally {
    /// Returns an empty tally.
    pub(crate) fn new() -> anyhow::Result<Self> {
        // Three significant digits keep the error of each value below 0.1 %.
        let histogram = || Histogram::new_with_bounds(1, NANOS_MAX, 3);
        Ok(Self {
            requests: 0,
            errors: 0,
            tokens: 0,
            first_error: None,
            latency: histogram()?,
            first_token: histogram()?,
            gap: histogram()?,
        })
    }

    /// Clears everything, at the end of the warm-up.
    pub(crate) fn reset(&mut self) {
        (self.requests, self.errors, self.tokens) = (0, 0, 0);
        self.first_error = None;
        self.latency.reset();
        self.first_token.reset();
        self.gap.reset();
    }

    /// Records a request that succeeded.
    pub(crate) fn finish(&mut self, latency: Duration) {
        self.requests += 1;
        record(&mut self.latency, latency);
    }

    /// Records a request that failed.
    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| format!("{error:#}"));
    }

    /// Records the tokens in the bytes of a stream that arrived at `now`.
    pub(crate) fn observe(&mut self, watch: &mut StreamWatch, now: Instant) {
        let fresh = watch.counter.tokens() - watch.seen;
        // The read ended inside an event, or held only `[DONE]`: no token, and so no gap.
        if fresh == 0 {
            return;
        }
        match watch.last_token_at {
            None => record(&mut self.first_token, now - watch.arrival),
            Some(last) => record(&mut self.gap, now - last),
        }
        // Further tokens of the same read had no gap before them.
        self.gap.saturating_record_n(0, fresh - 1);
        self.tokens += fresh;
        watch.seen += fresh;
        watch.last_token_at = Some(now);
    }

    /// Returns the figures so far, for a window of this length.
    pub(crate) fn measurement(&self, window: Duration) -> Measurement {
        let if_any = |histogram: &Histogram<u64>| {
            (!histogram.is_empty()).then(|| Percentiles::from(histogram))
        };
        Measurement {
            seconds: window.as_secs_f64(),
            requests: self.requests,
            errors: self.errors,
            first_error: self.first_error.clone(),
            tokens: self.tokens,
            latency: Percentiles::from(&self.latency),
            first_token: if_any(&self.first_token),
            gap: if_any(&self.gap),
        }
    }
}

impl Measurement {
    /// Returns the requests per second.
    pub(crate) fn requests_per_s(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Returns the tokens per second.
    pub(crate) fn tokens_per_s(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }
}

impl From<&Histogram<u64>> for Percentiles {
    fn from(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self {
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: histogram.max() as f64 / 1000.0,
        }
    }
}

/// Progress of a stream at its client.
#[derive(Debug)]
pub(crate) struct StreamWatch {
    /// Counter of events; the reader of the body feeds it.
    pub(crate) counter: EventCounter,
    arrival: Instant,
    seen: u64,
    last_token_at: Option<Instant>,
}

impl StreamWatch {
    /// Returns the progress of the answer to a request that was due at `arrival`.
    pub(crate) fn new(arrival: Instant) -> Self {
        Self { counter: EventCounter::default(), arrival, seen: 0, last_token_at: None }
    }
}

fn record(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true within 0.1 %, the precision of three digits.
    fn is_near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected * 0.001
    }

    #[test]
    fn tokens_are_timed_from_the_arrival_and_from_each_other() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut tally = LoadTally::new().unwrap();
        let mut watch = StreamWatch::new(start);
        for (bytes, ms) in [
            (b"data: 1\n".as_slice(), 5),
            (b"\n", 10),
            (b"data: 2\n\ndata: 3\n\n", 30),
            (b"data: [DONE]\n\n", 31),
        ] {
            watch.counter.feed(bytes);
            tally.observe(&mut watch, at(ms));
        }
        let measurement = tally.measurement(Duration::from_secs(2));
        assert_eq!((measurement.tokens, measurement.tokens_per_s()), (3, 1.5));
        assert!(is_near(measurement.first_token.unwrap().p50_us, 10_000.0));
        let gap = measurement.gap.unwrap();
        assert!(is_near(gap.max_us, 20_000.0), "{gap:?}");
        assert!(gap.p50_us < 0.01, "the third token came along with the second: {gap:?}");
    }

    #[test]
    fn a_reset_leaves_nothing_of_the_warm_up() {
        let mut tally = LoadTally::new().unwrap();
        tally.finish(Duration::from_secs(5));
        tally.fail(&anyhow::anyhow!("early"));
        tally.reset();
        tally.finish(Duration::from_millis(1));
        let measurement = tally.measurement(Duration::from_secs(1));
        assert_eq!((measurement.requests, measurement.errors), (1, 0));
        assert_eq!(measurement.first_error, None);
        assert!(is_near(measurement.latency.max_us, 1000.0));
    }
}
