//! Load of every replica, as known at one moment.

use spillway_types::{Holder, ReplicaSlot, Signals, Speed};

/// Signals and speeds of replicas by slot. Immutable: a new board replaces it several times a
/// second.
#[derive(Clone, Debug, Default)]
pub struct ReplicaLoads {
    signals: Vec<Signals>,
    /// Learned speeds; empty if nothing was learned.
    speeds: Vec<Speed>,
    /// Slots by the replicas' numbers in the prefix index; empty if there is no index.
    slots: Vec<Option<ReplicaSlot>>,
}

impl ReplicaLoads {
    /// Returns a board with the signals of a view's replicas, in the order of their slots, without
    /// speeds.
    #[must_use]
    pub fn new(signals: Vec<Signals>) -> Self {
        Self { signals, speeds: Vec::new(), slots: Vec::new() }
    }

    /// Adds the replicas' speeds, in the order of their slots.
    #[must_use]
    pub fn with_speeds(self, speeds: Vec<Speed>) -> Self {
        Self { speeds, ..self }
    }

    /// Adds the replicas' numbers in the prefix index, in the order of their slots.
    #[must_use]
    pub fn with_holders(self, holders: impl Iterator<Item = Option<Holder>>) -> Self {
        let mut slots = Vec::new();
        for (slot, holder) in (0..).map(ReplicaSlot).zip(holders) {
            let Some(holder) = holder else { continue };
            if slots.len() <= holder.index() {
                slots.resize(holder.index() + 1, None);
            }
            slots[holder.index()] = Some(slot);
        }
        Self { slots, ..self }
    }

    /// Returns true if the board knows the slots of replicas in the prefix index.
    #[must_use]
    pub fn has_holders(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Returns the slot of the replica with this number in the prefix index.
    #[must_use]
    pub fn slot_of(&self, holder: Holder) -> Option<ReplicaSlot> {
        self.slots.get(holder.index()).copied().flatten()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_number_in_the_prefix_index_is_known_if_there_is_an_index() {
        let board = ReplicaLoads::default().with_holders([Some(Holder(3)), None].into_iter());
        let slots = [0, 3, 9].map(|number| board.slot_of(Holder(number)));
        assert_eq!((slots, board.has_holders()), ([None, Some(ReplicaSlot(0)), None], true));
        let board = board.with_holders([None].into_iter());
        assert_eq!((board.slot_of(Holder(3)), board.has_holders()), (None, false));
    }
}
