//! Decides which requests are exported to the collector.

use std::time::{Duration, Instant};

use spillway_types::{End, Outcome};

/// Most requests a second that are exported only because they failed or were slow. A flood of
/// refusals would push out all else.
const UNUSUAL_PER_S: f64 = 50.0;

/// Sampler of requests that ended.
#[derive(Debug)]
pub struct Sampler {
    slow: Duration,
    /// Unusual requests that may be exported now.
    allowance: f64,
    filled: Instant,
}

impl Sampler {
    /// Creates a sampler to which a first byte later than `slow` is unusual.
    #[must_use]
    pub fn new(slow: Duration, now: Instant) -> Self {
        Self { slow, allowance: UNUSUAL_PER_S, filled: now }
    }

    /// Returns true if a request should be exported: its trace is recorded, or it was slow, failed
    /// or was rejected, as far as the allowance for unusual requests lasts.
    pub fn keeps(&mut self, outcome: &Outcome, now: Instant) -> bool {
        let Some(ids) = outcome.trace else { return false };
        if ids.is_sampled {
            return true;
        }
        if !self.is_unusual(outcome) {
            return false;
        }
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.allowance = (self.allowance + passed * UNUSUAL_PER_S).min(UNUSUAL_PER_S);
        self.filled = now;
        let is_allowed = self.allowance >= 1.0;
        if is_allowed {
            self.allowance -= 1.0;
        }
        is_allowed
    }

    fn is_unusual(&self, outcome: &Outcome) -> bool {
        let waited = outcome.first_byte.unwrap_or(outcome.duration);
        outcome.shed.is_some()
            || outcome.failure().is_some()
            || !matches!(outcome.end, End::Complete | End::Answered)
            || waited >= self.slow
    }
}

#[cfg(test)]
mod tests {
    use spillway_types::{Shed, TraceIds};

    use super::*;

    fn ended(is_sampled: bool) -> Outcome {
        let trace = TraceIds { trace: 7, parent: None, span: 9, is_sampled };
        Outcome { trace: Some(trace), status: 200, end: End::Complete, ..Outcome::begun() }
    }

    #[test]
    fn what_is_recorded_is_told_and_else_only_what_is_unusual() {
        let now = Instant::now();
        let mut sampler = Sampler::new(Duration::from_secs(1), now);
        let cases = [
            (ended(true), true),
            (ended(false), false),
            (Outcome { status: 502, ..ended(false) }, true),
            (Outcome { status: 404, ..ended(false) }, false),
            (Outcome { end: End::Cut, ..ended(false) }, true),
            (Outcome { grpc_status: Some(14), ..ended(false) }, true),
            (Outcome { grpc_status: Some(5), ..ended(false) }, false),
            (
                Outcome { shed: Some(Shed { reason: "queue_full", priority: 1 }), ..ended(false) },
                true,
            ),
            (Outcome { first_byte: Some(Duration::from_secs(2)), ..ended(false) }, true),
            (
                Outcome {
                    first_byte: Some(Duration::from_millis(10)),
                    duration: Duration::from_secs(90),
                    ..ended(false)
                },
                false,
            ),
            (Outcome { trace: None, status: 502, ..ended(false) }, false),
        ];
        for (outcome, is_kept) in cases {
            assert_eq!(sampler.keeps(&outcome, now), is_kept, "{outcome:?}");
        }
    }

    #[test]
    fn a_flood_of_failures_is_told_in_part_and_recorded_traces_in_full() {
        let start = Instant::now();
        let mut sampler = Sampler::new(Duration::MAX, start);
        let failed = Outcome { status: 503, ..ended(false) };
        let at = |ms: u64| start + Duration::from_millis(ms);
        let told = (0..10_000).filter(|ms| sampler.keeps(&failed, at(*ms))).count();
        assert!((540..=551).contains(&told), "{told} of 10 s");
        assert!((0..1_000).all(|_| sampler.keeps(&ended(true), at(10_000))));
    }
}
