//! Last value and state of a source.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Age of the last answer from which on a source that fails counts as [`SourcePhase::Stale`]: longer
/// than any TTL that is honoured, so that a lost packet is none.
const STALE_AFTER: Duration = Duration::from_secs(30);

/// Last value and state of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings<T> {
    /// Last value; `None` until a first answer.
    pub found: Option<T>,
    /// State of the source.
    pub state: SourceState,
}

/// State of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Time of the last answer that could be used, be it an empty one; `None` before the first.
    pub answered_at: Option<Instant>,
    /// Failure of the last try; `None` if it was answered.
    pub failure: Option<String>,
    /// Time since which every answer has been empty.
    pub empty_since: Option<Instant>,
}

/// State of a source in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePhase {
    /// The first answer is waited for.
    Pending,
    /// No try was ever answered: no replica is known.
    Unanswered,
    /// The last answer has replicas.
    Answered,
    /// The last answer has no replica. Those found earlier are in use until the grace ends.
    Empty,
    /// Tries fail, and the last answer is old. The replicas found earlier are in use.
    Stale,
}

impl SourcePhase {
    /// All phases.
    pub const ALL: [Self; 5] =
        [Self::Pending, Self::Unanswered, Self::Answered, Self::Empty, Self::Stale];

    /// Returns the phase's name in metrics and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Unanswered => "unanswered",
            Self::Answered => "answered",
            Self::Empty => "empty",
            Self::Stale => "stale",
        }
    }
}

impl<T> Findings<T> {
    /// Returns the findings before the first answer.
    pub(super) fn channel() -> (watch::Sender<Self>, watch::Receiver<Self>) {
        watch::channel(Self { found: None, state: SourceState::default() })
    }
}

impl SourceState {
    /// Notes an answer that could be used.
    pub fn note_answer(&mut self, is_empty: bool, now: Instant) {
        self.answered_at = Some(now);
        self.failure = None;
        self.empty_since = is_empty.then(|| self.empty_since.unwrap_or(now));
    }

    /// Notes a try that failed.
    pub fn note_failure(&mut self, failure: String) {
        self.failure = Some(failure);
    }

    /// Returns the phase at `now`.
    #[must_use]
    pub fn phase(&self, now: Instant) -> SourcePhase {
        match (self.answered_at, &self.failure) {
            (None, None) => SourcePhase::Pending,
            (None, Some(_)) => SourcePhase::Unanswered,
            (Some(at), Some(_)) if now.duration_since(at) > STALE_AFTER => SourcePhase::Stale,
            _ if self.empty_since.is_some() => SourcePhase::Empty,
            _ => SourcePhase::Answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_stale_only_when_failures_last() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut state = SourceState::default();
        assert_eq!(state.phase(start), SourcePhase::Pending);
        state.note_failure("x".to_owned());
        assert_eq!(state.phase(after(1000)), SourcePhase::Unanswered);
        state.note_answer(false, after(1000));
        assert_eq!(state.phase(after(2000)), SourcePhase::Answered, "files are read seldom");
        state.note_failure("x".to_owned());
        assert_eq!(state.phase(after(1030)), SourcePhase::Answered, "a lost packet is no outage");
        assert_eq!(state.phase(after(1031)), SourcePhase::Stale);
        state.note_answer(true, after(1040));
        assert_eq!(state.phase(after(1040)), SourcePhase::Empty);
        state.note_answer(true, after(1050));
        assert_eq!(state.empty_since, Some(after(1040)));
        state.note_answer(false, after(1060));
        assert_eq!((state.phase(after(1060)), state.empty_since), (SourcePhase::Answered, None));
    }
}
