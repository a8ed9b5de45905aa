//! Regions in virtual time: nodes that decide, replicas that serve, and reports that travel.
//!
//! All nodes of a region see at once what their own replicas do, as claims ensure in a cluster. Of
//! other regions they know the last report, which is one way and up to a period old.

mod knowledge;
mod scenario;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use spillway_types::{Deadline, Inquiry, ModelLoad, ShedState};

use super::guests::reserve;
use super::{Access, Guest, RegionCandidate, SpillVerdict, Waiting, admit_guest, spill};
use crate::test_world::{Array, NOW, inquiry};
use crate::{Moment, WaitEntry, WaitLimits, WaitQueue};
use knowledge::Link;
pub(super) use scenario::{Results, Scenario};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;

/// Time between two reports of a region.
const REPORT_EVERY: u64 = 100 * MS;
/// Time between two looks at the counters.
const COUNT_EVERY: u64 = 25 * MS;
/// Requests that a region serves at once.
const SLOTS: usize = 40;
/// Mean service time; exponentially distributed.
const SERVICE: u64 = SECOND;
/// Most requests that wait in all nodes of a region together: two seconds of work.
const QUEUE_MAX: usize = 80;
/// Time that clients wait for the first token.
const PATIENCE_MS: u64 = 10_000;
/// Window of a rate.
const RATE_WINDOW: u64 = 2 * SECOND;

/// Serves all requests of the scenario.
pub(super) fn run(scenario: &Scenario) -> Results {
    let mut world = World::new(scenario);
    for region in 0..world.regions.len() {
        world.schedule(0, Event::Arrival { region });
        // Regions don't report in step.
        world.schedule(region as u64 * 37 * MS % REPORT_EVERY, Event::Report { region });
    }
    world.schedule(0, Event::Count);
    while let Some(Reverse((now, _, event))) = world.events.pop() {
        world.now = now;
        world.handle(event);
    }
    let by_region = &mut world.results.first_token_ms;
    by_region.iter_mut().for_each(|sorted| sorted.sort_by(f64::total_cmp));
    world.results
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { region: usize },
    Report { region: usize },
    Heard { by: usize, from: usize, report: usize },
    Count,
    Guest { at: usize, request: Request },
    Refused { by: usize, request: Request },
    End { region: usize, request: Request },
    EndHeard { from: usize, request: Request },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    arrived: u64,
    region: usize,
    node: usize,
    /// Service time of the request.
    takes: u64,
    /// Regions that refused the request, one bit each.
    refused_by: u32,
}

struct World<'s> {
    scenario: &'s Scenario,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    regions: Vec<Region>,
    /// All reports so far, with their moments.
    reports: Vec<(u64, ModelLoad)>,
    rng: fastrand::Rng,
    results: Results,
}

struct Region {
    running: usize,
    guests: u32,
    ends: VecDeque<u64>,
    nodes: Vec<Node>,
    /// Random numbers of the region's clients alone, so that settings are compared under one load.
    clients: fastrand::Rng,
}

struct Node {
    queue: WaitQueue<Request>,
    /// By region.
    links: Vec<Link>,
    rng: fastrand::Rng,
}

impl<'s> World<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let count = scenario.load.len();
        let limits = WaitLimits {
            count_max: QUEUE_MAX / scenario.nodes,
            wait_ms_max: PATIENCE_MS,
            ..WaitLimits::default()
        };
        let node = |seed| Node {
            queue: WaitQueue::new(limits),
            links: vec![Link::default(); count],
            rng: fastrand::Rng::with_seed(scenario.seed * 1_000 + seed as u64),
        };
        let region = |region: usize| Region {
            running: 0,
            guests: 0,
            ends: VecDeque::new(),
            nodes: (0..scenario.nodes).map(|index| node(region * 10 + index)).collect(),
            clients: fastrand::Rng::with_seed(scenario.seed * 100 + region as u64),
        };
        let results = Results {
            first_token_ms: vec![Vec::new(); count],
            shed: vec![0; count],
            guests: vec![0; count],
            ..Results::default()
        };
        Self {
            scenario,
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            regions: (0..count).map(region).collect(),
            reports: Vec::new(),
            rng: fastrand::Rng::with_seed(scenario.seed),
            results,
        }
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + after, self.sequence, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { region } => self.arrive(region),
            Event::Report { region } => self.report(region),
            Event::Heard { by, from, report } => self.hear(by, from, report),
            Event::Count => self.count(),
            Event::Guest { at, request } => self.receive(at, request),
            Event::Refused { by, mut request } => {
                request.refused_by |= 1 << by;
                self.link(&request, by).ended += 1;
                self.decide(request);
            }
            Event::End { region, request } => self.end(region, request),
            Event::EndHeard { from, request } => self.link(&request, from).ended += 1,
        }
    }

    fn is_over(&self) -> bool {
        self.now >= self.scenario.seconds[1] * SECOND
    }

    fn one_way(&self, from: usize, to: usize) -> u64 {
        self.scenario.rtt_ms[from][to] * MS / 2
    }

    fn instant(at: u64) -> Instant {
        // Before the start lies nothing, but reports may be younger than their way.
        *NOW + Duration::from_micros(at)
    }

    fn link(&mut self, request: &Request, to: usize) -> &mut Link {
        &mut self.regions[request.region].nodes[request.node].links[to]
    }

    fn arrive(&mut self, region: usize) {
        if self.is_over() {
            return;
        }
        let rate_per_s = self.scenario.load[region] * (SLOTS as u64 * SECOND / SERVICE) as f64;
        let clients = &mut self.regions[region].clients;
        let gap = -(1.0 - clients.f64()).ln() / rate_per_s * SECOND as f64;
        let takes = (-(1.0 - clients.f64()).ln() * SERVICE as f64) as u64;
        let node = clients.usize(..self.scenario.nodes);
        self.schedule(gap as u64, Event::Arrival { region });
        self.decide(Request { arrived: self.now, region, node, takes, refused_by: 0 });
    }

    fn decide(&mut self, request: Request) {
        let Request { region, node, .. } = request;
        let queue = &self.regions[region].nodes[node].queue;
        let waiting = Waiting {
            ahead: queue.ahead_of(0) as u32,
            wait_ms: None,
            all: queue.len() as u32,
            has_room: queue.room(1).is_ok(),
        };
        match self.plan(request, waiting) {
            SpillVerdict::Own => self.begin(region, request),
            SpillVerdict::Forward(regions) => self.forward(regions[0], request),
            SpillVerdict::Wait { .. } => {
                let entry = WaitEntry { bytes: 1, ..WaitEntry::new(request, deadline(&request)) };
                let now = Self::instant(self.now);
                let pushed = self.regions[region].nodes[node].queue.push(entry, now);
                pushed.expect("the decision knows that there is room");
            }
            SpillVerdict::Shed { .. } => self.shed(request),
        }
    }

    fn plan(&mut self, request: Request, waiting: Waiting) -> SpillVerdict {
        let Request { region, node, .. } = request;
        let own = self.own(region, node, waiting);
        let others = self.others(&request);
        let inquiry = Inquiry { deadline: deadline(&request), ..inquiry() };
        let rng = &mut self.regions[region].nodes[node].rng;
        let now = Self::instant(self.now);
        let mut moment = Moment { now, loads: &Array::idle(0), ticket: 0, rng };
        let plan = spill(&inquiry, &own, &others, &self.scenario.terms, &mut moment);
        // The own region has no entry among the others.
        let to_region = |index: usize| if index < region { index } else { index + 1 };
        match plan.verdict {
            SpillVerdict::Forward(order) => {
                SpillVerdict::Forward(order.into_iter().map(to_region).collect())
            }
            other => other,
        }
    }

    fn forward(&mut self, to: usize, request: Request) {
        self.link(&request, to).sent += 1;
        self.schedule(self.one_way(request.region, to), Event::Guest { at: to, request });
    }

    fn receive(&mut self, at: usize, request: Request) {
        if self.welcomes(at) {
            self.results.guests[at] += u64::from(self.is_measured(&request));
            self.begin(at, request);
        } else {
            self.results.refused += u64::from(self.is_measured(&request));
            let back = self.one_way(at, request.region);
            self.schedule(back, Event::Refused { by: at, request });
        }
    }

    /// Returns true if a guest at a random node is welcome.
    fn welcomes(&mut self, region: usize) -> bool {
        let node = self.rng.usize(..self.scenario.nodes);
        let all = self.regions[region].nodes[node].queue.len() as u32;
        let own =
            self.own(region, node, Waiting { ahead: all, wait_ms: None, all, has_room: true });
        admit_guest(&own, &self.scenario.terms) == Guest::Welcome
    }

    fn begin(&mut self, region: usize, request: Request) {
        let state = &mut self.regions[region];
        state.running += 1;
        state.guests += u32::from(region != request.region);
        assert!(state.running <= SLOTS, "no slot is taken twice");
        self.schedule(request.takes, Event::End { region, request });
        if self.is_measured(&request) {
            let back = self.one_way(region, request.region);
            let first_token = self.now + back - request.arrived;
            let first_token_ms = first_token as f64 / MS as f64;
            self.results.first_token_ms[request.region].push(first_token_ms);
        }
    }

    fn end(&mut self, region: usize, request: Request) {
        let state = &mut self.regions[region];
        state.running -= 1;
        state.ends.push_back(self.now);
        if region != request.region {
            state.guests -= 1;
            let back = self.one_way(region, request.region);
            self.schedule(back, Event::EndHeard { from: region, request });
        }
        self.take_up(region);
    }

    /// Gives a slot to a waiting request, at a random node among those with waiting requests.
    fn take_up(&mut self, region: usize) {
        let now = Self::instant(self.now);
        let nodes = &mut self.regions[region].nodes;
        let mut late = Vec::new();
        for node in nodes.iter_mut() {
            late.extend(std::iter::from_fn(|| node.queue.expire(now)).map(|(_, entry)| entry.item));
        }
        let start = self.rng.usize(..nodes.len());
        let count = nodes.len();
        let next = (0..count).find_map(|step| nodes[(start + step) % count].queue.pop_next(now));
        late.into_iter().for_each(|request| self.shed(request));
        if let Some((_, entry)) = next {
            self.begin(region, entry.item);
        }
    }

    fn shed(&mut self, request: Request) {
        if !self.is_measured(&request) {
            return;
        }
        self.results.shed[request.region] += 1;
        let others = (0..self.regions.len()).filter(|&other| other != request.region);
        let has_room = others.collect::<Vec<_>>().into_iter().any(|other| self.welcomes(other));
        let kept = reserve(Some(SLOTS as f32), &self.scenario.terms);
        let is_open = |other: &RegionCandidate| {
            other.access == Access::Ready
                && other.report.load.shed == ShedState::Open
                && other.report.load.running + other.report.change() + 1.0 + kept <= SLOTS as f32
        };
        let says_room = self.others(&request).iter().any(is_open);
        self.results.shed_beside_room[0] += u64::from(has_room);
        self.results.shed_beside_room[1] += u64::from(says_room);
    }

    fn is_measured(&self, request: &Request) -> bool {
        request.arrived >= self.scenario.seconds[0] * SECOND
    }

    /// Forwards waiting requests if another region has become better, the longest waiting first.
    /// Refusals by the region `heard` before its report are forgotten.
    fn decide_again(&mut self, region: usize, node: usize, heard: usize) {
        let mut sent: Vec<(usize, Request)> = Vec::new();
        let mut queue = std::mem::replace(
            &mut self.regions[region].nodes[node].queue,
            WaitQueue::new(WaitLimits::default()),
        );
        loop {
            let mut slot = 0;
            let mut target = None;
            let taken = queue.pop_where(|entry| {
                let waiting = Waiting { ahead: slot, wait_ms: None, all: slot, has_room: true };
                slot += 1;
                if let SpillVerdict::Forward(to) = self.plan(entry.item.forgiving(heard), waiting) {
                    target = Some(to[0]);
                }
                target.is_some()
            });
            let (Some((_, entry)), Some(target)) = (taken, target) else { break };
            sent.push((target, entry.item.forgiving(heard)));
            // A request that was sent counts for the next decision.
            self.link(&entry.item, target).sent += 1;
        }
        self.regions[region].nodes[node].queue = queue;
        for (target, request) in sent {
            self.link(&request, target).sent -= 1;
            self.forward(target, request);
        }
    }
}

impl Request {
    /// Returns the request without that region's refusals.
    fn forgiving(self, region: usize) -> Self {
        Self { refused_by: self.refused_by & !(1 << region), ..self }
    }
}

fn deadline(request: &Request) -> Deadline {
    let arrived = World::instant(request.arrived);
    Deadline::after(arrived, Duration::from_millis(PATIENCE_MS))
}
