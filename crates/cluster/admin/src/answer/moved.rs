//! Effects of a drain, for the answer to a dry run.

use spillway_cluster_state::{RegionState, ReplicaState};
use spillway_geo::Coordinates;
use spillway_geo::dns::rtt_by_distance_ms;

use super::cluster::Cluster;
use crate::all_nodes::{AllNodes, HistoryScope};
use crate::call::AdminCall;
use crate::endpoint::Operation;
use crate::moved_load::{MovedLoad, Target, spread};
use crate::overview::{RegionLocation, RegionOverview, ReplicaOverview};

/// Points of the history that make the rate: a minute.
const POINTS: usize = 12;

/// Estimates the requests that an order would move; `None` for orders that move nothing, and where
/// this node does not know the region or the replica.
pub(super) async fn moved(cluster: &Cluster<'_>, call: &AdminCall) -> Option<MovedLoad> {
    match (call.endpoint.operation, &*call.path) {
        (Operation::SetRegionState(state), [name]) if state != RegionState::Active => {
            let served = match cluster.all_nodes {
                Some(all) => served(all, name).await,
                None => None,
            };
            of_region(&cluster.overview?.regions(), name, state, served)
        }
        (Operation::SetReplicaState(ReplicaState::Draining), [region, name]) => {
            let fleet = cluster.all_nodes?.replicas().await.replicas;
            let replicas = fleet.iter().filter(|it| it.region == *region).map(|it| &it.replica);
            of_replica(&replicas.collect::<Vec<_>>(), name)
        }
        _ => None,
    }
}

/// Requests per second that a region serves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ServedPerS {
    all: f64,
    /// Requests among `all` that other regions forwarded there.
    received: f64,
}

/// Returns the requests that a region served per second in the last minute; `None` if its nodes
/// don't answer.
async fn served(all: &dyn AllNodes, region: &str) -> Option<ServedPerS> {
    let history = all.history(HistoryScope::Region(Some(region.to_owned()))).await;
    let last = &history.points[history.points.len().saturating_sub(POINTS)..];
    if last.is_empty() {
        return None;
    }
    let mean = |of: &dyn Fn(&crate::overview::HistoryPointOverview) -> f64| {
        last.iter().map(of).sum::<f64>() / last.len() as f64
    };
    let all = mean(&|it| it.requests_per_s - it.forwarded_per_s - it.refused_per_s);
    Some(ServedPerS { all: all.max(0.0), received: mean(&|it| it.received_per_s) })
}

fn of_region(
    regions: &[RegionOverview],
    name: &str,
    state: RegionState,
    served: Option<ServedPerS>,
) -> Option<MovedLoad> {
    let region = regions.iter().find(|it| it.region == name)?;
    let takes = |it: &&RegionOverview| {
        let is_up = it.is_own || (it.is_heard && it.is_reachable && !it.is_broken);
        let serves = it.models.iter().any(|model| region.models.contains(model));
        it.region != name && is_up && serves && it.weight_percent > 0.0
    };
    let target = |it: &RegionOverview| Target {
        name: it.region.clone(),
        in_flight: it.in_flight,
        slots: it.places,
        distance: distance(region, it),
    };
    let targets = regions.iter().filter(takes).map(target).collect();
    // A drained region goes on serving its own clients.
    let moved = match (state, served) {
        (RegionState::Evacuating, served) => (region.in_flight, served.map(|it| it.all)),
        (_, Some(ServedPerS { all, received })) if all > 0.0 => {
            (region.in_flight * (received / all).min(1.0), Some(received))
        }
        (_, served) => (0.0, served.map(|it| it.received)),
    };
    let (in_flight, requests_per_s) = moved;
    let requests_per_s = requests_per_s.map(|it| (it * 10.0).round() / 10.0);
    Some(MovedLoad { requests_per_s, ..spread(in_flight, targets) })
}

/// Returns the round trip between regions: as this node measures it, else by their places.
fn distance(from: &RegionOverview, to: &RegionOverview) -> f64 {
    let at = |place: Option<RegionLocation>| {
        place.and_then(|place| Coordinates::new(place.latitude, place.longitude))
    };
    match (at(from.place), at(to.place)) {
        _ if from.is_own => to.rtt_ms,
        _ if to.is_own => from.rtt_ms,
        (Some(from), Some(to)) => rtt_by_distance_ms(from, to),
        _ => to.rtt_ms,
    }
}

fn of_replica(replicas: &[&ReplicaOverview], name: &str) -> Option<MovedLoad> {
    let replica = replicas.iter().find(|it| it.name == name)?;
    let takes = |it: &&&ReplicaOverview| {
        let serves = it.models.iter().any(|model| replica.models.contains(model));
        it.name != name && serves && matches!(&*it.state, "serving" | "ramping")
    };
    let target = |it: &&ReplicaOverview| Target {
        name: it.name.clone(),
        in_flight: it.in_flight.into(),
        slots: it.places.map(f64::from),
        distance: 0.0,
    };
    let targets = replicas.iter().filter(takes).map(target).collect();
    Some(spread(replica.in_flight.into(), targets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, (latitude, longitude): (f64, f64), rtt_ms: f64) -> RegionOverview {
        RegionOverview {
            region: name.to_owned(),
            is_own: rtt_ms == 0.0,
            is_heard: true,
            is_reachable: true,
            place: Some(RegionLocation { latitude, longitude }),
            rtt_ms,
            in_flight: 6.0,
            places: Some(8.0),
            models: vec!["m".to_owned()],
            weight_percent: 100.0,
            ..RegionOverview::default()
        }
    }

    fn world() -> Vec<RegionOverview> {
        vec![
            region("us-east-1", (38.9, -77.4), 0.0),
            region("eu-central-1", (50.1, 8.7), 90.0),
            region("ap-northeast-1", (35.6, 139.7), 160.0),
        ]
    }

    fn to(moved: Option<MovedLoad>) -> Vec<(String, f64)> {
        moved.unwrap().to.into_iter().map(|it| (it.name, it.more)).collect()
    }

    const SERVED: Option<ServedPerS> = Some(ServedPerS { all: 12.0, received: 4.0 });

    #[test]
    fn an_evacuated_region_is_served_by_the_nearest_others() {
        let of = |region| of_region(&world(), region, RegionState::Evacuating, SERVED);
        let moved = of("us-east-1").unwrap();
        assert_eq!((moved.requests_per_s, moved.in_flight), (Some(12.0), 6.0));
        assert_eq!(moved.without_slot, 2.0);
        let [first, second] = &*moved.to else { panic!("{moved:?}") };
        assert_eq!(
            (&*first.name, first.more, &*second.name),
            ("eu-central-1", 2.0, "ap-northeast-1")
        );
        // Tokyo is farther from Frankfurt than Virginia is, whichever node is asked.
        let names = to(of("eu-central-1")).into_iter().map(|it| it.0);
        assert_eq!(names.collect::<Vec<_>>(), ["us-east-1", "ap-northeast-1"]);
        assert_eq!(of("mars"), None);
    }

    #[test]
    fn a_drained_region_keeps_its_own_clients() {
        let moved = of_region(&world(), "us-east-1", RegionState::Draining, SERVED).unwrap();
        assert_eq!((moved.requests_per_s, moved.in_flight), (Some(4.0), 2.0));
        let moved = of_region(&world(), "us-east-1", RegionState::Draining, None).unwrap();
        assert_eq!((moved.requests_per_s, moved.in_flight), (None, 0.0));
    }

    #[test]
    fn regions_that_are_lost_or_serve_other_models_take_nothing() {
        let mut regions = world();
        regions[1].is_heard = false;
        regions[2].models = vec!["other".to_owned()];
        let moved = of_region(&regions, "us-east-1", RegionState::Evacuating, SERVED).unwrap();
        assert_eq!((moved.to.len(), moved.without_slot), (0, 6.0));
    }

    #[test]
    fn the_requests_of_a_replica_go_to_others_that_serve_its_models() {
        let replica = |name: &str, model: &str, state: &str| ReplicaOverview {
            name: name.to_owned(),
            models: vec![model.to_owned()],
            state: state.to_owned(),
            in_flight: 3,
            places: Some(8),
            ..ReplicaOverview::default()
        };
        let all = [
            replica("a", "m", "serving"),
            replica("b", "m", "serving"),
            replica("c", "m", "down"),
            replica("d", "other", "serving"),
        ];
        let all: Vec<&ReplicaOverview> = all.iter().collect();
        assert_eq!(to(of_replica(&all, "a")), [("b".to_owned(), 3.0)]);
        assert_eq!(of_replica(&all, "z"), None);
    }
}
