//! Record of what a follower has heard of its leader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::rules::knowledge::{KnowledgeAge, KnowledgeStatement};

/// Record of what a follower has heard of its leader. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaderContact(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    at: Option<Instant>,
    knowledge: KnowledgeAge,
}

impl LeaderContact {
    /// Returns the time since the leader was heard last; `None` for never.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.at().map(|at| at.elapsed())
    }

    /// Returns the moment at which the leader was heard last; `None` for never.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.inner().at
    }

    /// Notes that the leader is heard now.
    pub(crate) fn now(&self) {
        self.inner().at = Some(Instant::now());
    }

    /// Notes what the leader says of the age of its knowledge; all entries before `applied_next`
    /// are carried out here.
    pub(crate) fn receive(&self, word: KnowledgeStatement, applied_next: u64) {
        self.inner().knowledge.receive(word, applied_next);
    }

    /// Returns the latest time of which all that was committed by then is carried out here, counted
    /// from the start; `None` for never.
    pub(crate) fn as_of(&self, applied_next: u64) -> Option<Duration> {
        self.inner().knowledge.as_of(applied_next)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
