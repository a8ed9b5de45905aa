//! Regions that clients should be sent to, as far as this node knows.

use spillway_types::{RegionName, Steering};

use crate::regions::{OtherRegion, Regions};

/// Steering of one region's clients, as far as this node knows.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionSteering {
    /// Name of the region.
    pub name: RegionName,
    /// True if this node receives the region's reports. The last steering of a silent region is
    /// worthless.
    pub is_heard: bool,
    /// Steering that the region announces, or this node's own for the own region.
    pub steering: Steering,
    /// Smoothed round-trip time from this node, in milliseconds; 0 for the own region.
    pub rtt_ms: f32,
}

impl Regions {
    /// Returns the steering of every region, the own one first; `own` is its name.
    #[must_use]
    pub fn steering(&self, own: &RegionName) -> Vec<RegionSteering> {
        let own = RegionSteering {
            name: own.clone(),
            is_heard: true,
            steering: self.own_steering,
            rtt_ms: 0.0,
        };
        let other = |other: &OtherRegion| RegionSteering {
            name: other.name.clone(),
            is_heard: other.is_heard,
            steering: other.steering,
            rtt_ms: other.rtt_ms,
        };
        std::iter::once(own).chain(self.others.iter().map(other)).collect()
    }

    /// Returns true if a replica of another region could serve a request of this node now.
    #[must_use]
    pub fn has_usable(&self) -> bool {
        let is_usable = |other: &OtherRegion| {
            other.is_reachable
                && other.breaker.is_open()
                && other.terms.weight_permille > 0
                && !other.models.is_empty()
        };
        self.asked_max > 0 && self.others.iter().any(is_usable)
    }
}

impl RegionSteering {
    /// Returns true if clients should be sent to this region.
    #[must_use]
    pub fn takes_clients(&self) -> bool {
        self.is_heard && self.steering.takes_clients()
    }
}
