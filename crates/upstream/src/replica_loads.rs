//! Load of every replica, as known at one moment.

use spillway_types::{ReplicaSlot, Signals, Speed};

/// Signals and speeds of replicas by slot. Immutable: a new board replaces it several times a
/// second.
#[derive(Clone, Debug, Default)]
pub struct ReplicaLoads {
    signals: Vec<Signals>,
    /// Learned speeds; empty if nothing was learned.
    speeds: Vec<Speed>,
}

impl ReplicaLoads {
    /// Returns a board with the signals of a view's replicas, in the order of their slots, without
    /// speeds.
    #[must_use]
    pub fn new(signals: Vec<Signals>) -> Self {
        Self { signals, speeds: Vec::new() }
    }

    /// Adds the replicas' speeds, in the order of their slots.
    #[must_use]
    pub fn with_speeds(self, speeds: Vec<Speed>) -> Self {
        Self { speeds, ..self }
    }

    /// Returns the signals of a replica; [`Signals::UNKNOWN`] if it is not on the board.
    #[must_use]
    pub fn signals(&self, slot: ReplicaSlot) -> Signals {
        self.signals.get(slot.index()).copied().unwrap_or(Signals::UNKNOWN)
    }

    /// Returns the speed of a replica; [`Speed::UNKNOWN`] if it is not on the board.
    #[must_use]
    pub fn speed(&self, slot: ReplicaSlot) -> Speed {
        self.speeds.get(slot.index()).copied().unwrap_or(Speed::UNKNOWN)
    }
}
