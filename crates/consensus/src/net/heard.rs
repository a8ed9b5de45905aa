//! What a follower has heard of its leader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::rules::knowledge::{Knowledge, Word};

/// What a follower has heard of its leader. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    at: Option<Instant>,
    knowledge: Knowledge,
}

impl Heard {
    /// How long ago it was heard last; `None` for never.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.at().map(|at| at.elapsed())
    }

    /// When that was.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.inner().at
    }

    /// It is heard now.
    pub(crate) fn now(&self) {
        self.inner().at = Some(Instant::now());
    }

    /// It has said how old what it says can be; all before `applied_next` is carried out here.
    pub(crate) fn told(&self, word: Word, applied_next: u64) {
        self.inner().knowledge.told(word, applied_next);
    }

    /// At which time all that was committed then is carried out here, counted from the start.
    pub(crate) fn as_of(&self, applied_next: u64) -> Option<Duration> {
        self.inner().knowledge.as_of(applied_next)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
