//! World of a simulation: clients, nodes, replicas, and the network between them.

mod config;
mod drive;
mod figures;
mod looks;
mod moves;
mod node;
mod replica;
mod replies;
mod request;
mod wait;

pub use config::{News, RegionConfig, WorldConfig};
pub use figures::{Figures, RegionFigures};

use std::collections::BTreeMap;
use std::ops::Range;

use spillway_engine::EngineEvent;
use spillway_prefix::{HotDelta, HotTrie};
use spillway_types::{ModelLoad, ModelName};

use crate::router::Router;
use crate::{Agenda, Session, Time};
use node::{Names, SimNode};
use replica::SimReplica;
use request::Request;

/// Run in progress.
#[derive(Debug)]
pub struct World {
    config: WorldConfig,
    agenda: Agenda<WorldEvent>,
    now: Time,
    sessions: Vec<Session>,
    requests: Vec<Request>,
    regions: Vec<Region>,
    nodes: Vec<SimNode>,
    replicas: Vec<SimReplica>,
    /// Hot trie that all regions agree on, and changes on their way into it.
    trie: HotTrie,
    deltas: BTreeMap<usize, HotDelta>,
    proposals: usize,
    model: ModelName,
    rng: fastrand::Rng,
}

/// Region: its nodes and replicas, and the news of other regions.
#[derive(Debug)]
struct Region {
    nodes: Range<usize>,
    replicas: Range<usize>,
    names: Names,
    /// Last report of each region, and the moment when it was made.
    heard: Vec<Option<(ModelLoad, Time)>>,
    kv_use: Average,
}

/// Running mean.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    sum: f64,
    count: f64,
}

impl Average {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}

/// Events of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WorldEvent {
    /// A client sends a request to its region.
    Asked { session: usize, turn: usize },
    /// A forwarded request arrives at a node of this region.
    Guest { request: usize, region: usize },
    /// The refusal of a forwarded request arrives back at its region.
    Refused { request: usize, region: usize },
    /// The first token of a guest's reply arrives at the node that the client asked.
    Answered { request: usize },
    /// A client that was turned away asks again.
    Again { request: usize },
    /// A request that waits is decided about again, unless its wait has ended.
    Paused { request: usize, pause: u32 },
    /// A request arrives at its replica.
    Submitted { request: usize },
    /// The refusal of a replica arrives at the node.
    Rejected { request: usize },
    /// A replica's step ends.
    Step { replica: usize },
    /// The first token of a reply arrives at the node that sent the request.
    Begun { request: usize, cached_tokens: u32 },
    /// The end of a reply arrives at the node that sent the request.
    Ended { request: usize },
    /// A client runs out of patience.
    GivenUp { request: usize },
    /// A node learns that a neighbour sent this request to a replica of the region.
    Shared { request: usize, node: usize, replica: usize },
    /// The nodes of a region look at their replicas.
    Look { region: usize },
    /// A region's first node proposes what has changed in its caches.
    Propose { region: usize },
    /// All regions agree on a proposal.
    Agreed { region: usize, proposal: usize },
    /// A report of one region arrives at another.
    Report { from: usize, to: usize, load: ModelLoad, made: Time },
}

impl World {
    /// Returns a world before its first request. `router` makes the router of each node from its
    /// region, the number of replicas there, and a seed.
    #[must_use]
    pub fn new(
        config: WorldConfig,
        sessions: Vec<Session>,
        router: &mut dyn FnMut(usize, usize, u64) -> Box<dyn Router>,
    ) -> Self {
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let (mut nodes, mut replicas, mut regions) = (Vec::new(), Vec::new(), Vec::new());
        let count = config.regions.len();
        for (number, region) in config.regions.iter().enumerate() {
            let (first_node, first_replica) = (nodes.len(), replicas.len());
            for _ in 0..region.nodes {
                let made = router(number, region.replicas, rng.u64(..));
                nodes.push(SimNode::new(number, made, (region.replicas, count), rng.u64(..)));
            }
            for at in first_replica..first_replica + region.replicas {
                let slow = config.slow.iter().find(|(replica, _)| *replica == at);
                replicas
                    .push(SimReplica::new(config.engine, slow.map_or(1.0, |(_, factor)| *factor)));
            }
            regions.push(Region {
                nodes: first_node..nodes.len(),
                replicas: first_replica..replicas.len(),
                names: Names::new(region.replicas),
                heard: vec![None; count],
                kv_use: Average::default(),
            });
        }
        let mut agenda = Agenda::default();
        let end = Time::from_s(config.end_s);
        // Only the first request of a session: the next ones follow the replies.
        for (session, asked) in sessions.iter().enumerate().filter(|(_, one)| one.start < end) {
            agenda.put(asked.start, WorldEvent::Asked { session, turn: 0 });
        }
        (0..count).for_each(|region| agenda.put(Time(0), WorldEvent::Look { region }));
        if let Some(every_ms) = config.news.hot_ms {
            // Regions propose one after the other, as in a cluster.
            let at = |region| Time::from_ms(every_ms * (1.0 + region as f64 / count as f64));
            (0..count).for_each(|region| agenda.put(at(region), WorldEvent::Propose { region }));
        }
        Self {
            config,
            agenda,
            now: Time(0),
            sessions,
            requests: Vec::new(),
            regions,
            nodes,
            replicas,
            trie: HotTrie::default(),
            deltas: BTreeMap::new(),
            proposals: 0,
            model: ModelName::from("m"),
            rng,
        }
    }

    /// Runs the world until no request that came in time still waits for its first token.
    #[must_use]
    pub fn run(mut self) -> Figures {
        let end = Time::from_s(self.config.end_s + self.config.patience_s);
        while let Some((at, event)) = self.agenda.take_next().filter(|(at, _)| *at <= end) {
            self.now = at;
            self.happen(event);
        }
        self.figures()
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Asked { session, turn } => self.ask(session, turn),
            WorldEvent::Guest { request, region } => self.welcome(request, region),
            WorldEvent::Refused { request, region } => self.turn_back(request, region),
            WorldEvent::Answered { request } => self.answered(request),
            WorldEvent::Again { request } => self.ask_again(request),
            WorldEvent::Paused { request, pause } => self.pause_over(request, pause),
            WorldEvent::Rejected { request } => self.reject(request),
            WorldEvent::Submitted { request } => self.submit(request),
            WorldEvent::Step { replica } => self.step(replica),
            WorldEvent::Begun { request, cached_tokens } => self.begin(request, cached_tokens),
            WorldEvent::Ended { request } => self.end(request),
            WorldEvent::GivenUp { request } => self.give_up(request),
            WorldEvent::Shared { request, node, replica } => self.share(request, node, replica),
            WorldEvent::Look { region } => self.look(region),
            WorldEvent::Propose { region } => self.propose(region),
            WorldEvent::Agreed { region, proposal } => self.agree(region, proposal),
            WorldEvent::Report { from, to, load, made } => {
                self.regions[to].heard[from] = Some((load, made));
            }
        }
    }

    /// Ends and begins what is due at a replica, and sends the news to the nodes concerned.
    fn step(&mut self, replica: usize) {
        let counts = self.counts(self.now);
        // A later change may have moved the step: this event is then out of date.
        if self.replicas[replica].due != Some(self.now) {
            return;
        }
        let report = self.replicas[replica].step(self.now, counts);
        let heard = self.now.after_us((self.config.news.hop_ms * 1e3) as u64);
        for event in report.events {
            match event {
                EngineEvent::FirstToken { id, cached_tokens } => {
                    let request = usize::try_from(id.0).unwrap_or(usize::MAX);
                    self.agenda.put(heard, WorldEvent::Begun { request, cached_tokens });
                }
                EngineEvent::Finished { id, .. } => {
                    let request = usize::try_from(id.0).unwrap_or(usize::MAX);
                    self.replicas[replica].forget(request);
                    self.agenda.put(heard, WorldEvent::Ended { request });
                }
                EngineEvent::Token { .. } | EngineEvent::Preempted { .. } => {}
            }
        }
        self.schedule(replica);
    }

    /// Adds the next step of a replica to the agenda.
    fn schedule(&mut self, replica: usize) {
        let next = self.replicas[replica].next_step().map(|at| at.max(self.now));
        // A step that is on the agenda already is not added again.
        if next != self.replicas[replica].due || next == Some(self.now) {
            self.replicas[replica].due = next;
            if let Some(at) = next {
                self.agenda.put(at, WorldEvent::Step { replica });
            }
        }
    }

    /// Returns true if events at this moment count for the figures.
    fn counts(&self, at: Time) -> bool {
        at >= Time::from_s(self.config.warm_up_s) && at < Time::from_s(self.config.end_s)
    }

    /// Returns the microseconds of the one-way path from one region to another.
    fn way_us(&self, from: usize, to: usize) -> u64 {
        (self.config.rtt_ms[from][to] * 500.0) as u64
    }
}

#[cfg(test)]
mod drive_test;
#[cfg(test)]
mod world_test;
