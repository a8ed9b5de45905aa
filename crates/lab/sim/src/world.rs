//! World of a simulation: clients, nodes, replicas, and the network between them.

mod breaks;
mod build;
mod config;
mod continuations;
mod datagrams;
mod drains;
mod drive;
mod fault;
mod figures;
mod found_limit;
mod gossip;
mod kv_events;
mod kv_streams;
mod limits;
mod links;
mod looks;
mod moves;
mod node;
mod paths;
mod record;
mod replica;
mod replies;
mod request;
mod request_news;
mod stream;
mod streams;
mod wait;

pub use config::{News, Operator, RegionConfig, Tenant, WorldConfig};
pub use fault::{Fault, FaultKind};
pub use figures::{Figures, RegionFigures};
pub use record::{Fate, Record, Slo};
pub use stream::StreamRecord;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use spillway_engine::EngineEvent;
use spillway_prefix::{HotDelta, HotTrie};
use spillway_types::ModelName;

use crate::{Agenda, Session, Time};
use datagrams::Network;
use kv_streams::KvStreams;
use node::{Names, SimNode};
use replica::SimReplica;
use request::{Request, Station};
use stream::{SourceEnd, Stream};

/// Longest time in seconds that the last replies may take once they have begun.
const REPLY_S_MAX: f64 = 600.0;

/// Run in progress.
#[derive(Debug)]
pub struct World {
    config: WorldConfig,
    agenda: Agenda<WorldEvent>,
    now: Time,
    /// Faults that have begun and not ended.
    faults: Vec<Fault>,
    sessions: Vec<Session>,
    /// Turns of each session that have ended.
    ended_turns: Vec<usize>,
    requests: Vec<Request>,
    /// Streams by the numbers of their clients' requests; none unless streams are continued.
    streams: BTreeMap<usize, Stream>,
    /// Requests that are not over.
    open: usize,
    regions: Vec<Region>,
    groups: Vec<Group>,
    nodes: Vec<SimNode>,
    replicas: Vec<SimReplica>,
    /// Round-trip times that nodes of each region believe, in milliseconds.
    believed_rtt_ms: Vec<Vec<f32>>,
    /// Hot trie that all regions agree on, and changes that were proposed to it.
    trie: HotTrie,
    deltas: BTreeMap<usize, HotDelta>,
    proposals: usize,
    kv_streams: KvStreams,
    network: Network,
    model: ModelName,
    rng: fastrand::Rng,
    /// Draws which news get lost or late: apart, so that all else is drawn as without losses.
    luck: fastrand::Rng,
}

/// Region of the map: its replicas.
#[derive(Debug)]
struct Region {
    replicas: Range<usize>,
}

/// Nodes that run in one region and share their replicas: those of that region, or of all regions.
#[derive(Debug)]
struct Group {
    /// Region in which the nodes run.
    region: usize,
    nodes: Range<usize>,
    replicas: Range<usize>,
    /// Region of each replica.
    homes: Arc<[usize]>,
    names: Names,
}

/// Events of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WorldEvent {
    /// A client sends a request.
    Asked { session: usize, turn: usize },
    /// A request arrives at the node that its client asks.
    Arrived { request: usize, attempt: u32 },
    /// A forwarded request arrives at a node of this region.
    Guest { request: usize, region: usize, attempt: u32 },
    /// The refusal of a forwarded request arrives back at its region.
    Refused { request: usize, region: usize, attempt: u32 },
    /// The first token of a guest's reply arrives at the node that the client asked.
    Answered { request: usize, attempt: u32 },
    /// The end of a guest's reply arrives at the node that the client asked.
    BroughtBack { request: usize, attempt: u32 },
    /// A rejected client asks again.
    Again { request: usize, attempt: u32 },
    /// A request that waits is decided about again, unless its wait has ended.
    Paused { request: usize, pause: u32 },
    /// A request arrives at its replica.
    Submitted { request: usize, attempt: u32 },
    /// The refusal of a replica arrives at the node.
    Rejected { request: usize, attempt: u32 },
    /// A replica's step ends.
    Step { replica: usize },
    /// The first token of a reply arrives at the node that sent the request.
    Begun { request: usize, cached_tokens: u32, attempt: u32 },
    /// The end of a reply arrives at the node that sent the request.
    Ended { request: usize, attempt: u32 },
    /// A client runs out of patience.
    GivenUp { request: usize },
    /// A node learns that a neighbour sent this request to a replica of the region.
    Shared { request: usize, node: usize, replica: usize },
    /// A node learns that a replica has the whole of this request cached.
    Written { request: usize, node: usize, replica: usize },
    /// A node learns what became of a request that it, or a neighbour, forwarded.
    Forwarded { request: usize, node: usize, region: usize, station: Station },
    /// The nodes of a group look at their replicas.
    Look { group: usize },
    /// A node measures its load and reports it to others.
    Tick { node: usize },
    /// A node counts its requests, and those that others of the region reported.
    Count { node: usize },
    /// A node's gossip is due.
    Gossip { node: usize },
    /// A datagram of gossip arrives.
    Datagram { number: usize },
    /// The nodes of a group update their limits of requests in flight.
    FindLimits { group: usize },
    /// The oldest news that a replica's engine published of its cache arrives.
    KvEvents { replica: usize },
    /// A group's first node proposes the changes in its caches.
    Propose { group: usize },
    /// All regions agree on a proposal.
    Agreed { group: usize, proposal: usize },
    /// A fault of the world's list begins.
    Broken { fault: usize },
    /// A fault of the world's list ends.
    Repaired { fault: usize },
    /// The node that forwarded a request sees that the link broke.
    LinkBroken { request: usize, attempt: u32 },
    /// A node learns that a replica refused the connection.
    Unconnected { request: usize, attempt: u32 },
    /// A later token of a reply arrives at the node that the client asked.
    Token { request: usize, token: u32, attempt: u32 },
    /// The node that the client asked learns that the replica of a guest's reply failed.
    SourceBroke { request: usize, attempt: u32 },
    /// The source of a stream is judged by time.
    StreamDue { request: usize },
    /// The search that this part of a stream was sent for has had its time.
    SearchOver { request: usize },
    /// The search for a target that continues a stream goes on.
    SearchPaused { request: usize },
    /// A node looks after a request that it forwarded.
    Watched { request: usize },
}

impl WorldEvent {
    /// Returns the request and the attempt that the event belongs to; `None` if it happens whatever
    /// the outcome of attempts.
    fn attempt(&self) -> Option<(usize, u32)> {
        match *self {
            Self::Arrived { request, attempt }
            | Self::Again { request, attempt }
            | Self::Guest { request, attempt, .. }
            | Self::Refused { request, attempt, .. }
            | Self::Answered { request, attempt }
            | Self::BroughtBack { request, attempt }
            | Self::Submitted { request, attempt }
            | Self::Rejected { request, attempt }
            | Self::Begun { request, attempt, .. }
            | Self::Ended { request, attempt }
            | Self::LinkBroken { request, attempt }
            | Self::Token { request, attempt, .. }
            | Self::SourceBroke { request, attempt }
            | Self::Unconnected { request, attempt } => Some((request, attempt)),
            _ => None,
        }
    }
}

impl World {
    /// Runs the world until all requests that came in time have ended.
    #[must_use]
    pub fn run(mut self) -> Figures {
        let end = Time::from_s(self.config.end_s);
        let last = Time::from_s(self.config.end_s + self.config.patience_s + REPLY_S_MAX);
        while let Some((at, event)) = self.agenda.take_next() {
            if at > last || at > end && self.open == 0 {
                break;
            }
            self.now = at;
            match self.held_until(&event) {
                _ if self.is_void(&event) => {}
                Some(later) => self.agenda.put(later, event),
                None => self.happen(event),
            }
        }
        self.figures()
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Asked { session, turn } => self.ask(session, turn),
            WorldEvent::Arrived { request, .. } => self.arrive(request),
            WorldEvent::Guest { request, region, .. } => self.welcome(request, region),
            WorldEvent::Refused { request, region, .. } => self.turn_back(request, region),
            WorldEvent::Answered { request, .. } => self.answered(request),
            WorldEvent::BroughtBack { request, .. } => self.brought_back(request),
            WorldEvent::Again { request, .. } => self.ask_again(request),
            WorldEvent::Paused { request, pause } => self.pause_over(request, pause),
            WorldEvent::Rejected { request, .. } => self.reject(request),
            WorldEvent::Submitted { request, .. } => self.submit(request),
            WorldEvent::Step { replica } => self.step(replica),
            WorldEvent::Begun { request, cached_tokens, .. } => self.begin(request, cached_tokens),
            WorldEvent::Ended { request, .. } => self.end(request),
            WorldEvent::GivenUp { request } => self.give_up(request),
            WorldEvent::Shared { request, node, replica } => {
                self.report_sent(request, (node, replica), false);
            }
            WorldEvent::Written { request, node, replica } => {
                self.report_written(request, (node, replica), false);
            }
            WorldEvent::Forwarded { request, node, region, station } => {
                self.tell_forwarded((request, node), region, station);
            }
            WorldEvent::Look { group } => self.look(group),
            WorldEvent::Tick { node } => self.tick(node),
            WorldEvent::Count { node } => self.count(node),
            WorldEvent::Gossip { node } => self.gossip_due(node),
            WorldEvent::Datagram { number } => self.take_datagram(number),
            WorldEvent::FindLimits { group } => self.find_limits(group),
            WorldEvent::KvEvents { replica } => self.take_kv_events(replica),
            WorldEvent::Propose { group } => self.propose(group),
            WorldEvent::Agreed { group, proposal } => self.agree(group, proposal),
            WorldEvent::Broken { fault } => self.break_down(fault),
            WorldEvent::Repaired { fault } => self.repair(fault),
            WorldEvent::LinkBroken { request, .. } => self.link_broken(request),
            WorldEvent::Unconnected { request, .. } => self.unconnected(request),
            WorldEvent::Token { request, token, .. } => self.take_token(request, token),
            WorldEvent::SourceBroke { request, .. } => {
                self.requests[request].attempt += 1;
                self.source_over(request, SourceEnd::Broke);
            }
            WorldEvent::StreamDue { request } => self.judge_stream(request),
            WorldEvent::SearchOver { request } => self.search_over(request),
            WorldEvent::SearchPaused { request } => self.search_paused(request),
            WorldEvent::Watched { request } => self.watched(request),
        }
    }

    /// Returns true if an event is of an attempt that a fault has ended.
    fn is_void(&self, event: &WorldEvent) -> bool {
        event.attempt().is_some_and(|(request, attempt)| self.requests[request].attempt != attempt)
    }

    /// Ends and begins the steps due at a replica, and sends the news to the nodes concerned.
    fn step(&mut self, replica: usize) {
        let counts = self.counts(self.now);
        // A later change may have moved the step: this event is then out of date.
        if self.replicas[replica].due != Some(self.now) {
            return;
        }
        let mut is_poisoned = false;
        let report = self.replicas[replica].step(self.now, counts);
        self.send_kv_events(replica);
        for event in report.events {
            match event {
                EngineEvent::FirstToken { id, cached_tokens } => {
                    let request = usize::try_from(id.0).unwrap_or(usize::MAX);
                    let heard = self.heard_at(request, replica);
                    self.requests[request].generated = 1;
                    let attempt = self.requests[request].attempt;
                    let begun = WorldEvent::Begun { request, cached_tokens, attempt };
                    self.agenda.put(heard, begun);
                }
                EngineEvent::Finished { id, .. } => {
                    let request = usize::try_from(id.0).unwrap_or(usize::MAX);
                    self.replicas[replica].forget(request);
                    let heard = self.heard_at(request, replica);
                    let attempt = self.requests[request].attempt;
                    self.agenda.put(heard, WorldEvent::Ended { request, attempt });
                }
                EngineEvent::Token { id } if self.continues_streams() => {
                    let request = usize::try_from(id.0).unwrap_or(usize::MAX);
                    self.requests[request].generated += 1;
                    self.send_token(request, replica);
                    is_poisoned |= self.is_poison(request);
                }
                EngineEvent::Token { .. } | EngineEvent::Preempted { .. } => {}
            }
        }
        self.schedule(replica);
        if is_poisoned {
            self.lose_replicas(replica..replica + 1);
        }
    }

    /// Returns the moment at which a request's node receives a message that its replica sends now.
    fn heard_at(&self, request: usize, replica: usize) -> Time {
        self.now.after_us(self.reach_us(self.requests[request].node, replica))
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
}

#[cfg(test)]
mod central_test;
#[cfg(test)]
mod drive_test;
#[cfg(test)]
mod fault_test;
#[cfg(test)]
mod gossip_test;
#[cfg(test)]
mod kv_events_test;
#[cfg(test)]
mod news_test;
#[cfg(test)]
mod streams_test;
#[cfg(test)]
mod test_listener;
#[cfg(test)]
mod turns_test;
#[cfg(test)]
mod world_test;
