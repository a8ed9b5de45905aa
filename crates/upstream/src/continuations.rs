//! Counts of stream continuations after a replica failed.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// Outcome of a stream whose replica failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// Another replica continues the stream.
    Continued(Broke),
    /// The stream lacked only its last events.
    Ended(Broke),
    /// No other replica was asked.
    Refused(ContinuationRefused),
    /// No other replica could continue the stream.
    Failed(ContinuationFailed),
}

/// Failures of a replica within a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broke {
    /// The connection ended.
    Cut,
    /// No byte came for too long.
    Stalled,
    /// The replica sent an error event.
    Error,
}

/// Reasons why no other replica was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContinuationRefused {
    /// No replica could continue the stream exactly.
    Unfit(Unfit),
    /// The stream has had all its continuations.
    Count,
    /// The retry budget was used up.
    Budget,
}

/// Reasons why no other replica continues the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContinuationFailed {
    /// No other replica is eligible.
    NoReplica,
    /// No eligible replica had a place in time.
    Late,
    /// The replicas that were asked did not begin.
    Attempt,
}

const RESULTS: [&str; 4] = ["continued", "ended", "refused", "failed"];
/// Reasons besides those of [`Unfit`].
const OTHER_REASONS: [&str; 8] =
    ["cut", "stalled", "error", "count", "budget", "no_replica", "late", "attempt"];
const REASONS: usize = OTHER_REASONS.len() + Unfit::ALL.len();

/// Continuations since start, by result and reason.
#[derive(Debug)]
pub(crate) struct Continuations([[AtomicU64; REASONS]; RESULTS.len()]);

impl Default for Continuations {
    fn default() -> Self {
        Self(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

impl Continuations {
    pub(crate) fn count(&self, what: Continuation) {
        let (result, reason) = what.names();
        let result = RESULTS.iter().position(|name| *name == result);
        let reason = reasons().position(|name| name == reason);
        if let (Some(result), Some(reason)) = (result, reason) {
            self.0[result][reason].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts by result and reason, without zeros.
    pub(crate) fn totals(&self) -> Vec<(&'static str, &'static str, u64)> {
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
            Self::Continued(broke) => ("continued", broke.name()),
            Self::Ended(broke) => ("ended", broke.name()),
            Self::Refused(ContinuationRefused::Unfit(unfit)) => ("refused", unfit.name()),
            Self::Refused(ContinuationRefused::Count) => ("refused", "count"),
            Self::Refused(ContinuationRefused::Budget) => ("refused", "budget"),
            Self::Failed(ContinuationFailed::NoReplica) => ("failed", "no_replica"),
            Self::Failed(ContinuationFailed::Late) => ("failed", "late"),
            Self::Failed(ContinuationFailed::Attempt) => ("failed", "attempt"),
        }
    }
}

impl Broke {
    fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Stalled => "stalled",
            Self::Error => "error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_happen_is_counted_under_its_own_name() {
        let mut all = vec![
            Continuation::Continued(Broke::Cut),
            Continuation::Continued(Broke::Stalled),
            Continuation::Continued(Broke::Error),
            Continuation::Ended(Broke::Cut),
            Continuation::Ended(Broke::Stalled),
            Continuation::Refused(ContinuationRefused::Count),
            Continuation::Refused(ContinuationRefused::Budget),
            Continuation::Failed(ContinuationFailed::NoReplica),
            Continuation::Failed(ContinuationFailed::Late),
            Continuation::Failed(ContinuationFailed::Attempt),
        ];
        all.extend(
            Unfit::ALL.map(|unfit| Continuation::Refused(ContinuationRefused::Unfit(unfit))),
        );
        let counts = Continuations::default();
        all.iter().for_each(|what| counts.count(*what));
        let totals = counts.totals();
        assert_eq!(totals.len(), all.len());
        assert!(totals.iter().all(|(.., count)| *count == 1), "{totals:?}");
    }
}
