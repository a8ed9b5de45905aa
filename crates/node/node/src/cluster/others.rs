//! State of other regions, put together for routing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_config::RegionConfig;
use spillway_gossip::{Reach, RegionView, Speeds, SteeringGossip};
use spillway_link::PeerStatus;
use spillway_route::{TrafficHistory, ramp_permille};
use spillway_types::{ModelName, RegionName};
use spillway_view::{OtherModel, OtherRegion, RegionCounts, RegionTerms};

use crate::cluster::names::ClusterNames;
use crate::cluster::region_circuit_breakers::RegionCircuitBreakers;

/// Round-trip time of a region for which neither config nor link has one.
const RTT_UNKNOWN: Duration = Duration::from_millis(100);
/// Sources of a region's state besides its own reports.
pub(super) struct RegionSources<'a> {
    /// Terms that operators set.
    pub(super) regions: &'a [RegionConfig],
    /// Time in which a region that came back gets its full share.
    pub(super) ramp: Duration,
    /// State of the connections to peers.
    pub(super) link: &'a [PeerStatus],
    /// Speeds that the regions report.
    pub(super) speeds: &'a Speeds,
    /// Reports of regions on whether they take clients.
    pub(super) steering: &'a SteeringGossip,
}

/// Counts and history of this node's requests to other regions, by region and model.
#[derive(Debug, Default)]
pub(super) struct RegionTraffic(BTreeMap<(RegionName, ModelName), Tracked>);

#[derive(Debug, Default)]
struct Tracked {
    counts: Arc<RegionCounts>,
    history: TrafficHistory,
}

impl RegionTraffic {
    /// Notes the numbers of requests that were sent and have ended by now.
    pub(super) fn record(&mut self, now: Instant) {
        for tracked in self.0.values_mut() {
            let counts = &tracked.counts;
            tracked.history.record(now, counts.sent(), counts.ended());
        }
    }
}

/// Puts together the state of region `view` for routing.
pub(super) fn other_region(
    view: &RegionView,
    known: &RegionSources<'_>,
    (names, traffic, breakers): (&ClusterNames, &mut RegionTraffic, &mut RegionCircuitBreakers),
    now: Instant,
) -> OtherRegion {
    let said = known.regions.iter().find(|region| region.name == view.region);
    let terms = said.map_or_else(RegionTerms::default, |said| RegionTerms {
        price_ms: said.price_ms,
        weight_permille: said.weight_permille,
    });
    let (breaker, given_since) = breakers.look(&view.region, terms.weight_permille, now);
    let since = view.reachable_since.map(|since| given_since.map_or(since, |it| it.max(since)));
    let nodes = || known.link.iter().filter(|peer| *peer.identity.region() == view.region);
    // The nearest node counts; without a measurement, the config's round trip.
    let rtt = nodes().filter_map(PeerStatus::rtt).min();
    let rtt = rtt.or_else(|| said.and_then(|said| said.rtt)).unwrap_or(RTT_UNKNOWN);
    let one_way = rtt / 2;
    let mut age_ms = 0.0_f32;
    let mut models = BTreeMap::new();
    for (&id, report) in &view.models {
        // A model that is only configured there has no replica that takes requests.
        let Some(name) = names.get(id).filter(|_| !report.load.is_unserved()) else { continue };
        let age = Duration::from_millis(report.age_ms.into()) + one_way;
        age_ms = age_ms.max(age.as_secs_f32() * 1e3);
        let key = (view.region.clone(), name.clone());
        let tracked = traffic.0.entry(key).or_default();
        // The report does not know requests that arrived after it was made.
        let (sent, ended) = tracked.history.known_to_report(now, age, one_way);
        let counts = Arc::clone(&tracked.counts);
        let speed = known.speeds.speed(&view.region, id, now).unwrap_or_default();
        models.insert(name.clone(), OtherModel { load: report.load, speed, counts, sent, ended });
    }
    OtherRegion {
        name: view.region.clone(),
        is_heard: view.reach != Reach::Silent,
        steering: known.steering.region(&view.region, now).unwrap_or_default(),
        is_reachable: view.reach == Reach::Both && nodes().any(PeerStatus::is_connected),
        rtt_ms: rtt.as_secs_f32() * 1e3,
        terms,
        breaker,
        country: said.and_then(|said| said.country),
        ramp_permille: ramp_permille(since, known.ramp, now),
        age_ms,
        heard_ms: view.age_ms,
        models,
        whole: view.whole.map(|report| report.load),
    }
}

/// Returns the models that other regions serve, where their names are known.
pub(super) fn served(others: &[OtherRegion]) -> BTreeSet<ModelName> {
    others.iter().flat_map(|other| other.models.keys().cloned()).collect()
}
