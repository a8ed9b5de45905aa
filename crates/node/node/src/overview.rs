//! Overview of this node, other nodes and regions, for operators.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use futures_util::{StreamExt, stream};
use spillway_admin::{
    LackingReplica, ListenerOverview, Listing, Looking, NodeOverview, NodePhase, Overview,
    PeerOverview, RegionLocation, RegionOverview, ReplicaOverview, ReplicaTally,
    RequestHistoryOverview, RouteOverview, Summing,
};
use spillway_config::RegionConfig;
use spillway_front::client::Listener;
use spillway_geo::{Coordinates, town_of};
use spillway_health::{MemberReport, MemberState};
use spillway_link::{Link, PeerStatus};
use spillway_types::{ModelLoad, Reading, RegionName, ReplicaName, ReplicaSlot, unix_ms};
use spillway_usage::UsageQuery;
use spillway_view::{OtherRegion, Regions, Replica, RouteSpec};

use crate::all_nodes::LastAnswers;
use crate::certificates::Certificates;
use crate::cluster::{NodeAnswer, ask_node};
use crate::local_node::LocalNode;
use crate::room::Room;
use crate::usage_of_nodes;

/// State of a replica that is up and has none of its models.
const WRONG_MODEL: &str = "wrong model";

/// Nodes that are asked for their facts at the same time.
const ASKED_MAX: usize = 16;
/// Time for asking all of them. Nodes that were not asked by then have no facts in the answer.
const ASKING_LIMIT: Duration = Duration::from_secs(2);

/// Source of overviews for the admin API.
#[derive(Debug)]
pub(crate) struct OverviewSource {
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) listeners: Vec<(SocketAddr, Arc<Listener>)>,
    pub(crate) local: LocalNode,
    pub(crate) certificates: Arc<Certificates>,
    /// The link to other nodes, if there is one and it is open.
    pub(crate) link: Weak<Link>,
    /// Coordinates of regions, by the config.
    pub(crate) places: Arc<RegionCoordinates>,
    /// Room in the data folder.
    pub(crate) room: Arc<Room>,
    /// Answers of all nodes that were given last.
    pub(crate) last: LastAnswers,
}

/// Coordinates of regions, by the config.
#[derive(Debug, Default)]
pub(crate) struct RegionCoordinates(BTreeMap<RegionName, Coordinates>);

impl RegionCoordinates {
    /// Takes the places from the config's regions.
    pub(crate) fn of_config(regions: &[RegionConfig]) -> Self {
        let place = |region: &RegionConfig| Some((region.name.clone(), region.coordinates?));
        Self(regions.iter().filter_map(place).collect())
    }

    /// Returns the place of a region. One that the config does not mention may still have the name
    /// of a cloud's region.
    fn find(&self, region: &str) -> Option<RegionLocation> {
        let known = self.0.get(&RegionName::from(region)).copied();
        let Coordinates { latitude, longitude } = known.or_else(|| town_of(region))?;
        Some(RegionLocation { latitude, longitude })
    }
}

impl Overview for OverviewSource {
    fn node(&self) -> Looking<'_> {
        Box::pin(async {
            let LocalNode { gateway, outcomes, keeper, .. } = &self.local;
            let health = &outcomes.health;
            let regions = gateway.routing.regions();
            let link = self.link.upgrade();
            let started_ms = self.local.started_ms();
            let first = self.certificates.first(link.as_deref());
            let silent = regions.others.iter().filter(|other| !other.is_heard);
            NodeOverview {
                name: self.local.name.clone(),
                region: gateway.routing.own_region.clone(),
                version: self.local.version.clone(),
                started_ms,
                uptime_s: unix_ms(SystemTime::now()).saturating_sub(started_ms) / 1_000,
                config_file: self.config_file.as_ref().map(|path| path.display().to_string()),
                listeners: self.listeners.iter().map(listener).collect(),
                phase: match () {
                    () if gateway.switches.is_leaving() => NodePhase::Leaving,
                    () if !gateway.clients.quotas.is_ready() => NodePhase::AwaitingLimits,
                    () => NodePhase::Serving,
                },
                replicas: self.tally(&keeper.members().await),
                discoveries: keeper.figures.discoveries(),
                is_in_cluster: link.is_some(),
                silent_regions: silent.map(|other| other.name.to_string()).collect(),
                is_served_elsewhere: regions.has_usable(),
                data: self.room.look().await,
                first_certificate: first,
                request_troubles: health.request_troubles(),
                busiest_client: health.busiest_client(),
                limited_clients: health.limited_clients(),
                refused_config: health.refused_config(),
                usage_fault: outcomes.usage.fault(),
                peers: match link {
                    Some(link) => peers(&link).await,
                    None => Vec::new(),
                },
            }
        })
    }

    fn regions(&self) -> Vec<RegionOverview> {
        let regions = self.local.gateway.routing.regions();
        let others = regions.others.iter().map(|other| other_region(other, &regions));
        let mut all: Vec<_> = std::iter::once(self.own_region(&regions)).chain(others).collect();
        for region in &mut all {
            region.place = self.places.find(&region.region);
        }
        all
    }

    fn history(&self) -> RequestHistoryOverview {
        let history = self.local.outcomes.health.history();
        RequestHistoryOverview { nodes: vec![self.local.asked()], ..history }
    }

    fn routes(&self) -> Vec<RouteOverview> {
        self.local
            .gateway
            .routing
            .view()
            .routes()
            .map(|route| route_overview(&route.spec))
            .collect()
    }

    fn replicas(&self) -> Listing<'_> {
        Box::pin(replica_overviews(&self.local))
    }

    fn usage(&self, query: UsageQuery) -> Summing<'_> {
        Box::pin(async move {
            let (link, me) = (self.link.upgrade(), self.local.asked());
            let outcomes = &self.local.outcomes;
            usage_of_nodes::of_cluster(outcomes, link.as_deref(), me, &query).await
        })
    }
}

/// Returns the replicas of this node.
pub(crate) async fn replica_overviews(local: &LocalNode) -> Vec<ReplicaOverview> {
    let members = local.keeper.members().await;
    let view = local.gateway.routing.view();
    let loads = view.replica_loads();
    let of_view: BTreeMap<&str, (&Replica, Reading)> = view
        .replicas()
        .iter()
        .zip(0..)
        .map(|(replica, index)| {
            let kv_use = loads.signals(ReplicaSlot(index)).kv_use;
            (replica.spec().name.as_str(), (&**replica, kv_use))
        })
        .collect();
    let (health, now) = (&local.outcomes.health, Instant::now());
    let row = |member: &MemberReport| {
        let ejections = health.recent_ejections(&member.name, now);
        ReplicaOverview {
            ejections: ejections.number,
            flaps: ejections.flaps,
            is_ejected_briefly: ejections.is_brief,
            ..replica_row(member, of_view.get(member.name.as_str()).copied())
        }
    };
    members.iter().map(row).collect()
}

fn route_overview(route: &RouteSpec) -> RouteOverview {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    RouteOverview {
        name: route.name.to_string(),
        path_prefix: route.path_prefix.clone(),
        models: route.models.iter().map(ToString::to_string).collect(),
        pool: route.pool.clone(),
        policy: route.policy.name().to_owned(),
        continues_streams: route.continuation.is_some(),
        hedges: route.hedge.is_some(),
        keeps_sessions: route.session.is_some(),
        slo_ms: route.queue.slo.map(millis),
        wait_ms: route.queue.limits.wait_ms_max,
        overflows: route.overflow,
    }
}

impl OverviewSource {
    fn tally(&self, members: &[MemberReport]) -> ReplicaTally {
        let (health, now) = (&self.local.outcomes.health, Instant::now());
        tally(members, |replica| health.recent_ejections(replica, now).is_brief)
    }

    fn own_region(&self, regions: &Regions) -> RegionOverview {
        let gateway = &self.local.gateway;
        let view = gateway.routing.view();
        // An overflow replica does not count among the region's replicas.
        let replicas = || (0..).zip(view.replicas()).filter(|(_, replica)| !replica.is_overflow());
        let up = replicas().filter(|(index, _)| {
            view.standing(ReplicaSlot(*index)).admission == spillway_types::Admission::Open
        });
        // Same figure as other regions receive. A node without other nodes measures none.
        let places = match &regions.own_whole {
            Some(whole) => places_of(whole),
            None => known_total(replicas().map(|(_, replica)| places(replica))),
        };
        let in_flight = replicas()
            .map(|(_, replica)| f64::from(replica.in_flight().saturating_add(replica.elsewhere())));
        // With other nodes in the region, gossip reports the waiting requests of all of them.
        let told = total(regions.own.values().map(|model| model.load.queued.into()));
        let here = gateway.routing.waiting.count() as f64;
        RegionOverview {
            region: gateway.routing.own_region.clone(),
            is_own: true,
            is_heard: true,
            is_reachable: true,
            replicas_up: u32::try_from(up.count()).ok(),
            in_flight: total(in_flight),
            places,
            waiting: told.max(here),
            models: view.models().iter().map(ToString::to_string).collect(),
            spilling: gateway.counters.guests().into(),
            weight_percent: f64::from(regions.own_terms.weight_permille) / 10.0,
            price_ms: regions.own_terms.price_ms.into(),
            ..RegionOverview::default()
        }
    }
}

/// Returns the number of requests that a region takes at once; `None` if that is unknown, or if no
/// replica takes any.
fn places_of(whole: &ModelLoad) -> Option<f64> {
    whole.capacity.filter(|_| whole.replicas > 0).map(f64::from)
}

/// Returns the number of requests that a replica takes at once; `None` if nothing bounds it.
fn places(replica: &Replica) -> Option<f64> {
    replica.capacity().map(f64::from)
}

fn replica_row(member: &MemberReport, found: Option<(&Replica, Reading)>) -> ReplicaOverview {
    let kv_use = found.map(|(_, kv_use)| kv_use).filter(|kv_use| kv_use.is_known());
    ReplicaOverview {
        name: member.name.to_string(),
        url: member.url.clone(),
        models: member.models.iter().map(ToString::to_string).collect(),
        models_missing: member.models_denied.iter().map(ToString::to_string).collect(),
        state: state(member),
        reason: member.reason.clone(),
        kind: member.kind.map(str::to_owned),
        // As of now; the member's own number is of the last tick.
        in_flight: found.map_or(member.in_flight, |(replica, _)| replica.in_flight()),
        places: found.and_then(|(replica, _)| replica.capacity()),
        queued: member.queued,
        kv_use: kv_use.map(|kv_use| kv_use.value),
        cached_share: member.cached_share,
        latency_ms: member.latency_ms,
        p99_ms: member.p99_ms,
        slower_than_ms: member.slower_than_ms,
        report_age_ms: member.report_age_ms,
        // The caller adds what is counted beside the replica's state.
        ..ReplicaOverview::default()
    }
}

fn other_region(other: &OtherRegion, regions: &Regions) -> RegionOverview {
    let models = || other.models.values();
    // Nodes of an older release report models alone, of which several may have the same replicas.
    let whole = other.whole.unwrap_or_else(|| ModelLoad {
        replicas: models().map(|model| model.load.replicas).max().unwrap_or(0),
        running: models().map(|model| model.load.running).sum(),
        capacity: models().map(|model| model.load.capacity).sum(),
        ..ModelLoad::default()
    });
    let counts = |of: &dyn Fn(&spillway_view::RegionCounts) -> u64| {
        models().map(|model| of(&model.counts)).sum::<u64>()
    };
    let passed_ms = u64::try_from(regions.at.elapsed().as_millis()).unwrap_or(u64::MAX);
    RegionOverview {
        region: other.name.to_string(),
        is_own: false,
        is_heard: other.is_heard,
        is_reachable: other.is_reachable,
        place: None,
        heard_ms: other.heard_ms.map(|age_ms| u64::from(age_ms).saturating_add(passed_ms)),
        rtt_ms: tenths(other.rtt_ms.into()),
        replicas_up: Some(whole.replicas).filter(|up| *up > 0),
        in_flight: tenths(whole.running.into()),
        places: places_of(&whole),
        waiting: total(models().map(|model| model.load.queued.into())),
        models: other.models.keys().map(ToString::to_string).collect(),
        spilling: counts(&|counts| counts.in_flight().into()),
        sent: Some(counts(&|counts| counts.sent())),
        refused: Some(counts(&|counts| counts.refused())),
        broken: Some(counts(&|counts| counts.broken())),
        is_broken: !other.breaker.is_open(),
        weight_percent: f64::from(other.terms.weight_permille) / 10.0,
        price_ms: other.terms.price_ms.into(),
    }
}

fn listener((address, listener): &(SocketAddr, Arc<Listener>)) -> ListenerOverview {
    ListenerOverview {
        address: address.to_string(),
        auth: listener.access.mode().as_str().to_owned(),
        is_tls: listener.has_tls(),
    }
}

/// Counts replicas by what they do for clients. `is_brief` returns whether a replica was ejected a
/// moment ago.
fn tally(members: &[MemberReport], is_brief: impl Fn(&ReplicaName) -> bool) -> ReplicaTally {
    let mut tally = ReplicaTally::default();
    for member in members {
        tally.known += 1;
        match member.state {
            _ if serves_nothing(member) => tally.lacking.push(lacking(member)),
            // A replica in reserve is brought in when it is needed, and one that asked for a pause
            // is back in a moment.
            MemberState::Serving | MemberState::Standby | MemberState::Busy => tally.up += 1,
            MemberState::Ramping => tally.ramping += 1,
            MemberState::Trial | MemberState::Ejected => {
                tally.on_trial += u32::from(member.state == MemberState::Trial);
                if is_brief(&member.name) {
                    tally.ejected += 1;
                } else {
                    tally.lacking.push(lacking(member));
                }
            }
            MemberState::Draining | MemberState::Drained => tally.draining += 1,
            MemberState::Starting | MemberState::WarmingUp | MemberState::Down => {
                tally.lacking.push(lacking(member));
            }
        }
    }
    tally
}

fn lacking(member: &MemberReport) -> LackingReplica {
    LackingReplica {
        name: member.name.to_string(),
        state: state(member),
        reason: member.reason.clone(),
    }
}

/// Returns the state of a replica for operators.
fn state(member: &MemberReport) -> String {
    if lacks_models(member) {
        WRONG_MODEL.to_owned()
    } else if shows_no_models(member) {
        "without models".to_owned()
    } else {
        member.state.as_str().replace('_', " ")
    }
}

/// Returns true if a replica that is up serves none of the models that it should serve.
fn serves_nothing(member: &MemberReport) -> bool {
    lacks_models(member) || shows_no_models(member)
}

fn lacks_models(member: &MemberReport) -> bool {
    let is_denied = member.models_denied.len() == member.models.len();
    is_up(member) && !member.models.is_empty() && is_denied
}

/// Returns true if the models of a replica are to be discovered, and it refuses to show them.
fn shows_no_models(member: &MemberReport) -> bool {
    is_up(member) && member.models.is_empty() && member.models_status.is_some()
}

fn is_up(member: &MemberReport) -> bool {
    matches!(
        member.state,
        MemberState::Serving | MemberState::Ramping | MemberState::Trial | MemberState::Standby
    )
}

/// Returns every peer, with what it says of itself.
async fn peers(link: &Arc<Link>) -> Vec<PeerOverview> {
    let mut peers: Vec<PeerOverview> = link.peers().iter().map(peer).collect();
    let asked: Vec<(usize, _)> = link
        .peers()
        .into_iter()
        .enumerate()
        .filter(|(_, peer)| peer.is_connected())
        .map(|(at, peer)| (at, peer.identity.node().clone()))
        .collect();
    let asking = stream::iter(asked)
        .map(|(at, name)| async move { (at, ask_node(link, &name).await) })
        .buffer_unordered(ASKED_MAX);
    let noting = asking.for_each(|(at, answer)| {
        if let (Some(peer), Some(NodeAnswer { facts, clock_ahead_ms })) =
            (peers.get_mut(at), answer)
        {
            peer.clock_ahead_ms = clock_ahead_ms;
            peer.version = Some(facts.version);
            peer.applied_index = facts.applied_index;
            peer.problems = facts.problems;
            peer.fault = facts.log_fault.or_else(|| peer.fault.take());
        }
        std::future::ready(())
    });
    // Late nodes stay without facts.
    drop(tokio::time::timeout(ASKING_LIMIT, noting).await);
    peers
}

fn peer(status: &PeerStatus) -> PeerOverview {
    let is_heard = status.control.is_some();
    let silent_ms = status.control_lost_for.map(|lost_for| lost_for.as_millis());
    // The data connection of a node that is gone keeps its last round trip for a while.
    let rtt = status.rtt().filter(|_| is_heard);
    let rtt_ms = rtt.map(|rtt| tenths(rtt.as_secs_f64() * 1e3));
    PeerOverview {
        name: status.identity.node().to_string(),
        region: status.identity.region().to_string(),
        address: status.address.clone(),
        is_heard,
        silent_ms: silent_ms.and_then(|ms| u64::try_from(ms).ok()),
        fault: status.control_dials.last_fault.clone().filter(|_| !is_heard),
        rtt_ms,
        version: None,
        applied_index: None,
        clock_ahead_ms: None,
        problems: Vec::new(),
    }
}

/// Returns the sum. The standard one of nothing is -0.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// Returns the sum; `None` if any value is unknown.
fn known_total(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.try_fold(0.0, |sum, value| Some(sum + value?))
}

/// Rounds to tenths: measurements are no finer.
fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
