//! Properties of a replica that policies look at.

use highway::{HighwayHash, HighwayHasher};
use spillway_types::{ReplicaName, ReplicaSlot};

/// Replica that may serve the requests of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Slot of the replica in the view.
    pub slot: ReplicaSlot,
    /// Identity of the replica in every view; see [`Candidate::identity_of`].
    pub identity: u64,
    /// Capacity in proportion to the other replicas of the group; 0 counts as 1.
    pub weight: u32,
    /// Share of the weight that counts now, 1 to [`RAMP_FULL`]: less during slow start. A value
    /// outside is clamped.
    ///
    /// [`RAMP_FULL`]: spillway_types::RAMP_FULL
    pub ramp_permille: u16,
    /// Most requests in flight; the replica takes no more then. `u32::MAX` means no limit.
    pub in_flight_max: u32,
}

impl Candidate {
    /// Returns a hash of the name, equal in every view and on every node, where slots differ.
    ///
    /// The hash needs no secret, since the operator chooses names. Two of a thousand names share an
    /// identity with a probability of 3 in 10^14; their keys would then be spread unevenly.
    #[must_use]
    pub fn identity_of(name: &ReplicaName) -> u64 {
        HighwayHasher::default().hash64(name.as_str().as_bytes())
    }

    /// Returns the weight that counts now, in thousandths: whole numbers keep sums exact.
    pub(crate) fn effective_weight(&self) -> u64 {
        u64::from(self.weight) * u64::from(self.ramp_permille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_the_same_on_every_machine() {
        // Nodes of different releases must agree too: a changed value here moves every key.
        let identity = Candidate::identity_of(&ReplicaName::from("gpu-a"));
        assert_eq!(identity, 14_683_308_835_393_694_993);
        assert_ne!(identity, Candidate::identity_of(&ReplicaName::from("gpu-b")));
    }
}
