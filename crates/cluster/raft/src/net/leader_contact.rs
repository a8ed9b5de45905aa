//! Record of the last contact of a follower with its leader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::rules::knowledge::{KnowledgeAge, KnowledgeStatement};

/// Record of the last contact of a follower with its leader. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaderContact(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    at: Option<Instant>,
    knowledge: KnowledgeAge,
    /// Index before which a leader had committed all, while something of it is missing here, and since
    /// when.
    lacking: Option<(u64, Instant)>,
}

impl LeaderContact {
    /// Returns the time since the last message of the leader; `None` for never.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.at().map(|at| at.elapsed())
    }

    /// Returns the moment of the last message of the leader; `None` for never.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.inner().at
    }

    /// Notes that the leader has sent a message now.
    pub(crate) fn now(&self) {
        self.inner().at = Some(Instant::now());
    }

    /// Notes the leader's statement about the age of its knowledge. All entries before
    /// `applied_next` are applied here.
    pub(crate) fn receive(&self, word: KnowledgeStatement, applied_next: u64) {
        self.inner().knowledge.receive(word, applied_next);
    }

    /// Returns the latest time of which all that was committed by then is carried out here, counted
    /// from the start; `None` for never.
    pub(crate) fn as_of(&self, applied_next: u64) -> Option<Duration> {
        self.inner().knowledge.as_of(applied_next)
    }

    /// Notes that the leader has committed all before `committed_next`, and that all before
    /// `applied_next` is carried out here.
    pub(crate) fn committed(&self, committed_next: u64, applied_next: u64) {
        let mut inner = self.inner();
        let is_missing = inner.lacking.is_some_and(|(next, _)| applied_next < next);
        if !is_missing {
            let lacks = applied_next < committed_next;
            inner.lacking = lacks.then(|| (committed_next, Instant::now()));
        }
    }

    /// Returns the time for which something is missing here that a leader had committed; `None` if
    /// nothing is.
    pub(crate) fn lacking(&self, applied_next: u64) -> Option<Duration> {
        let (next, since) = self.inner().lacking?;
        (applied_next < next).then(|| since.elapsed())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_counts_from_when_the_leader_had_it_until_it_is_here() {
        let second = Duration::from_secs(1);
        let heard = LeaderContact::default();
        heard.committed(10, 10);
        assert_eq!(heard.lacking(10), None);
        heard.committed(12, 10);
        tokio::time::advance(5 * second).await;
        // Entries that the leader committed later do not count for this wait.
        heard.committed(20, 11);
        assert_eq!(heard.lacking(11), Some(5 * second));
        assert_eq!(heard.lacking(12), None);
        heard.committed(20, 12);
        tokio::time::advance(second).await;
        assert_eq!(
            heard.lacking(12),
            Some(second),
            "it advances, and is behind by something newer"
        );
        assert_eq!(heard.lacking(20), None);
    }
}
