//! Regions of the demo, and the distances between them.

use std::time::Duration;

/// A region of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoRegion {
    UsEast,
    EuCentral,
    ApNortheast,
}

impl DemoRegion {
    pub(crate) const ALL: [Self; 3] = [Self::UsEast, Self::EuCentral, Self::ApNortheast];

    /// Returns the name in configs, certificates and headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UsEast => "us-east-1",
            Self::EuCentral => "eu-central-1",
            Self::ApNortheast => "ap-northeast-1",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|region| region.name() == name)
    }

    /// Returns the position in [`Self::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// Returns the round-trip time to another region, as the public internet between them takes.
    pub(crate) fn rtt_to(self, other: Self) -> Duration {
        let milliseconds = match (self, other) {
            (Self::UsEast, Self::EuCentral) | (Self::EuCentral, Self::UsEast) => 93,
            (Self::UsEast, Self::ApNortheast) | (Self::ApNortheast, Self::UsEast) => 150,
            (Self::EuCentral, Self::ApNortheast) | (Self::ApNortheast, Self::EuCentral) => 227,
            _ => 0,
        };
        Duration::from_millis(milliseconds)
    }

    /// Returns all regions, nearest first: the order in which its clients try them.
    pub(crate) fn nearest(self) -> [Self; 3] {
        let mut regions = Self::ALL;
        regions.sort_by_key(|&other| self.rtt_to(other));
        regions
    }

    /// Returns the other two regions.
    pub(crate) fn others(self) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |&other| other != self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_the_same_both_ways_and_clients_go_to_the_nearest() {
        for (one, other) in
            DemoRegion::ALL.into_iter().flat_map(|one| one.others().map(move |o| (one, o)))
        {
            assert_eq!(one.rtt_to(other), other.rtt_to(one));
            assert!(one.rtt_to(other) > Duration::ZERO);
        }
        assert_eq!(
            DemoRegion::ApNortheast.nearest(),
            [DemoRegion::ApNortheast, DemoRegion::UsEast, DemoRegion::EuCentral]
        );
    }

    #[test]
    fn a_region_is_found_by_its_name_and_place() {
        for (index, region) in DemoRegion::ALL.into_iter().enumerate() {
            assert_eq!(DemoRegion::from_name(region.name()), Some(region));
            assert_eq!(region.index(), index);
        }
        assert_eq!(DemoRegion::from_name("eu"), None);
    }
}
