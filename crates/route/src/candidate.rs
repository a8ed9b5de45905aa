//! A replica as a policy sees it.

use highway::{HighwayHash, HighwayHasher};
use spillway_types::{ReplicaName, ReplicaSlot};

/// One replica that may serve the requests of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it stands in the view.
    pub slot: ReplicaSlot,
    /// Who it is, whatever its slot: see [`Candidate::identity_of`].
    pub identity: u64,
    /// Its capacity in proportion to the others of its group; at least 1, and 0 is taken as 1.
    pub weight: u32,
    /// Share of the weight that counts now, 1 to [`RAMP_FULL`]: less while it warms up. What lies
    /// outside is taken as the nearest of the two.
    ///
    /// [`RAMP_FULL`]: spillway_types::RAMP_FULL
    pub ramp_permille: u16,
    /// It takes no further request while this many are in flight; `u32::MAX` means no limit.
    pub in_flight_max: u32,
}

impl Candidate {
    /// A hash of the name: the same in every view and on every node, where slots differ.
    ///
    /// It needs no secret, since names are the operator's. Two of a thousand names share an
    /// identity with a probability of 3 in 10^14; they would then share their keys unevenly.
    #[must_use]
    pub fn identity_of(name: &ReplicaName) -> u64 {
        HighwayHasher::default().hash64(name.as_str().as_bytes())
    }

    /// The weight that counts now, in thousandths: whole numbers keep sums exact.
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
