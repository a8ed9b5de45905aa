//! Counts of stream continuations after a replica failed.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_journey::{BreakCause, StreamEnd};
use spillway_protocol::Unfit;

/// Limits of the continuation of streams by another replica when theirs fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContinuationSpec {
    /// Bytes of text kept of each stream, to be sent to the next replica; a longer stream is not
    /// continued.
    pub text_bytes_max: usize,
    /// Most continuations of one stream: its request may be the cause of the replicas' failures.
    pub count_max: u32,
}

impl Default for ContinuationSpec {
    fn default() -> Self {
        // 60,000 tokens are more than models generate in one answer. A request that has killed four
        // replicas is more likely to be the cause than a witness.
        Self { text_bytes_max: 256 << 10, count_max: 3 }
    }
}

/// Outcome of a stream whose replica failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// Another replica continues the stream.
    Continued(BreakCause),
    /// No other replica continues the stream.
    Over(BreakCause, StreamEnd),
}

const RESULTS: [&str; 4] = ["continued", "ended", "refused", "failed"];
/// Reasons besides those of [`Unfit`].
const OTHER_REASONS: [&str; 12] = [
    "cut",
    "stalled",
    "error",
    "aborted",
    "lost",
    "drained",
    "count",
    "deaths",
    "budget",
    "no_replica",
    "late",
    "attempt",
];
const REASONS: usize = OTHER_REASONS.len() + Unfit::ALL.len();

/// Continuations since start, by result and reason.
#[derive(Debug)]
pub struct Continuations([[AtomicU64; REASONS]; RESULTS.len()]);

impl Default for Continuations {
    fn default() -> Self {
        Self(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl Continuations {
    /// Counts an event of a continued stream.
    pub fn count(&self, what: Continuation) {
        let (result, reason) = what.names();
        let result = RESULTS.iter().position(|name| *name == result);
        let reason = reasons().position(|name| name == reason);
        // A name that is missing in the lists goes uncounted rather than ending a request.
        if let (Some(result), Some(reason)) = (result, reason) {
            self.0[result][reason].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts by result and reason, without zeros.
    pub fn totals(&self) -> Vec<(&'static str, &'static str, u64)> {
        let mut totals = Vec::new();
        for (result, counts) in RESULTS.iter().zip(&self.0) {
            for (reason, count) in reasons().zip(counts) {
                totals.push((*result, reason, count.load(Ordering::Relaxed)));
            }
        }
        totals.retain(|(.., count)| *count > 0);
        totals
    }
}

fn reasons() -> impl Iterator<Item = &'static str> {
    OTHER_REASONS.into_iter().chain(Unfit::ALL.map(Unfit::name))
}

impl Continuation {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Continued(cause) => ("continued", cause.name()),
            Self::Over(cause, end) => match end {
                StreamEnd::Complete => ("ended", cause.name()),
                StreamEnd::Unfit(reason) => ("refused", reason),
                StreamEnd::Count => ("refused", "count"),
                StreamEnd::Deaths => ("refused", "deaths"),
                StreamEnd::Budget => ("refused", "budget"),
                StreamEnd::NoTargetLeft => ("failed", "no_replica"),
                StreamEnd::Late => ("failed", "late"),
                StreamEnd::Failed => ("failed", "attempt"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_happen_is_counted_under_its_own_name() {
        let over = |end| Continuation::Over(BreakCause::Cut, end);
        let mut all = vec![
            Continuation::Continued(BreakCause::Cut),
            Continuation::Continued(BreakCause::Stalled),
            Continuation::Continued(BreakCause::Error),
            Continuation::Continued(BreakCause::Aborted),
            Continuation::Continued(BreakCause::Lost),
            Continuation::Continued(BreakCause::Drained),
            over(StreamEnd::Complete),
            Continuation::Over(BreakCause::Stalled, StreamEnd::Complete),
            over(StreamEnd::Count),
            over(StreamEnd::Budget),
            over(StreamEnd::Deaths),
            over(StreamEnd::NoTargetLeft),
            over(StreamEnd::Late),
            over(StreamEnd::Failed),
        ];
        all.extend(Unfit::ALL.map(|unfit| over(StreamEnd::Unfit(unfit.name()))));
        let counts = Continuations::default();
        all.iter().for_each(|what| counts.count(*what));
        let totals = counts.totals();
        assert_eq!(totals.len(), all.len());
        assert!(totals.iter().all(|(.., count)| *count == 1), "{totals:?}");
    }
}
