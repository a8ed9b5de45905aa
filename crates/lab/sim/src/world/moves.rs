//! Path of a request from its client to a node and to a replica.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use spillway_engine::{EngineRequest, RejectedError, RequestId};
use spillway_journey::{Event as Outcome, RegionFailure, StatusClass};
use spillway_route::{Guest, RegionReport};
use spillway_types::{BlockHashes, Deadline, Inquiry, Residency};

use super::gossip::{KnownRegion, RegionCounts};
use super::record::Fate;
use super::replica::SimReplica;
use super::request::{Assignment, Request, RequestState, Station};
use super::{World, WorldEvent};
use crate::router::{RemoteRegion, Truth};
use crate::text::{BYTES_PER_TOKEN, router_chain};

/// Output tokens that a client allows per token that it gets: clients ask for more than they need.
const OUTPUT_ALLOWANCE: u32 = 2;

impl World {
    /// Sends a client's request to one of the nodes that its region asks.
    pub(super) fn ask(&mut self, session: usize, turn: usize) {
        let Some(asked) = self.sessions[session].turns.get(turn) else { return };
        let (number, region) = (self.requests.len(), self.sessions[session].region);
        let prompt_tokens = asked.prompt.tokens();
        let chain = router_chain(&asked.prompt.engine_chain());
        let deadline = Duration::from_secs_f64(self.config.patience_s);
        let inquiry = Inquiry {
            model: Some(self.model.clone()),
            prefix: BlockHashes::new(chain.to_vec()),
            prompt_bytes: prompt_tokens * BYTES_PER_TOKEN,
            output_tokens_max: Some(asked.reply.tokens * OUTPUT_ALLOWANCE),
            output_tokens: None,
            whole_tokens: None,
            answers: 1,
            affinity: Some(self.sessions[session].affinity),
            session: None,
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            deadline: Deadline::after(self.config.origin + self.now.since_start(), deadline),
            hop: 0,
            tenant: None,
            priority: 0,
            residency: Residency::default(),
            is_isolated: false,
        };
        let asked_region = self.asked_region(region);
        let nodes = self.groups[self.entry_group(asked_region.unwrap_or(region))].nodes.clone();
        let node = self.rng.usize(nodes);
        self.requests.push(Request {
            entry: node,
            node,
            // With the reply: the engine caches what it generates, too, and the next turn repeats
            // it.
            engine_chain: asked.prompt.with(asked.reply).engine_chain(),
            prompt_tokens,
            reply_tokens: asked.reply.tokens,
            ..Request::new((session, turn), region, self.now, inquiry)
        });
        self.open += 1;
        if asked_region.is_none() {
            return self.over(number, Fate::Failed, 0);
        }
        let given_up = self.now.after_us((self.config.patience_s * 1e6) as u64);
        self.agenda.put(given_up, WorldEvent::GivenUp { request: number });
        match self.client_us(number, node) {
            0 => self.drive(number),
            way_us => {
                let at = self.now.after_us(way_us);
                self.agenda.put(at, WorldEvent::Arrived { request: number, attempt: 0 });
            }
        }
    }

    /// Lets a node decide about a request that came over the network.
    pub(super) fn arrive(&mut self, request: usize) {
        // The client may have given up while the request was in transit.
        if self.requests[request].state != RequestState::Over {
            let usual = self.nodes[self.requests[request].node].reply_tokens;
            self.requests[request].inquiry.output_tokens = usual.map(|tokens| tokens as u32);
            self.drive(request);
        }
    }

    /// Returns the other regions as a node sees them.
    pub(super) fn others(&self, node: usize) -> Vec<RemoteRegion> {
        if self.config.central.is_some() {
            return Vec::new();
        }
        let home = self.region_of(node);
        let sight = |region: usize| {
            let traffic = &self.nodes[node].forwarded[region];
            let known = &self.nodes[node].gossip.regions[region];
            let since =
                |now: u64, then: u64| u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX);
            let report = |known: &KnownRegion| RegionReport {
                load: known.load,
                age_ms: known.age_ms + self.now.ms_since(known.read) as f32,
                sent: since(traffic.sent, known.sent),
                ended: since(traffic.ended, known.ended),
            };
            let RegionCounts { available, waiting, kv_use } =
                known.map(|known| known.counts).unwrap_or_default();
            let replicas = self.regions[region].replicas.len();
            RemoteRegion {
                region,
                // Nothing goes to a region that is being drained.
                report: known
                    .filter(|_| !self.is_known_to_leave(home, region))
                    .as_ref()
                    .map(report),
                rtt_ms: self.seen_rtt_ms(home, region),
                replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
                available,
                waiting,
                kv_use,
            }
        };
        (0..self.regions.len()).filter(|&region| region != home).map(sight).collect()
    }

    /// Sends a request to a replica, which is its node's `replica`th, and lets the neighbours learn
    /// of it.
    pub(super) fn assign(&mut self, request: usize, replica: usize, assignment: Assignment) {
        let node = self.requests[request].node;
        self.requests[request].state = RequestState::Assigned(assignment);
        self.requests[request].replica = Some(assignment.replica);
        let prompt_tokens = self.requests[request].prompt_tokens;
        self.nodes[node].send(replica, assignment.pending_tokens, prompt_tokens);
        if self.requests[request].inquiry.hop > 0 {
            self.nodes[node].guests += 1;
        }
        let reached = self.now.after_us(self.reach_us(node, assignment.replica));
        self.spread_sent(request, node, replica);
        let attempt = self.requests[request].attempt;
        self.agenda.put(reached, WorldEvent::Submitted { request, attempt });
    }

    pub(super) fn submit(&mut self, number: usize) {
        let request = &mut self.requests[number];
        let RequestState::Assigned(assignment) = request.state else { return };
        if self.is_replica_lost(assignment.replica) {
            let heard = self.heard_at(number, assignment.replica);
            let attempt = self.requests[number].attempt;
            return self.agenda.put(heard, WorldEvent::Unconnected { request: number, attempt });
        }
        let request = &mut self.requests[number];
        let node = &mut self.nodes[request.node];
        node.arrived[assignment.replica - self.groups[node.group].replicas.start] += 1;
        let asked = EngineRequest {
            id: RequestId(number as u64),
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.reply_tokens,
            blocks: request.engine_chain.clone(),
        };
        let chain = request.chain().clone();
        match self.replicas[assignment.replica].submit(self.now, asked, chain) {
            Ok(()) => self.schedule(assignment.replica),
            Err(RejectedError::QueueFull { .. }) => {
                let heard = self.heard_at(number, assignment.replica);
                let attempt = self.requests[number].attempt;
                self.agenda.put(heard, WorldEvent::Rejected { request: number, attempt });
            }
            // No other replica would take it either.
            Err(_) => {
                let way_us = self.client_us(number, self.requests[number].node);
                self.release(number, &assignment, Fate::Failed, way_us);
            }
        }
    }

    pub(super) fn forward(&mut self, request: usize, region: usize) {
        let asked = &mut self.requests[request];
        asked.state = RequestState::Moving;
        asked.forwarded_to = Some(region);
        let (attempt, node) = (asked.attempt, asked.entry);
        let home = self.region_of(node);
        let instant = self.instant();
        self.nodes[node].count_forwarded(region, 1, 0, instant);
        self.spread_forwarded(request, region, Station::Sent);
        let way_us = self.way_us(home, region);
        if self.is_broken(home, region) && !self.continues_streams() {
            return self.break_link(request, 2 * way_us);
        }
        self.watch(request);
        self.agenda.put(self.now.after_us(way_us), WorldEvent::Guest { request, region, attempt });
    }

    /// Lets an arriving guest be served here, or sends it back.
    pub(super) fn welcome(&mut self, request: usize, region: usize) {
        // The client gave up while the request was in transit.
        if self.requests[request].state == RequestState::Over {
            let (entry, instant) = (self.requests[request].entry, self.instant());
            return self.nodes[entry].count_forwarded(region, 0, 1, instant);
        }
        let nodes = self.groups[self.entry_group(region)].nodes.clone();
        let node = self.rng.usize(nodes);
        self.requests[request].node = node;
        self.requests[request].inquiry.hop = 1;
        self.refresh(node);
        // A guest is admitted or refused once, on its arrival.
        match self.asking(request, node, |router, ask, sight, _| router.admits(ask, sight)) {
            Guest::Welcome => return self.drive(request),
            Guest::Refused { lack, .. } => {
                for limit in &mut self.nodes[node].limits {
                    lack.into_iter().for_each(|lack| limit.note_guest_lack(lack));
                }
            }
        }
        self.send_back(request);
    }

    /// Sends a guest back to the node that its client asked.
    pub(super) fn send_back(&mut self, request: usize) {
        let asked = &mut self.requests[request];
        let node = std::mem::replace(&mut asked.node, asked.entry);
        asked.inquiry.hop = 0;
        let region = self.region_of(node);
        let back = self.now.after_us(self.home_us(request, node));
        let attempt = self.requests[request].attempt;
        self.agenda.put(back, WorldEvent::Refused { request, region, attempt });
    }

    /// Takes back a guest that another region refused, and decides again.
    pub(super) fn turn_back(&mut self, request: usize, region: usize) {
        let instant = self.instant();
        let asked = &mut self.requests[request];
        self.nodes[asked.entry].count_forwarded(region, 0, 1, instant);
        asked.forwarded_to = None;
        let is_over = asked.state == RequestState::Over;
        self.spread_forwarded(request, region, Station::Refused);
        // The client gave up while the request was in transit.
        if is_over {
            return;
        }
        let (node, failure) = (self.requests[request].node, RegionFailure::Refused { wait: None });
        self.tell(request, node, Outcome::RegionFailed { failure, can_repeat: true });
        self.drive(request);
    }

    /// Takes the refusal of a replica whose queue is full.
    pub(super) fn reject(&mut self, number: usize) {
        let RequestState::Assigned(assignment) = self.requests[number].state else { return };
        let node = self.requests[number].node;
        self.vacate(number, &assignment);
        self.requests[number].state = RequestState::Moving;
        let status = StatusClass::NoRoom;
        self.tell(number, node, Outcome::Replied { status, can_repeat: true });
        self.drive(number);
        self.wake(node);
    }
}

/// Caches of a region, for one request.
#[derive(Debug)]
pub(super) struct Caches<'a> {
    pub(super) replicas: &'a [SimReplica],
    pub(super) engine_chain: &'a [u64],
    pub(super) chain: &'a [u64],
}

impl Truth for Caches<'_> {
    fn cached_blocks(&self, replica: usize) -> u32 {
        self.replicas[replica].cached_blocks(self.engine_chain, self.chain)
    }
}
