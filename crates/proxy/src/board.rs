//! What is known of every replica's load, put together at one moment.

use spillway_types::{ReplicaSlot, Signals};

/// Signals by slot. Immutable: a new one replaces it several times a second.
#[derive(Clone, Debug, Default)]
pub struct Board(Vec<Signals>);

impl Board {
    /// A board of a view's replicas, in the order of their slots.
    #[must_use]
    pub fn new(signals: Vec<Signals>) -> Self {
        Self(signals)
    }

    /// What is known of a replica; nothing, if it is not on the board.
    #[must_use]
    pub fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.0.get(slot.index()).copied().unwrap_or(Signals::UNKNOWN)
    }
}
