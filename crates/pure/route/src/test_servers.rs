//! Closed loop in virtual time: gateways that plan, replicas that serve, and signals between them
//! that are as late as in production.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use spillway_types::{Inquiry, Prediction, RAMP_FULL, Reading, ReplicaSlot, Signals, Speed};

use crate::test_world::{Array, NOW, identity, inquiry};
use crate::{
    Attempt, BucketConfig, Candidate, Group, LatencyModel, Moment, ObservedLatency, Plan, Policy,
    Tuning, plan, refill,
};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;

/// Time between two boards, and age of a report when it gets on a board.
const BOARD_EVERY: u64 = 100 * MS;
/// Requests that a replica serves at once; others wait in order of arrival.
const SLOTS: usize = 8;
/// Time for which a measurement is trusted at all.
const TRUSTED: u64 = 10 * SECOND;
/// Window of a p99.
const P99_WINDOW: u64 = 5 * SECOND;
/// Keys of requests, all equally popular.
const KEYS: u64 = 1_000;
/// Token bucket of a replica for all gateways together: somewhat more than it can serve.
const BUCKET: BucketConfig =
    BucketConfig { rate_per_s: 100.0, burst: 20.0, queue_halving: SLOTS as f32 / 2.0 };

/// Input of a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) policy: Policy,
    pub(crate) tuning: Tuning,
    /// Gateways that each see only their own requests; reports include those of the others.
    pub(crate) gateways: usize,
    /// Mean service time of each replica, before and after the change.
    pub(crate) service_ms: [Vec<u64>; 2],
    /// Requests per second at all gateways together.
    pub(crate) arrivals_per_s: f64,
    /// Second at which service times change, at which measuring begins, and at which arrivals end.
    pub(crate) seconds: [u64; 3],
}

/// Results for the requests that arrived while measuring.
#[derive(Debug)]
pub(crate) struct Results {
    /// Milliseconds from arrival to reply, sorted.
    latencies_ms: Vec<f64>,
    /// Requests by replica.
    pub(crate) served: Vec<u64>,
}

impl Results {
    /// Returns the latency that this share of the requests does not exceed.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        self.latencies_ms[(self.latencies_ms.len() as f64 * share) as usize]
    }

    /// Returns the replica's share of the requests.
    pub(crate) fn share(&self, replica: usize) -> f64 {
        self.served[replica] as f64 / self.served.iter().sum::<u64>() as f64
    }
}

/// Serves all requests of the scenario.
pub(crate) fn run(scenario: &Scenario) -> Results {
    let mut world = Servers::new(scenario);
    world.schedule(0, Event::Arrival);
    world.schedule(0, Event::Board);
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        world.now = now;
        match event {
            Event::Arrival => world.arrive(),
            Event::Board => world.put_up_boards(),
            Event::End { replica, request } => world.end(replica, request),
        }
    }
    world.results.latencies_ms.sort_by(f64::total_cmp);
    world.results
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Board,
    End { replica: usize, request: Request },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    arrived: u64,
    gateway: usize,
    /// Index of its prediction in [`Servers::predictions`].
    number: usize,
}

struct Servers<'s> {
    scenario: &'s Scenario,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    replicas: Vec<Server>,
    gateways: Vec<Gateway>,
    rng: fastrand::Rng,
    /// By request.
    predictions: Vec<Prediction>,
    results: Results,
}

/// A replica.
#[derive(Clone, Debug, Default)]
struct Server {
    running: usize,
    queue: VecDeque<Request>,
    reported: Report,
}

#[derive(Clone, Debug, Default)]
struct Report {
    queued: f32,
    running: f32,
    /// By gateway.
    in_flight: Vec<u32>,
}

struct Gateway {
    group: Group,
    loads: Array,
    ticket: u64,
    rng: fastrand::Rng,
    latencies: Vec<Latencies>,
    models: Vec<LatencyModel>,
    bucket: BucketConfig,
}

/// Measurements of a replica by a gateway.
#[derive(Clone, Debug, Default)]
struct Latencies {
    average_ms: f64,
    /// Moments of replies, and their latencies.
    recent: VecDeque<(u64, f64)>,
    last: Option<u64>,
    p99_ms: f64,
}

impl<'s> Servers<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let count = scenario.service_ms[0].len();
        let candidate = |slot| Candidate {
            slot: ReplicaSlot(slot),
            identity: identity(slot),
            weight: 1,
            ramp_permille: RAMP_FULL,
            in_flight_max: u32::MAX,
        };
        let candidates: Vec<_> = (0..count as u32).map(candidate).collect();
        let gateway = |number| Gateway {
            group: Group::with_tuning(scenario.policy, &scenario.tuning, candidates.clone()),
            loads: Array::idle(count),
            ticket: number * 13,
            rng: fastrand::Rng::with_seed(number),
            latencies: vec![Latencies::default(); count],
            models: vec![LatencyModel::new(Speed::UNKNOWN); count],
            bucket: BucketConfig {
                rate_per_s: BUCKET.rate_per_s / scenario.gateways as f32,
                burst: BUCKET.burst / scenario.gateways as f32,
                ..BUCKET
            },
        };
        Self {
            scenario,
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            replicas: vec![Server::default(); count],
            gateways: (0..scenario.gateways as u64).map(gateway).collect(),
            rng: fastrand::Rng::with_seed(3),
            predictions: Vec::new(),
            results: Results { latencies_ms: Vec::new(), served: vec![0; count] },
        }
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + after, self.sequence, event)));
    }

    fn is_over(&self) -> bool {
        self.now >= self.scenario.seconds[2] * SECOND
    }

    fn arrive(&mut self) {
        if self.is_over() {
            return;
        }
        let gap_s = -(1.0 - self.rng.f64()).ln() / self.scenario.arrivals_per_s;
        self.schedule((gap_s * SECOND as f64) as u64, Event::Arrival);
        let gateway = self.rng.usize(..self.scenario.gateways);
        let request = Request { arrived: self.now, gateway, number: self.predictions.len() };
        let key = self.rng.u64(..KEYS);
        let (replica, prediction) = self.gateways[gateway].send(key);
        self.predictions.push(prediction);
        if self.is_measured(request) {
            self.results.served[replica] += 1;
        }
        if self.replicas[replica].running < SLOTS {
            self.begin(replica, request);
        } else {
            self.replicas[replica].queue.push_back(request);
        }
    }

    fn begin(&mut self, replica: usize, request: Request) {
        self.replicas[replica].running += 1;
        let has_changed = self.now >= self.scenario.seconds[0] * SECOND;
        let mean = self.scenario.service_ms[usize::from(has_changed)][replica] * MS;
        let takes = self.rng.u64(mean * 4 / 5..mean * 6 / 5);
        self.schedule(takes, Event::End { replica, request });
    }

    fn end(&mut self, replica: usize, request: Request) {
        self.replicas[replica].running -= 1;
        if let Some(next) = self.replicas[replica].queue.pop_front() {
            self.begin(replica, next);
        }
        let latency_ms = (self.now - request.arrived) as f64 / MS as f64;
        let gateway = &mut self.gateways[request.gateway];
        gateway.loads.in_flight[replica] -= 1;
        gateway.latencies[replica].add(self.now, latency_ms);
        let seen = ObservedLatency::of(&self.predictions[request.number], latency_ms as f32);
        gateway.models[replica].learn(&seen, self.now / MS);
        if self.is_measured(request) {
            self.results.latencies_ms.push(latency_ms);
        }
    }

    fn is_measured(&self, request: Request) -> bool {
        request.arrived >= self.scenario.seconds[1] * SECOND
    }

    /// Replaces the gateways' boards, and the reports that the next boards will show.
    fn put_up_boards(&mut self) {
        if self.is_over() {
            return;
        }
        self.schedule(BOARD_EVERY, Event::Board);
        for (number, gateway) in self.gateways.iter_mut().enumerate() {
            for (index, server) in self.replicas.iter().enumerate() {
                gateway.put_up(index, &server.reported, number, self.now);
            }
        }
        for (index, server) in self.replicas.iter_mut().enumerate() {
            let in_flight =
                self.gateways.iter().map(|gateway| gateway.loads.in_flight[index]).collect();
            let (queued, running) = (server.queue.len() as f32, server.running as f32);
            server.reported = Report { queued, running, in_flight };
        }
    }
}

impl Gateway {
    /// Decides about a request and sends it.
    fn send(&mut self, key: u64) -> (usize, Prediction) {
        self.ticket += 1;
        let moment =
            Moment { now: *NOW, loads: &self.loads, ticket: self.ticket, rng: &mut self.rng };
        let inquiry = Inquiry { affinity: Some(key), ..inquiry() };
        let Plan::Attempt(Attempt { slot, prediction, .. }) =
            plan(&inquiry, &self.group, &[], moment)
        else {
            panic!("no replica has a limit");
        };
        self.loads.in_flight[slot.index()] += 1;
        self.loads.started[slot.index()] += 1;
        (slot.index(), prediction.unwrap_or_default())
    }

    fn put_up(&mut self, index: usize, report: &Report, number: usize, now: u64) {
        let signals = &mut self.loads.signals[index];
        let started = self.loads.started[index];
        let level = signals.bucket_tokens - (started - signals.started_at) as f32;
        let requests = report.queued + report.running;
        let elapsed = Duration::from_micros(BOARD_EVERY);
        let fresh = |value| Reading { value, trust: 1.0 };
        let (latency_ms, p99_ms) = self.latencies[index].readings(now);
        self.loads.speeds[index] = self.models[index].speed(now / MS);
        *signals = Signals {
            latency_ms,
            p99_ms,
            queued: fresh(report.queued),
            running: fresh(report.running),
            kv_use: fresh((requests / 20.0).min(1.0)),
            gpu_use: fresh(report.running / SLOTS as f32),
            gpu_memory_use: Reading::UNKNOWN,
            pending: fresh(requests),
            in_flight_at_report: report.in_flight.get(number).copied().unwrap_or_default(),
            bucket_tokens: refill(level, elapsed, requests, &self.bucket),
            started_at: started,
        };
    }
}

impl Latencies {
    fn add(&mut self, now: u64, latency_ms: f64) {
        let since = now - self.last.unwrap_or(now);
        let keep = (-(since as f64) / TRUSTED as f64).exp();
        self.average_ms = latency_ms.max(latency_ms + (self.average_ms - latency_ms) * keep);
        self.last = Some(now);
        self.recent.push_back((now, latency_ms));
    }

    fn readings(&mut self, now: u64) -> (Reading, Reading) {
        while self.recent.front().is_some_and(|(at, _)| at + P99_WINDOW < now) {
            self.recent.pop_front();
        }
        let Some(last) = self.last else { return (Reading::UNKNOWN, Reading::UNKNOWN) };
        let mut sorted: Vec<f64> = self.recent.iter().map(|&(_, latency_ms)| latency_ms).collect();
        sorted.sort_by(f64::total_cmp);
        if let Some(&p99_ms) = sorted.get((sorted.len() * 99) / 100) {
            self.p99_ms = p99_ms;
        }
        let trust = (1.0 - (now - last) as f32 / TRUSTED as f32).max(0.0);
        let reading = |value| Reading { value: value as f32, trust };
        (reading(self.average_ms), reading(self.p99_ms))
    }
}
