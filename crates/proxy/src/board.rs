//! What is known of every replica's load, put together at one moment.

use spillway_types::{ReplicaSlot, Signals, Speed};

/// Signals and speeds by slot. Immutable: a new one replaces it several times a second.
#[derive(Clone, Debug, Default)]
pub struct Board {
    signals: Vec<Signals>,
    /// Empty where nothing was learned.
    speeds: Vec<Speed>,
}

impl Board {
    /// A board of a view's replicas, in the order of their slots, of whose speed nothing is known.
    #[must_use]
    pub fn new(signals: Vec<Signals>) -> Self {
        Self { signals, speeds: Vec::new() }
    }

    /// The same with how fast they are, in the same order.
    #[must_use]
    pub fn with_speeds(self, speeds: Vec<Speed>) -> Self {
        Self { speeds, ..self }
    }

    /// What is known of a replica; nothing, if it is not on the board.
    #[must_use]
    pub fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.signals.get(slot.index()).copied().unwrap_or(Signals::UNKNOWN)
    }

    /// How fast a replica is; the usual profile, if it is not on the board.
    #[must_use]
    pub fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.speeds.get(slot.index()).copied().unwrap_or(Speed::UNKNOWN)
    }
}
