//! Counts of sessions and conversations that went on somewhere else.

use std::sync::atomic::{AtomicU64, Ordering};

/// What kept a client's requests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// A cookie or header of the route's sessions.
    Session,
    /// The beginning of the prompt, which another region has in its caches.
    Conversation,
}

/// Where it went instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MovedTo {
    /// Another replica of this region.
    Replica,
    /// Another region.
    Region,
}

/// Totals since start.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    session_to_replica: AtomicU64,
    session_to_region: AtomicU64,
    conversation_to_region: AtomicU64,
}

impl Moves {
    /// Counts one.
    pub(crate) fn count(&self, kept: Kept, to: MovedTo) {
        let counter = match (kept, to) {
            (Kept::Session, MovedTo::Replica) => &self.session_to_replica,
            (Kept::Session, MovedTo::Region) => &self.session_to_region,
            (Kept::Conversation, _) => &self.conversation_to_region,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what was kept, where it went, and how often.
    pub(crate) fn totals(&self) -> Vec<(&'static str, &'static str, u64)> {
        let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("session", "replica", total(&self.session_to_replica)),
            ("session", "region", total(&self.session_to_region)),
            ("conversation", "region", total(&self.conversation_to_region)),
        ]
    }
}
