//! Names as numbers, and fingerprints of reported entries.

use serde::{Deserialize, Serialize};
use spillway_types::{ModelName, NodeName, RegionName, ReplicaName};

/// A name of a model or replica on the wire: 32 bits of its hash.
///
/// A dictionary of names would need an agreement that can break. Two of a thousand names share an
/// id with a probability of 1 in 8,600; the second of them is then not reported, but counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NameId([u8; 4]);

impl NameId {
    /// Returns the id of a model.
    #[must_use]
    pub fn of_model(name: &ModelName) -> Self {
        Self::of(&["model", name.as_str()])
    }

    /// Returns the id of a replica.
    #[must_use]
    pub fn of_replica(name: &ReplicaName) -> Self {
        Self::of(&["replica", name.as_str()])
    }

    /// Returns the id of a region.
    #[must_use]
    pub fn of_region(name: &RegionName) -> Self {
        Self::of(&["region", name.as_str()])
    }

    /// Returns the id of a node in its region.
    pub(crate) fn of_node(region: &RegionName, node: &NodeName) -> Self {
        Self::of(&["node", region.as_str(), node.as_str()])
    }

    fn of(parts: &[&str]) -> Self {
        let mut hash = Fingerprint::new();
        for part in parts {
            // The length keeps `a`, `bc` apart from `ab`, `c`.
            hash.add(part.len() as u64);
            part.bytes().for_each(|byte| hash.add(byte.into()));
        }
        Self(fold(hash.finish()))
    }

    pub(crate) fn number(self) -> u64 {
        u32::from_le_bytes(self.0).into()
    }
}

/// A hash that is equal on every machine and in every release. It protects against mistakes; a
/// certificate protects against malice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn add(&mut self, number: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ number);
    }

    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

/// Spreads every bit over all others; each step can be undone, so that no information is lost.
fn mix(mut bits: u64) -> u64 {
    bits ^= bits >> 32;
    bits = bits.wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xa076_1d64_78bd_642f);
    bits ^ (bits >> 32)
}

/// Folds 64 bits into 32 for the wire.
pub(crate) fn fold(bits: u64) -> [u8; 4] {
    let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
    [a ^ e, b ^ f, c ^ g, d ^ h]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_those_of_earlier_programs() {
        // Nodes of different versions must agree; these figures may never change.
        assert_eq!(NameId::of_model(&"llama".into()).0, LLAMA);
        assert_eq!(NameId::of_replica(&"llama".into()).0, REPLICA_LLAMA);
    }

    const LLAMA: [u8; 4] = [56, 132, 201, 251];
    const REPLICA_LLAMA: [u8; 4] = [81, 40, 183, 35];

    #[test]
    fn a_name_means_another_thing_in_another_place() {
        let node = |region: &str, node: &str| NameId::of_node(&region.into(), &node.into());
        assert_ne!(node("a", "bc"), node("ab", "c"));
        assert_ne!(NameId::of_model(&"x".into()), NameId::of_replica(&"x".into()));
    }

    #[test]
    fn ids_collide_no_more_often_than_chance_has_it() {
        let ids: BTreeSet<NameId> =
            (0..20_000).map(|n| NameId::of_replica(&format!("gpu-{n}").into())).collect();
        // Of 20,000 in 2^32, 0.05 are expected to collide.
        assert!(ids.len() >= 19_998, "{}", ids.len());
    }

    #[test]
    fn the_order_of_numbers_matters() {
        let of = |numbers: &[u64]| {
            let mut hash = Fingerprint::new();
            numbers.iter().for_each(|number| hash.add(*number));
            hash.finish()
        };
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
    }
}
