//! The one task that drives gossip: datagrams and time go in, the state of regions comes out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use spillway_config::{RegionConfig, SpillConfig};
use spillway_dns::NameServerState;
use spillway_gossip::{
    Content, GossipConfig, GossipCounters, GossipEvent, GossipMachine, GossipMember, NameId,
    PeerView, Reach, RegionView, ReportedModels, RevocationGossip, Speeds, StartUp, SteeringGossip,
    steering_of_region,
};
use spillway_health::RegionLoad;
use spillway_knowledge::KnowledgeHandle;
use spillway_link::{DatagramError, Identity, Link, PeerStatus};
use spillway_request::gateway::{RoutingState, Switches};
use spillway_types::{ModelName, NodeName, RegionName, Steering, unix_ms};
use spillway_view::{RegionTerms, Regions};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::agreed::{ClusterMember, RegionFacts};
use crate::cluster::names::{ClusterNames, ask};
use crate::cluster::others::{RegionSources, RegionTraffic, other_region, served};
use crate::cluster::own::Own;
use crate::cluster::region_circuit_breakers::RegionCircuitBreakers;
use crate::cluster::siblings;
use crate::data_path::DataPath;
use crate::keeper::OtherRegionModels;

/// Period of measuring the own load: gossip is no fresher than this.
const TICK: Duration = Duration::from_millis(50);
/// Period of counting the own requests, and of reading the reports of the region's other nodes
/// about theirs. Nodes that see each other's requests later send theirs to the same free replica.
const COUNT: Duration = Duration::from_millis(10);
/// Period of sending this region's speeds to others. The speeds take a dozen replies to change.
const SPEEDS_PERIOD: Duration = Duration::from_secs(2);
/// Maximum number of lists of models that wait to be read.
const LISTS_MAX: usize = 64;
/// Wait of a driver whose gossip has nothing due, because the node is alone.
const IDLE: Duration = Duration::from_secs(3600);

/// Counters of gossip, shared with metrics.
pub(super) type Gossip = ArcSwap<GossipCounters>;

/// Task that drives gossip and publishes the state of regions.
#[derive(Debug)]
pub(super) struct Driver {
    machine: GossipMachine,
    /// Speeds of regions.
    speeds: Speeds,
    /// Time at which this region's speeds were last sent to the others.
    told_speeds: Option<Instant>,
    /// State of regions and sibling nodes: whether they take clients.
    steering: SteeringGossip,
    revocations: RevocationGossip,
    /// Members that gossip is with, by name.
    members: Vec<GossipMember>,
    /// True if other nodes of the own region are among them.
    has_siblings: bool,
    load: RegionLoad,
    traffic: RegionTraffic,
    breakers: RegionCircuitBreakers,
    names: ClusterNames,
    /// Models that other regions have reported.
    remembered: ReportedModels,
    /// Models of other regions that the keeper received last.
    elsewhere: OtherRegionModels,
    start_up: StartUp,
    lists: (mpsc::Sender<Vec<ModelName>>, mpsc::Receiver<Vec<ModelName>>),
    datagrams: mpsc::Receiver<(Identity, Bytes)>,
    gossip: Arc<Gossip>,
    /// Terms on which requests are sent to other regions.
    spill: SpillConfig,
    /// The name server, if there is one. It receives the state of regions.
    dns: Option<Arc<NameServerState>>,
    me: GossipMember,
    member: ClusterMember,
    link: Arc<Link>,
    routing: Arc<RoutingState>,
    switches: Arc<Switches>,
    knowledge: Arc<KnowledgeHandle>,
}

impl Driver {
    /// Creates a driver, which takes in `datagrams` from the link's other nodes.
    pub(super) fn new(
        member: &ClusterMember,
        data_path: &DataPath,
        spill: SpillConfig,
        link: &Arc<Link>,
        datagrams: mpsc::Receiver<(Identity, Bytes)>,
    ) -> Self {
        let now = Instant::now();
        // Larger than at any start of this node before; only ever compared with this node's own.
        let incarnation = unix_ms(SystemTime::now());
        let silence_ms = u32::try_from(member.config.silence.as_millis()).unwrap_or(u32::MAX);
        let config = GossipConfig::for_silence(silence_ms);
        let routing = Arc::clone(&data_path.gateway.routing);
        let dice = fastrand::Rng::with_seed(routing.seed ^ incarnation);
        let dice_of_breakers = fastrand::Rng::with_seed(routing.seed);
        let me = GossipMember::new(member.name.as_str(), member.region.as_str());
        Self {
            machine: GossipMachine::new(me.clone(), incarnation, config, dice, now),
            speeds: Speeds::new(incarnation),
            told_speeds: None,
            steering: SteeringGossip::new(me.region.clone(), incarnation),
            revocations: RevocationGossip::default(),
            members: Vec::new(),
            has_siblings: false,
            load: RegionLoad::default(),
            traffic: RegionTraffic::default(),
            breakers: RegionCircuitBreakers::new(dice_of_breakers),
            names: ClusterNames::default(),
            remembered: ReportedModels::default(),
            elsewhere: OtherRegionModels::default(),
            start_up: StartUp::new(now, member.config.data.is_some()),
            lists: mpsc::channel(LISTS_MAX),
            datagrams,
            gossip: Arc::default(),
            spill,
            dns: None,
            me,
            member: member.clone(),
            link: Arc::clone(link),
            routing,
            switches: Arc::clone(&data_path.gateway.switches),
            knowledge: Arc::clone(&data_path.knowledge),
        }
    }

    /// Publishes the state of regions to this name server, too.
    pub(super) fn publishing_to(self, dns: Option<Arc<NameServerState>>) -> Self {
        Self { dns, ..self }
    }

    /// Returns the counters of gossip.
    pub(super) fn gossip(&self) -> &Arc<Gossip> {
        &self.gossip
    }

    /// Publishes a first state. Call it before the first request: until others have reported, this
    /// node has no places to give.
    pub(super) fn begin(&mut self) {
        self.look();
    }

    /// Runs until told to stop.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(TICK);
        let mut counts = interval(COUNT);
        for interval in [&mut ticks, &mut counts] {
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            let due = self.machine.poll_timeout().unwrap_or_else(|| Instant::now() + IDLE);
            tokio::select! {
                _ = ticks.tick() => self.look(),
                _ = counts.tick(), if self.has_siblings => {
                    siblings::count(&mut self.machine, &self.routing.view());
                }
                () = sleep_until(due.into()) => self.machine.handle_timeout(Instant::now()),
                Some((from, datagram)) = self.datagrams.recv() => self.hear(&from, &datagram),
                Some(list) = self.lists.1.recv() => self.names.learn(&list),
                () = stop.cancelled() => return,
            }
            self.settle().await;
        }
    }

    fn hear(&mut self, from: &Identity, datagram: &[u8]) {
        let now = Instant::now();
        let taken = match Content::of(datagram) {
            Some(Content::Speeds) => {
                self.speeds.handle_datagram(now, from.node(), from.region(), datagram)
            }
            Some(Content::Steering) => {
                self.steering.handle_datagram(now, from.node(), from.region(), datagram)
            }
            Some(Content::Revocations) => {
                RevocationGossip::read(datagram).map(|list| self.hear_revoked(from, &list))
            }
            _ => self.machine.handle_datagram(now, from.node(), from.region(), datagram),
        };
        if let Err(refusal) = taken {
            tracing::debug!(from = %from.node(), %refusal, "a datagram was refused");
        }
    }

    fn hear_revoked(&self, from: &Identity, list: &[u8]) {
        if let Err(fault) = self.link.hear_revoked(from.node(), list) {
            tracing::debug!(from = %from.node(), %fault, "a revocation list was refused");
        }
    }

    /// Sends waiting datagrams, logs events and publishes changes.
    async fn settle(&mut self) {
        while let Some((to, datagram)) = self.machine.poll_transmit() {
            // A peer without a connection receives the news when it has one.
            let _: Result<(), DatagramError> = self.link.send_datagram(&to, datagram);
        }
        let mut has_news = false;
        while let Some(event) = self.machine.poll_event() {
            has_news = true;
            tell(&event);
        }
        if has_news {
            self.publish(Instant::now());
        }
        let served = served(&self.routing.regions().others);
        let elsewhere = OtherRegionModels { served, known: self.remembered.models() };
        // The keeper builds a view for each message, so it receives only changes.
        if elsewhere != self.elsewhere {
            self.elsewhere.clone_from(&elsewhere);
            self.member.keeper.set_elsewhere(elsewhere).await;
        }
    }

    /// Gives gossip the members that the link knows now: nodes join and leave while this one runs.
    fn follow_members(&mut self, now: Instant) {
        let peers = self.link.peers();
        let member = |peer: &PeerStatus| GossipMember {
            node: peer.identity.node().clone(),
            region: peer.identity.region().clone(),
        };
        let members: Vec<GossipMember> = peers.iter().map(member).collect();
        if members != self.members {
            self.machine.set_members(&members, now);
            let is_member = |node: &NodeName| members.iter().any(|member| member.node == *node);
            self.speeds.keep(is_member, now);
            self.steering.keep(is_member);
            let region = &self.me.region;
            self.has_siblings = members.iter().any(|member| member.region == *region);
            self.members = members;
        }
    }

    /// Measures the own load, sends it, and publishes the state of regions.
    fn look(&mut self) {
        let now = Instant::now();
        self.follow_members(now);
        self.traffic.record(now);
        self.gossip.store(Arc::new(self.machine.counters()));
        self.publish(now);
        self.tell_speeds(now);
        self.tell_steering(now);
        self.tell_revocations(now);
        self.machine.handle_timeout(now);
    }

    /// Tells all nodes of other regions the speeds of this region, if this node speaks for it.
    fn tell_speeds(&mut self, now: Instant) {
        let is_speaker = *self.machine.speaker() == self.me.node;
        self.knowledge.set_speaker(is_speaker);
        let is_due = self.told_speeds.is_none_or(|told| now >= told + SPEEDS_PERIOD);
        if !is_speaker || !is_due {
            return;
        }
        self.told_speeds = Some(now);
        let datagrams = self.speeds.tell(&self.knowledge.published().models);
        let others = self.members.iter().filter(|member| member.region != self.me.region);
        for member in others {
            for datagram in &datagrams {
                let _: Result<(), DatagramError> =
                    self.link.send_datagram(&member.node, datagram.clone());
            }
        }
    }

    /// Reports to the region's nodes whether this node takes clients. If this node speaks for the
    /// region, it also reports to all nodes of other regions whether the region does.
    fn tell_steering(&mut self, now: Instant) {
        let own = self.switches.steering();
        let region = self.own_steering(now);
        let inside = self.steering.report_inside(own, now);
        let is_speaker = *self.machine.speaker() == self.me.node;
        let outside = is_speaker.then(|| self.steering.report_outside(region, now)).flatten();
        for member in &self.members {
            let is_sibling = member.region == self.me.region;
            let Some(datagram) = (if is_sibling { &inside } else { &outside }) else { continue };
            let _: Result<(), DatagramError> =
                self.link.send_datagram(&member.node, datagram.clone());
        }
    }

    /// Tells all nodes which certificates the CA has revoked, until the cluster has recorded it.
    fn tell_revocations(&mut self, now: Instant) {
        let Some(datagram) = self.revocations.tell(&self.link.revocation_lists(), now) else {
            return;
        };
        for member in &self.members {
            let _: Result<(), DatagramError> =
                self.link.send_datagram(&member.node, datagram.clone());
        }
    }

    /// Returns whether the own region takes clients. A live node that has not reported counts as
    /// taking them.
    fn own_steering(&self, now: Instant) -> Steering {
        let peers = self.machine.peers(now);
        let live = peers.iter().filter(|peer| peer.live);
        let of = |peer: &PeerView| self.steering.sibling(&peer.node, now).unwrap_or_default();
        steering_of_region(std::iter::once(self.switches.steering()).chain(live.map(of)))
    }

    fn publish(&mut self, now: Instant) {
        let routing = Arc::clone(&self.routing);
        let view = routing.view();
        let peers = self.machine.peers(now);
        let speeds = self.knowledge.published();
        let own =
            Own::look(&mut self.load, (&routing, &view, &speeds), (&self.machine, &peers), now);
        let is_leaving = self.switches.is_leaving();
        self.machine.set_load(now, &own.to_tell(&routing, &view, is_leaving));
        siblings::share(&self.machine, &peers, &view);
        let regions = self.machine.regions(now);
        let link = self.link.peers();
        // Regions mostly serve the same models, so few names have to be asked for.
        self.names.learn(own.models.keys());
        self.ask_names(&regions, now);
        let region_facts = self.member.region_facts.load();
        let known = RegionSources {
            regions: &region_facts.regions,
            ramp: self.member.config.ramp,
            link: &link,
            speeds: &self.speeds,
            steering: &self.steering,
        };
        let others = regions.iter().map(|view| {
            let tracked = (&self.names, &mut self.traffic, &mut self.breakers);
            other_region(view, &known, tracked, now)
        });
        let others = others.collect();
        self.remember(&regions, now);
        if region_facts.is_agreed {
            self.start_up.agreed(now);
        }
        self.breakers.keep(|name| regions.iter().any(|region| region.region == *name));
        let has_heard_all =
            self.has_heard_all(&region_facts, &regions) && self.has_published_models();
        let own_region = &self.machine.me().region;
        let said = region_facts.regions.iter().find(|region| region.name == *own_region);
        routing.replace_regions(Regions {
            terms: self.spill.terms,
            asked_max: self.spill.asked_max,
            own: own.models,
            own_whole: Some(own.whole),
            own_terms: said.map_or_else(RegionTerms::default, |said| RegionTerms {
                price_ms: said.price_ms,
                weight_permille: said.weight_permille,
            }),
            own_country: region_facts.own_country(own_region, routing.own_country),
            knows_models: self.start_up.knows_models(has_heard_all, now),
            knows_countries: self.start_up.knows_countries(knows_countries(&region_facts), now),
            is_evacuated: region_facts.is_evacuated,
            own_steering: self.own_steering(now),
            others,
            at: now,
        });
        // Another region may have got room, or become allowed.
        routing.waiting.review();
        self.publish_to_clients(&link);
    }

    /// Tells the name server the state of regions.
    fn publish_to_clients(&self, link: &[PeerStatus]) {
        let Some(dns) = &self.dns else { return };
        let rtt_ms = |region: &RegionName| {
            let nodes = link.iter().filter(|peer| peer.identity.region() == region);
            nodes.filter_map(PeerStatus::rtt).min().map(|rtt| rtt.as_secs_f32() * 1e3)
        };
        dns.publish(&self.routing.regions(), &self.me.region, rtt_ms);
    }

    /// Notes the models that the other regions have.
    fn remember(&mut self, regions: &[RegionView], now: Instant) {
        for region in regions {
            let told = region.models.keys().filter_map(|id| self.names.get(*id));
            let reports = self.is_heard(region);
            self.remembered.note(&region.region, told, reports, now);
        }
        self.remembered.keep(|name| regions.iter().any(|region| region.region == *name));
    }

    /// Returns true if all models of a region are known now.
    fn is_heard(&self, region: &RegionView) -> bool {
        let is_named = |id: &NameId| self.names.get(*id).is_some();
        region.reach == Reach::Both
            && region.speaker.is_some()
            && region.models.keys().all(is_named)
    }

    /// Returns true if every other region has reported its models, those included that the link is
    /// yet to learn of.
    fn has_heard_all(&self, region_facts: &RegionFacts, regions: &[RegionView]) -> bool {
        let own = &self.machine.me().region;
        let is_met =
            |name: &RegionName| name == own || regions.iter().any(|region| region.region == *name);
        let are_met =
            !region_facts.is_agreed || region_facts.regions.iter().all(|said| is_met(&said.name));
        are_met && regions.iter().all(|region| self.is_heard(region))
    }

    /// Returns true if the view of requests has all models that are known: the keeper publishes a
    /// model a moment after it has received it.
    fn has_published_models(&self) -> bool {
        let view = self.routing.view();
        self.remembered.models().iter().all(|model| view.is_known(model))
    }

    /// Asks other regions' speakers for the names behind model numbers that are unknown here.
    fn ask_names(&mut self, regions: &[RegionView], now: Instant) {
        let used: BTreeSet<NameId> =
            regions.iter().flat_map(|region| region.models.keys().copied()).collect();
        self.names.keep(&used);
        for region in regions {
            let is_known = |id: &NameId| self.names.get(*id).is_some();
            let Some(speaker) = region.speaker.clone() else { continue };
            if !region.models.keys().all(is_known) && self.names.is_due(&speaker, now) {
                self.ask(speaker);
            }
        }
    }

    fn ask(&self, node: NodeName) {
        let (link, lists) = (Arc::clone(&self.link), self.lists.0.clone());
        self.member.tasks.tracker.spawn(async move {
            let list = ask(&link, &node).await;
            // Sending fails only after the driver has ended.
            drop(lists.send(list).await);
        });
    }
}

/// Returns true if the country of every region is known, or contradictory.
fn knows_countries(region_facts: &RegionFacts) -> bool {
    let is_said = |said: &RegionConfig| {
        said.country.is_some() || region_facts.contradictions.contains_key(&said.name)
    };
    region_facts.regions.iter().all(is_said)
}

fn tell(event: &GossipEvent) {
    match event {
        GossipEvent::Region { region, from, to } => match (from, to) {
            (_, Reach::Both) => tracing::info!(%region, "a region is reachable"),
            (Reach::Both, Reach::Silent) => {
                tracing::warn!(%region, "a region is lost: it sends no reports");
            }
            (Reach::Both, Reach::Deaf) => {
                tracing::warn!(%region, "a region is lost: it receives no reports from this node");
            }
            // Neither was it reachable before, nor is it now.
            _ => tracing::debug!(%region, ?from, ?to, "a region is not reachable"),
        },
        GossipEvent::NodeHeard(node) => tracing::info!(%node, "a node of the region reports"),
        GossipEvent::NodeSilent(node) => tracing::warn!(%node, "a node of the region is silent"),
        GossipEvent::Speaker(_) | GossipEvent::Claims => tracing::debug!(?event, "gossip"),
    }
}
