//! Counts of sessions and conversations that continued at another target.

use std::sync::atomic::{AtomicU64, Ordering};

/// A change of the target where a client's requests are served.
#[derive(Clone, Copy, Debug)]
pub enum AffinityMove {
    /// A session by cookie or header continued at another replica of this region.
    SessionToReplica,
    /// A session continued in another region.
    SessionToRegion,
    /// A conversation, recognized by the beginning of its prompt, continued in another region.
    ConversationToRegion,
}

impl AffinityMove {
    const ALL: [Self; 3] =
        [Self::SessionToReplica, Self::SessionToRegion, Self::ConversationToRegion];

    /// Returns the values of the metric's labels: the kind of affinity, and the kind of the new
    /// target.
    fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::SessionToReplica => ("session", "replica"),
            Self::SessionToRegion => ("session", "region"),
            Self::ConversationToRegion => ("conversation", "region"),
        }
    }
}

/// Totals since start, one for each kind of move.
#[derive(Debug, Default)]
pub struct AffinityMoves([AtomicU64; AffinityMove::ALL.len()]);

impl AffinityMoves {
    /// Counts one move.
    pub fn count(&self, moved: AffinityMove) {
        self.0[moved as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the totals by kind of affinity and kind of the new target.
    pub fn totals(&self) -> Vec<(&'static str, &'static str, u64)> {
        let total = |moved: AffinityMove| {
            let (kept, to) = moved.labels();
            (kept, to, self.0[moved as usize].load(Ordering::Relaxed))
        };
        AffinityMove::ALL.map(total).to_vec()
    }
}
