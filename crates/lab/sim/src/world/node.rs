//! Gateway in the world: its counts, its news and its queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use spillway_gossip::{
    GossipMachine, ModelShare, NameId, OwnLoad, PeerView, ReplicaCounts, ReplicaLoad,
    ReplicaSignals,
};
use spillway_health::{PeakEwma, RegionLoad, ReplicaNow, with_nodes};
use spillway_route::{RegionReport, TrafficHistory, WaitLimits};
use spillway_types::{ModelLoad, ModelName, Prediction, Reading, ReplicaName, Signals};

use super::found_limit::FoundLimit;
use super::gossip::{Gossip, RegionCounts};
use crate::Time;
use crate::router::{NodePosition, OwnReplica, Queue, Router, Slots};

/// Longest wait in a node's queue in milliseconds: less than the default, since clients here are
/// people who wait for an answer.
const WAIT_MS_MAX: u64 = 30_000;

/// Gateway.
#[derive(Debug)]
pub(super) struct SimNode {
    /// Group of nodes that it belongs to.
    pub(super) group: usize,
    pub(super) router: Box<dyn Router>,
    pub(super) rng: fastrand::Rng,
    pub(super) queue: Queue,
    /// Requests of this node at each of its replicas.
    pub(super) replicas: Vec<OwnReplica>,
    /// Limits of requests in flight at each replica.
    pub(super) limits: Vec<FoundLimit>,
    /// Requests of this node that have arrived at each replica.
    pub(super) arrived: Vec<u64>,
    /// Reports of the last looks in transit, oldest first, with the moment from which they are
    /// known.
    looked: Vec<VecDeque<(Time, Signals)>>,
    latencies: Vec<PeakEwma>,
    load: RegionLoad,
    pub(super) report: OwnReport,
    pub(super) gossip: Gossip,
    /// Requests that this node sent to each region, and that ended there.
    pub(super) forwarded: Vec<Traffic>,
    pub(super) guests: u32,
    /// Mean tokens of a reply, newer ones count more.
    pub(super) reply_tokens: Option<f32>,
}

/// Report of a node about its own region.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnReport {
    pub(super) load: ModelLoad,
    pub(super) at: Time,
    pub(super) counts: RegionCounts,
    /// Nodes of the region whose reports arrive, and this one.
    pub(super) nodes: u32,
    /// Requests of this node that end each second.
    own_rate_per_s: Option<f32>,
    /// Requests that this node had sent to replicas by then, and that had ended.
    started: u64,
    ended: u64,
}

/// Requests to one region.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) ended: u64,
    pub(super) history: TrafficHistory,
}

/// Names by which the region's load is summed up.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) replicas: Vec<ReplicaName>,
    model: [ModelName; 1],
}

impl Names {
    pub(super) fn new(replicas: usize) -> Self {
        let name = |number| ReplicaName::from(format!("r{number}"));
        Self { replicas: (0..replicas).map(name).collect(), model: [ModelName::from("m")] }
    }
}

impl SimNode {
    pub(super) fn new(
        group: usize,
        router: Box<dyn Router>,
        position: &NodePosition,
        machine: GossipMachine,
        seed: u64,
    ) -> Self {
        let in_flight_max = router.in_flight_max().unwrap_or(u32::MAX);
        let idle = OwnReplica {
            in_flight: 0,
            elsewhere: 0,
            started: 0,
            pending_tokens: 0,
            pending_elsewhere: 0,
            context_tokens: 0,
            read_tokens: 0,
            signals: Signals::UNKNOWN,
            rtt_ms: 0.0,
            is_away: false,
            slots: Slots { in_flight_max, ..Slots::default() },
        };
        Self {
            group,
            router,
            rng: fastrand::Rng::with_seed(seed),
            queue: Queue::new(WaitLimits { wait_ms_max: WAIT_MS_MAX, ..WaitLimits::default() }),
            replicas: vec![idle; position.replicas],
            limits: vec![FoundLimit::new(in_flight_max); position.replicas],
            arrived: vec![0; position.replicas],
            looked: vec![VecDeque::new(); position.replicas],
            latencies: vec![PeakEwma::default(); position.replicas],
            load: RegionLoad::default(),
            report: OwnReport { nodes: 1, ..OwnReport::default() },
            gossip: Gossip::new(machine, position.regions),
            forwarded: (0..position.regions).map(|_| Traffic::default()).collect(),
            guests: 0,
            reply_tokens: None,
        }
    }

    /// Stores a report of a replica, to be known from a later look on, and applies those due by
    /// now.
    pub(super) fn look(
        &mut self,
        (now, instant): (Time, Instant),
        replica: usize,
        (due, fresh): (Time, Signals),
    ) {
        let looked = &mut self.looked[replica];
        while let Some((_, known)) = looked.pop_front_if(|(due, _)| *due <= now) {
            self.limits[replica].reported(instant, &known);
            self.replicas[replica].signals = known;
        }
        looked.push_back((due, fresh));
    }

    /// Adds the node's own measurements to the reports of its replicas.
    pub(super) fn add_latencies(&mut self, instant: Instant) {
        for (replica, latency) in self.replicas.iter_mut().zip(&self.latencies) {
            // Old latencies are trusted less, so that a replica that was slow once gets a new try.
            replica.signals.latency_ms = latency.reading(instant);
        }
    }

    /// Reports this node's requests at each replica to the region's other nodes, and notes their
    /// reports.
    pub(super) fn count(&mut self, names: &Names) {
        let counts = self.replicas.iter().zip(&names.replicas).map(|(replica, name)| {
            let OwnReplica { in_flight, pending_tokens, .. } = *replica;
            (NameId::of_replica(name), ReplicaCounts { in_flight, pending_tokens })
        });
        self.gossip.machine.set_counts(counts);
        self.note_elsewhere(names);
    }

    fn note_elsewhere(&mut self, names: &Names) {
        for (replica, name) in self.replicas.iter_mut().zip(&names.replicas) {
            let told = self.gossip.machine.elsewhere(name);
            replica.elsewhere = told.in_flight;
            replica.pending_elsewhere = told.pending_tokens;
        }
    }

    /// Sums up the region from this node's replicas and from the reports of its other nodes.
    pub(super) fn sum_up(&mut self, now: Time, instant: Instant, names: &Names) {
        let peers: Vec<PeerView> = self.gossip.machine.peers(instant);
        let live = || peers.iter().filter(|peer| peer.live);
        self.note_elsewhere(names);
        let nows: Vec<ReplicaNow<'_>> = self
            .replicas
            .iter()
            .zip(&names.replicas)
            .map(|(replica, name)| ReplicaNow {
                name,
                models: &names.model,
                is_open: !replica.is_away,
                in_flight: replica.in_flight,
                started: replica.started,
                in_flight_elsewhere: replica.elsewhere,
                pending_tokens: replica.pending_tokens.saturating_add(replica.pending_elsewhere),
                in_flight_max: replica.slots.capacity(),
                signals: replica.signals,
            })
            .collect();
        let loads = self.load.update(instant, &nows);
        let own = loads.get(&names.model[0]).copied().unwrap_or_default();
        let shares = || live().filter_map(|peer| peer.share(&names.model[0]));
        let waits = self.waits();
        let told = shares().map(|share| (share.waiting, share.rate_per_s));
        self.report = OwnReport {
            load: with_nodes(own, waits, told),
            at: now,
            counts: self.counts(shares().fold(waits, |sum, share| sum + share.waiting)),
            nodes: u32::try_from(live().count() + 1).unwrap_or(u32::MAX),
            own_rate_per_s: own.rate_per_s,
            started: self.started(),
            ended: self.ended(),
        };
    }

    /// Returns the requests that wait in this node.
    fn waits(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    /// Returns the counts of the region, in whose nodes so many requests wait.
    fn counts(&self, waits: u32) -> RegionCounts {
        let here = || self.replicas.iter().filter(|replica| !replica.is_away);
        let queued = |replica: &OwnReplica| replica.signals.queued.value;
        let held: f32 = here().map(|replica| replica.signals.kv_use.value).sum();
        RegionCounts {
            available: here().filter(|replica| queued(replica) < 1.0).count() as u32,
            waiting: waits,
            kv_use: held / here().count().max(1) as f32,
        }
    }

    /// Returns the load in the form that gossip sends to other nodes. `has_siblings` is true if
    /// some of them are of the own region.
    pub(super) fn own_load(&self, names: &Names, has_siblings: bool) -> OwnLoad {
        let waiting = self.waits();
        let told = |reading: Reading| reading.is_known().then_some(reading.value);
        let replica = |(name, replica): (&ReplicaName, &OwnReplica)| {
            let Signals { queued, running, kv_use, .. } = replica.signals;
            let [queued, running, kv_use] = [queued, running, kv_use].map(told);
            let load = ReplicaLoad {
                in_flight: replica.in_flight,
                pending_tokens: replica.pending_tokens,
                wanted: replica.in_flight + waiting,
                // Slots are not claimed here: each node may use all of a limit.
                limit: None,
                signals: ReplicaSignals { queued, running, kv_use, age_ms: None },
            };
            (name.clone(), load)
        };
        let [model] = &names.model;
        let is_served = self.replicas.iter().any(|replica| !replica.is_away);
        let load = if is_served { self.report.load } else { ModelLoad::unserved() };
        let share = ModelShare { waiting, rate_per_s: self.report.own_rate_per_s };
        // Replicas are only reported inside the region.
        let told = if has_siblings { names.replicas.as_slice() } else { &[] };
        OwnLoad {
            replicas: told.iter().zip(&self.replicas).map(replica).collect(),
            shares: [(model.clone(), share)].into(),
            models: [(model.clone(), load)].into(),
        }
    }

    /// Returns the present state of the own region.
    pub(super) fn own_report(&self, now: Time) -> RegionReport {
        let since = |now: u64, then: u64| u32::try_from(now - then).unwrap_or(u32::MAX);
        RegionReport {
            load: self.report.load,
            age_ms: now.ms_since(self.report.at) as f32,
            sent: since(self.started(), self.report.started),
            ended: since(self.ended(), self.report.ended),
        }
    }

    /// Counts a request that goes to a replica.
    pub(super) fn send(&mut self, replica: usize, pending_tokens: u32, prompt_tokens: u32) {
        let limit = &mut self.limits[replica];
        let replica = &mut self.replicas[replica];
        replica.in_flight += 1;
        limit.sent(replica.in_flight);
        replica.slots.unbegun = limit.unbegun();
        replica.started += 1;
        replica.pending_tokens += pending_tokens;
        replica.context_tokens += prompt_tokens;
    }

    /// Counts a reply that has begun after so many milliseconds.
    pub(super) fn begin(
        &mut self,
        replica: usize,
        (pending_tokens, read_tokens): (u32, u32),
        (now, latency_ms): (Instant, f64),
        prediction: Option<Prediction>,
    ) {
        self.limits[replica].began(latency_ms, prediction);
        let known = &mut self.replicas[replica];
        known.pending_tokens -= pending_tokens;
        known.read_tokens += u64::from(read_tokens);
        known.slots.unbegun = self.limits[replica].unbegun();
        self.latencies[replica].record(now, Duration::from_secs_f64(latency_ms / 1e3));
    }

    /// Counts a request of so many tokens that has left a replica, where it was for so many
    /// milliseconds.
    pub(super) fn end(&mut self, replica: usize, tokens: u32, held_ms: f64, prompt_tokens: u32) {
        let replica = &mut self.replicas[replica];
        replica.context_tokens -= prompt_tokens;
        replica.in_flight -= 1;
        replica.slots.hold = replica.slots.hold.with(tokens, held_ms as f32);
    }

    /// Counts requests that went to another region, and that came to an end there.
    pub(super) fn count_forwarded(&mut self, region: usize, sent: u64, ended: u64, now: Instant) {
        let traffic = &mut self.forwarded[region];
        traffic.sent += sent;
        traffic.ended += ended;
        traffic.history.record(now, traffic.sent, traffic.ended);
    }

    fn started(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.started).sum()
    }

    fn ended(&self) -> u64 {
        let in_flight: u64 = self.replicas.iter().map(|replica| u64::from(replica.in_flight)).sum();
        self.started() - in_flight
    }
}
