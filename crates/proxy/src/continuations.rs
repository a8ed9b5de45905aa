//! What came of streams whose replica broke off.

use std::sync::atomic::{AtomicU64, Ordering};

use spillway_protocol::Unfit;

/// Whether and how streams are continued by another replica when theirs breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContinuationSpec {
    /// Bytes of text that are kept of each stream, to be said to whoever goes on; a longer one is not
    /// continued.
    pub text_bytes_max: usize,
    /// How often one stream may be continued: what kills its replica may be the request itself.
    pub count_max: u32,
}

/// What became of a stream after its replica broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continuation {
    /// Another replica goes on.
    Continued(Broke),
    /// Nothing was missing but its last events.
    Ended(Broke),
    /// No other replica was looked for.
    Refused(Refused),
    /// None was found.
    Failed(Failed),
}

/// How a replica broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broke {
    /// Its connection ended.
    Cut,
    /// It fell silent.
    Stalled,
    /// It said so, by an error event.
    Error,
}

/// Why no other replica was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// None could go on exactly.
    Unfit(Unfit),
    /// The stream was continued as often as it may be.
    Count,
    /// There were too many retries already.
    Budget,
}

/// Why no other replica goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// There is none that could.
    NoReplica,
    /// None had a place in time.
    Late,
    /// Those asked did not begin.
    Attempt,
}

const RESULTS: [&str; 4] = ["continued", "ended", "refused", "failed"];
/// Reasons besides those of [`Unfit`].
const OTHER_REASONS: [&str; 8] =
    ["cut", "stalled", "error", "count", "budget", "no_replica", "late", "attempt"];
const REASONS: usize = OTHER_REASONS.len() + Unfit::ALL.len();

/// Counts since start.
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

    /// By result and reason, those that occurred.
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
            Self::Refused(Refused::Unfit(unfit)) => ("refused", unfit.name()),
            Self::Refused(Refused::Count) => ("refused", "count"),
            Self::Refused(Refused::Budget) => ("refused", "budget"),
            Self::Failed(Failed::NoReplica) => ("failed", "no_replica"),
            Self::Failed(Failed::Late) => ("failed", "late"),
            Self::Failed(Failed::Attempt) => ("failed", "attempt"),
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
            Continuation::Refused(Refused::Count),
            Continuation::Refused(Refused::Budget),
            Continuation::Failed(Failed::NoReplica),
            Continuation::Failed(Failed::Late),
            Continuation::Failed(Failed::Attempt),
        ];
        all.extend(Unfit::ALL.map(|unfit| Continuation::Refused(Refused::Unfit(unfit))));
        let counts = Continuations::default();
        all.iter().for_each(|what| counts.count(*what));
        let totals = counts.totals();
        assert_eq!(totals.len(), all.len());
        assert!(totals.iter().all(|(.., count)| *count == 1), "{totals:?}");
    }
}
