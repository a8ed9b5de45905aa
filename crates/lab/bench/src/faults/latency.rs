//! Latency of the requests that were due in one phase.

use std::{ops::Range, time::Duration};

use serde::Serialize;
use spillway_harness::quantile;

use super::{ending::Ending, exchange::Observation, plan::DEADLINE};

/// Percentiles in milliseconds from the time at which requests were due; `None` without requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Number of requests that count.
    pub(crate) requests: usize,
    /// Median time to the first byte of the body.
    pub(crate) first_byte_p50_ms: Option<f64>,
    /// p99 of the time to the first byte of the body.
    pub(crate) first_byte_p99_ms: Option<f64>,
    /// Median time of the whole reply.
    pub(crate) total_p50_ms: Option<f64>,
    /// p99 of the time of the whole reply.
    pub(crate) total_p99_ms: Option<f64>,
}

/// Treatment of requests that did not get a whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Not counted here: they are counted as errors.
    LeftOut,
    /// Counted with the client's time limit, so that failing does not keep a latency limit.
    AsDeadline,
}

impl Latency {
    /// Returns the latency of the requests due within `phase`.
    pub(crate) fn of(
        observations: &[Observation],
        phase: &Range<Duration>,
        failed: Failed,
    ) -> Self {
        let mut first_bytes = Vec::new();
        let mut totals = Vec::new();
        for seen in observations.iter().filter(|seen| phase.contains(&seen.due)) {
            let since_due = |at: Duration| at.saturating_sub(seen.due);
            match (&seen.ending, failed) {
                (Ending::Complete, _) => {
                    first_bytes.extend(seen.first_byte.map(since_due));
                    totals.push(since_due(seen.ended));
                }
                (_, Failed::AsDeadline) => {
                    first_bytes.push(DEADLINE);
                    totals.push(DEADLINE);
                }
                (_, Failed::LeftOut) => {}
            }
        }
        let ms = |values: &[Duration], share| {
            quantile(values.iter().map(|value| value.as_secs_f64() * 1000.0), share)
        };
        Self {
            requests: totals.len(),
            first_byte_p50_ms: ms(&first_bytes, 0.5),
            first_byte_p99_ms: ms(&first_bytes, 0.99),
            total_p50_ms: ms(&totals, 0.5),
            total_p99_ms: ms(&totals, 0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ending::Loss, *};

    fn seen(due_ms: u64, total_ms: u64, ending: Ending) -> Observation {
        let due = Duration::from_millis(due_ms);
        Observation {
            number: 0,
            due,
            // Sent late: the wait belongs to the latency.
            sent: due + Duration::from_millis(3),
            first_byte: Some(due + Duration::from_millis(total_ms / 2)),
            ended: due + Duration::from_millis(total_ms),
            replica: None,
            ending,
        }
    }

    #[test]
    fn a_phase_holds_what_was_due_in_it_whenever_it_ended() {
        let observations = [
            seen(999, 10, Ending::Complete),
            seen(1000, 5000, Ending::Complete),
            seen(1999, 20, Ending::Complete),
            seen(2000, 30, Ending::Complete),
        ];
        let phase = Duration::from_secs(1)..Duration::from_secs(2);
        let latency = Latency::of(&observations, &phase, Failed::LeftOut);
        assert_eq!(latency.requests, 2);
        assert_eq!((latency.total_p50_ms, latency.total_p99_ms), (Some(20.0), Some(5000.0)));
        assert_eq!(latency.first_byte_p99_ms, Some(2500.0));
    }

    #[test]
    fn failures_are_left_out_or_as_slow_as_can_be() {
        let observations = [seen(0, 10, Ending::Complete), seen(1, 1, Ending::Lost(Loss::NoReply))];
        let phase = Duration::ZERO..Duration::from_secs(1);
        let left_out = Latency::of(&observations, &phase, Failed::LeftOut);
        assert_eq!((left_out.requests, left_out.total_p99_ms), (1, Some(10.0)));
        let counted = Latency::of(&observations, &phase, Failed::AsDeadline);
        assert_eq!((counted.requests, counted.total_p99_ms), (2, Some(10_000.0)));
    }
}
