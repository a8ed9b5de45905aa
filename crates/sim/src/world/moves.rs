//! Way of a request from its client to a node and to a replica.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use spillway_engine::{EngineRequest, RejectedError, RequestId};
use spillway_journey::{Event as Outcome, RegionFailure, StatusClass};
use spillway_route::RegionReport;
use spillway_types::{BlockHashes, Deadline, Inquiry, Residency};

use super::replica::SimReplica;
use super::request::{Placed, Request, RequestState};
use super::{World, WorldEvent};
use crate::router::{RegionSight, Sent, Truth};
use crate::text::{BYTES_PER_TOKEN, router_chain};

/// Output tokens that a client allows per token that it gets: clients ask for more than they need.
const OUTPUT_ALLOWANCE: u32 = 2;

impl World {
    /// Sends a client's request to one of its region's nodes.
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
        let node = self.rng.usize(self.regions[region].nodes.clone());
        self.requests.push(Request {
            session,
            turn,
            region,
            entry: node,
            node,
            arrived: self.now,
            inquiry,
            // With the reply: the engine caches what it generates, too, and the next turn repeats
            // it.
            engine_chain: asked.prompt.with(asked.reply).engine_chain(),
            prompt_tokens,
            reply_tokens: asked.reply.tokens,
            state: RequestState::Moving,
            ticket: None,
            turn_by: None,
            pauses: 0,
            cached_tokens: 0,
            first_token_ms: None,
            prediction_error: None,
            ended_ms: None,
            replica: None,
            waited: false,
        });
        let given_up = self.now.after_us((self.config.patience_s * 1e6) as u64);
        self.agenda.put(given_up, WorldEvent::GivenUp { request: number });
        self.drive(number);
    }

    /// Returns the other regions as a node sees them.
    pub(super) fn others(&self, node: usize) -> Vec<RegionSight> {
        let home = self.nodes[node].region;
        let instant = self.config.origin + self.now.since_start();
        let sight = |region: usize| {
            let way = Duration::from_micros(self.way_us(home, region));
            let traffic = &self.nodes[node].forwarded[region];
            let report = self.regions[home].heard[region].map(|(load, made)| {
                let age = Duration::from_micros(self.now.0 - made.0);
                let (sent, ended) = traffic.history.known_to_report(instant, age, way);
                let since = |now: u64, then: u64| {
                    u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX)
                };
                RegionReport {
                    load,
                    age_ms: self.age_ms(made),
                    sent: since(traffic.sent, sent),
                    ended: since(traffic.ended, ended),
                }
            });
            RegionSight { region, report, rtt_ms: self.config.rtt_ms[home][region] as f32 }
        };
        (0..self.regions.len()).filter(|&region| region != home).map(sight).collect()
    }

    /// Sends a request to a replica, and lets the neighbours learn of it.
    pub(super) fn place(&mut self, request: usize, replica: usize, placed: Placed) {
        let node = self.requests[request].node;
        self.requests[request].state = RequestState::Placed(placed);
        self.requests[request].replica = Some(placed.replica);
        self.nodes[node].send(replica, placed.pending_tokens);
        if self.requests[request].inquiry.hop > 0 {
            self.nodes[node].guests += 1;
        }
        self.tell_sent(request, (node, replica), true);
        let hop_us = (self.config.news.hop_ms * 1e3) as u64;
        self.agenda.put(self.now.after_us(hop_us), WorldEvent::Submitted { request });
        let Some(share_ms) = self.config.news.share_ms else { return };
        let heard = self.now.after_us((share_ms * 1e3) as u64);
        for other in self.regions[self.nodes[node].region].nodes.clone() {
            if other != node {
                self.agenda.put(heard, WorldEvent::Shared { request, node: other, replica });
            }
        }
    }

    pub(super) fn share(&mut self, request: usize, node: usize, replica: usize) {
        self.tell_sent(request, (node, replica), false);
    }

    fn tell_sent(&mut self, request: usize, (node, replica): (usize, usize), is_own: bool) {
        let chain = self.requests[request].chain().as_slice();
        let sent = Sent { replica, chain, is_own, now_ms: self.now.ms() };
        self.nodes[node].router.sent(&sent);
    }

    pub(super) fn submit(&mut self, number: usize) {
        let request = &mut self.requests[number];
        let RequestState::Placed(placed) = request.state else { return };
        let asked = EngineRequest {
            id: RequestId(number as u64),
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.reply_tokens,
            blocks: request.engine_chain.clone(),
        };
        let chain = request.chain().clone();
        match self.replicas[placed.replica].submit(self.now, asked, chain) {
            Ok(()) => self.schedule(placed.replica),
            Err(RejectedError::QueueFull { .. }) => {
                let hop_us = (self.config.news.hop_ms * 1e3) as u64;
                self.agenda
                    .put(self.now.after_us(hop_us), WorldEvent::Rejected { request: number });
            }
            // No other replica would take it either.
            Err(_) => self.release(number, &placed),
        }
    }

    pub(super) fn forward(&mut self, request: usize, region: usize) {
        let asked = &mut self.requests[request];
        asked.state = RequestState::Moving;
        let (home, node) = (asked.region, asked.entry);
        let instant = self.instant();
        self.nodes[node].count_forwarded(region, 1, 0, instant);
        let arrival = self.now.after_us(self.way_us(home, region));
        self.agenda.put(arrival, WorldEvent::Guest { request, region });
    }

    /// Lets an arriving guest be served here, or sends it back.
    pub(super) fn welcome(&mut self, request: usize, region: usize) {
        // The client gave up while the request was on its way.
        if self.requests[request].state == RequestState::Over {
            return;
        }
        let node = self.rng.usize(self.regions[region].nodes.clone());
        self.requests[request].node = node;
        self.requests[request].inquiry.hop = 1;
        self.refresh(node);
        // A guest is admitted or refused once, on its arrival.
        if self.asking(request, node, |router, ask, sight, _| router.admits(ask, sight)) {
            return self.drive(request);
        }
        let home = self.requests[request].region;
        let back = self.now.after_us(self.way_us(region, home));
        self.agenda.put(back, WorldEvent::Refused { request, region });
    }

    /// Takes back a guest that another region refused, and decides again.
    pub(super) fn turn_back(&mut self, request: usize, region: usize) {
        let instant = self.instant();
        let asked = &mut self.requests[request];
        self.nodes[asked.entry].count_forwarded(region, 0, 1, instant);
        // The client gave up while the request was on its way.
        if asked.state == RequestState::Over {
            return;
        }
        asked.node = asked.entry;
        asked.inquiry.hop = 0;
        let (node, failure) = (asked.node, RegionFailure::Refused { wait: None });
        self.tell(request, node, Outcome::RegionFailed { failure, can_repeat: true });
        self.drive(request);
    }

    /// Takes the refusal of a replica whose queue is full.
    pub(super) fn reject(&mut self, number: usize) {
        let RequestState::Placed(placed) = self.requests[number].state else { return };
        let node = self.requests[number].node;
        self.vacate(number, &placed);
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
