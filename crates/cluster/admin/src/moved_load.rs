//! Estimate of the requests that move when a region or a replica is drained, and of where they go.
//!
//! Pure. It is no simulation of the router: it takes the present requests in flight as the load
//! that stays, and gives it to the nearest places with free slots.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Load that an order would move, by an estimate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MovedLoad {
    /// Requests per second that would be served elsewhere, by the last minute; null if unknown.
    pub(crate) requests_per_s: Option<f64>,
    /// Requests of that kind in flight now. They may finish where they are; as many later ones move.
    pub(crate) in_flight: f64,
    /// Regions, or replicas of the same region, that would serve them, the first choice first.
    pub(crate) to: Vec<LoadChange>,
    /// Requests in flight for which no slot is free there: they would wait or be refused.
    pub(crate) without_slot: f64,
}

/// Change of the load of a region or a replica.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct LoadChange {
    /// Name of the region or the replica.
    pub(crate) name: String,
    /// Requests in flight now.
    pub(crate) in_flight: f64,
    /// Requests in flight that would come.
    pub(crate) more: f64,
    /// Requests that it takes at once; null if unknown.
    pub(crate) slots: Option<f64>,
}

/// Place that can take load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) in_flight: f64,
    pub(crate) slots: Option<f64>,
    /// Distance in any unit. Places at one distance share by their free slots.
    pub(crate) distance: f64,
}

impl Target {
    /// Returns the free slots; without a known number, as many as are needed.
    fn free(&self, needed: f64) -> f64 {
        self.slots.map_or(needed, |slots| (slots - self.in_flight).max(0.0))
    }
}

/// Gives `in_flight` requests to the nearest targets with free slots.
pub(crate) fn spread(in_flight: f64, mut targets: Vec<Target>) -> MovedLoad {
    targets.sort_by(|one, other| {
        one.distance.total_cmp(&other.distance).then_with(|| one.name.cmp(&other.name))
    });
    let mut left = in_flight;
    let mut to = Vec::with_capacity(targets.len());
    for group in targets.chunk_by(|one, other| one.distance == other.distance) {
        let needed = left;
        let free: f64 = group.iter().map(|target| target.free(needed)).sum();
        let taken = needed.min(free);
        for target in group {
            let more = if free > 0.0 { taken * target.free(needed) / free } else { 0.0 };
            let Target { name, in_flight, slots, .. } = target.clone();
            to.push(LoadChange { name, in_flight, more: tenth(more), slots });
        }
        left -= taken;
    }
    MovedLoad { requests_per_s: None, in_flight: tenth(in_flight), to, without_slot: tenth(left) }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, distance: f64, in_flight: f64, slots: Option<f64>) -> Target {
        Target { name: name.to_owned(), in_flight, slots, distance }
    }

    fn more(moved: &MovedLoad) -> Vec<(&str, f64)> {
        moved.to.iter().map(|change| (change.name.as_str(), change.more)).collect()
    }

    #[test]
    fn the_nearest_region_takes_what_it_has_slots_for() {
        let far = target("ap", 200.0, 4.0, Some(8.0));
        let near = target("eu", 90.0, 10.0, Some(16.0));
        let moved = spread(8.0, vec![far, near]);
        assert_eq!(more(&moved), [("eu", 6.0), ("ap", 2.0)]);
        assert_eq!((moved.in_flight, moved.without_slot), (8.0, 0.0));
    }

    #[test]
    fn what_finds_no_slot_is_said() {
        let moved = spread(8.0, vec![target("eu", 90.0, 16.0, Some(16.0))]);
        assert_eq!((more(&moved), moved.without_slot), (vec![("eu", 0.0)], 8.0));
        assert_eq!(spread(3.0, Vec::new()).without_slot, 3.0);
        // More in flight than slots is no room below zero.
        let over = vec![target("a", 1.0, 20.0, Some(16.0)), target("b", 1.0, 0.0, Some(4.0))];
        assert_eq!(more(&spread(2.0, over)), [("a", 0.0), ("b", 2.0)]);
    }

    #[test]
    fn replicas_share_by_their_free_slots() {
        let replicas = vec![target("a", 0.0, 2.0, Some(8.0)), target("b", 0.0, 6.0, Some(8.0))];
        assert_eq!(more(&spread(4.0, replicas)), [("a", 3.0), ("b", 1.0)]);
    }

    #[test]
    fn without_a_known_number_of_slots_all_is_taken() {
        let moved = spread(5.0, vec![target("eu", 90.0, 1.0, None)]);
        assert_eq!((more(&moved), moved.without_slot), (vec![("eu", 5.0)], 0.0));
    }
}
