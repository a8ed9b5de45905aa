//! Gateway in the world: its counts, its news and its queue.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use spillway_health::{PeakEwma, RegionLoad, ReplicaNow, with_nodes};
use spillway_route::{RegionReport, TrafficHistory, WaitLimits};
use spillway_types::{ModelLoad, ModelName, ReplicaName, Signals};

use crate::Time;
use crate::router::{Place, Queue, ReplicaSight, Router};

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
    pub(super) replicas: Vec<ReplicaSight>,
    /// Requests of this node that have arrived at each replica.
    pub(super) arrived: Vec<u64>,
    /// Reports of the last looks on their way, oldest first, with the moment from which they are
    /// known.
    looked: Vec<VecDeque<(Time, Signals)>>,
    latencies: Vec<PeakEwma>,
    load: RegionLoad,
    pub(super) report: OwnReport,
    /// Requests that this node sent to each region, and that ended there.
    pub(super) forwarded: Vec<Traffic>,
    pub(super) guests: u32,
}

/// Report of a node about its own region.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnReport {
    pub(super) load: ModelLoad,
    pub(super) at: Time,
    /// Requests of this node that end each second.
    pub(super) own_rate_per_s: Option<f32>,
    /// Requests that this node had sent to replicas by then, and that had ended.
    started: u64,
    ended: u64,
}

/// Report of a region to the others, as its first node sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RegionNews {
    pub(super) load: ModelLoad,
    /// Replicas at which no request waits.
    pub(super) available: u32,
    /// Requests that wait in the region's nodes and at its replicas.
    pub(super) waiting: u32,
    /// Mean share of the replicas' KV caches in use.
    pub(super) kv_use: f32,
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
    replicas: Vec<ReplicaName>,
    model: [ModelName; 1],
}

/// Load of a region's other nodes at a replica.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elsewhere {
    /// Requests of the other nodes there.
    pub(super) in_flight: u32,
    /// Prompt tokens that the replica still has to read for the other nodes, as predicted.
    pub(super) pending_tokens: u32,
}

impl Names {
    pub(super) fn new(replicas: usize) -> Self {
        let name = |number| ReplicaName::from(format!("r{number}"));
        Self { replicas: (0..replicas).map(name).collect(), model: [ModelName::from("m")] }
    }
}

impl SimNode {
    pub(super) fn new(group: usize, router: Box<dyn Router>, place: &Place, seed: u64) -> Self {
        let idle = ReplicaSight {
            in_flight: 0,
            elsewhere: 0,
            started: 0,
            pending_tokens: 0,
            pending_elsewhere: 0,
            signals: Signals::UNKNOWN,
            rtt_ms: 0.0,
            is_away: false,
        };
        Self {
            group,
            router,
            rng: fastrand::Rng::with_seed(seed),
            queue: Queue::new(WaitLimits { wait_ms_max: WAIT_MS_MAX, ..WaitLimits::default() }),
            replicas: vec![idle; place.replicas],
            arrived: vec![0; place.replicas],
            looked: vec![VecDeque::new(); place.replicas],
            latencies: vec![PeakEwma::default(); place.replicas],
            load: RegionLoad::default(),
            report: OwnReport::default(),
            forwarded: (0..place.regions).map(|_| Traffic::default()).collect(),
            guests: 0,
        }
    }

    /// Takes in a report of a replica, to be known from a later look on, and learns those due by
    /// now.
    pub(super) fn look(&mut self, now: Time, replica: usize, (due, fresh): (Time, Signals)) {
        let looked = &mut self.looked[replica];
        while let Some((_, known)) = looked.pop_front_if(|(due, _)| *due <= now) {
            self.replicas[replica].signals = known;
        }
        looked.push_back((due, fresh));
    }

    /// Adds what the node measures itself to the reports of its replicas.
    pub(super) fn add_latencies(&mut self, instant: Instant) {
        for (replica, latency) in self.replicas.iter_mut().zip(&self.latencies) {
            // Old latencies are trusted less, so that a replica that was slow once gets a new try.
            replica.signals.latency_ms = latency.reading(instant);
        }
    }

    /// Sums up the region. `elsewhere` is the load of the other nodes at each replica, `others` the
    /// number of requests that wait in each of them and that end there per second.
    pub(super) fn sum_up(
        &mut self,
        (now, instant): (Time, Instant),
        names: &Names,
        elsewhere: &[Elsewhere],
        others: &[(u32, Option<f32>)],
    ) {
        for (replica, told) in self.replicas.iter_mut().zip(elsewhere) {
            replica.elsewhere = told.in_flight;
            replica.pending_elsewhere = told.pending_tokens;
        }
        let nows: Vec<ReplicaNow<'_>> = self
            .replicas
            .iter()
            .enumerate()
            .map(|(at, replica)| ReplicaNow {
                name: &names.replicas[at],
                models: &names.model,
                is_open: !replica.is_away,
                in_flight: replica.in_flight,
                started: replica.started,
                in_flight_elsewhere: elsewhere[at].in_flight,
                pending_tokens: replica.pending_tokens + elsewhere[at].pending_tokens,
                in_flight_max: u32::MAX,
                signals: replica.signals,
            })
            .collect();
        let loads = self.load.update(instant, &nows);
        let own = loads.get(&names.model[0]).copied().unwrap_or_default();
        let waits = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        self.report = OwnReport {
            load: with_nodes(own, waits, others.iter().copied()),
            at: now,
            own_rate_per_s: own.rate_per_s,
            started: self.started(),
            ended: self.ended(),
        };
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
    pub(super) fn send(&mut self, replica: usize, pending_tokens: u32) {
        let replica = &mut self.replicas[replica];
        replica.in_flight += 1;
        replica.started += 1;
        replica.pending_tokens += pending_tokens;
    }

    /// Counts a reply that has begun after so many milliseconds.
    pub(super) fn begin(
        &mut self,
        replica: usize,
        pending_tokens: u32,
        (now, latency_ms): (Instant, f64),
    ) {
        self.replicas[replica].pending_tokens -= pending_tokens;
        self.latencies[replica].record(now, Duration::from_secs_f64(latency_ms / 1e3));
    }

    /// Counts a reply that has ended.
    pub(super) fn end(&mut self, replica: usize) {
        self.replicas[replica].in_flight -= 1;
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
