//! Way of a request from its client to a node and to a replica.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use spillway_engine::{Request as EngineRequest, RequestId};
use spillway_route::{RegionReport, WaitEntry};
use spillway_types::{BlockHashes, Deadline, Inquiry, Residency};

use super::node::Node;
use super::replica::Replica;
use super::request::{Placed, Request, State};
use super::{Event, World};
use crate::router::{Ask, RegionSight, Sent, Sight, Truth, Verdict};
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
            engine_chain: asked.prompt.with(asked.reply).engine_chain(),
            prompt_tokens,
            reply_tokens: asked.reply.tokens,
            refused: Vec::new(),
            state: State::Moving,
            ticket: None,
            cached_tokens: 0,
            first_token_ms: None,
            prediction_error: None,
            ended_ms: None,
            replica: None,
            was_refused: false,
            waited: false,
        });
        let given_up = self.now.after_us((self.config.patience_s * 1e6) as u64);
        self.agenda.put(given_up, Event::GivenUp { request: number });
        self.decide(number, false);
    }

    /// Lets the request's node decide, and carries out its verdict. Returns true unless the request
    /// waits there.
    pub(super) fn decide(&mut self, request: usize, has_turn: bool) -> bool {
        let node = self.requests[request].node;
        self.refresh(node);
        let verdict = self.verdict(request, has_turn);
        match verdict {
            Verdict::Serve { replica, prediction } => {
                let counted = prediction.map_or(0, |prediction| prediction.cached_tokens);
                let placed = Placed {
                    replica: self.regions[self.nodes[node].region].replicas.start + replica,
                    sent: self.now,
                    prediction,
                    pending_tokens: self.requests[request].prompt_tokens.saturating_sub(counted),
                    first_token: None,
                };
                self.place(request, replica, placed);
            }
            Verdict::Forward(region) => self.forward(request, region),
            Verdict::Wait => return !self.wait(request),
            Verdict::Shed => self.requests[request].state = State::Over,
        }
        true
    }

    fn verdict(&mut self, request: usize, has_turn: bool) -> Verdict {
        let others = self.others(self.requests[request].node);
        let (now, instant) = (self.now, self.config.origin + self.now.since_start());
        let asked = &self.requests[request];
        let node = &mut self.nodes[asked.node];
        let region = &self.regions[node.region];
        let truth = Caches {
            replicas: &self.replicas[region.replicas.clone()],
            engine_chain: &asked.engine_chain,
            chain: asked.chain().as_slice(),
        };
        let own = node.own_report(now);
        let waiting = node.waiting(has_turn);
        let Node { router, rng, replicas, guests, .. } = node;
        let sight = Sight {
            now: instant,
            now_ms: now.ms(),
            replicas,
            others: &others,
            own,
            waiting,
            nodes: u32::try_from(region.nodes.len()).unwrap_or(u32::MAX),
            guests: *guests,
            truth: &truth,
        };
        let ask = Ask {
            number: request,
            inquiry: &asked.inquiry,
            prompt_tokens: asked.prompt_tokens,
            refused: &asked.refused,
        };
        // A guest is admitted or refused once, on its arrival.
        let is_new_guest = asked.inquiry.hop > 0 && asked.state == State::Moving;
        if is_new_guest && !router.admits(&ask, &sight) {
            return Verdict::Shed;
        }
        router.decide(&ask, &sight, rng)
    }

    /// Returns the other regions as a node sees them.
    fn others(&self, node: usize) -> Vec<RegionSight> {
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
    fn place(&mut self, request: usize, replica: usize, placed: Placed) {
        let node = self.requests[request].node;
        self.requests[request].state = State::Placed(placed);
        self.requests[request].replica = Some(placed.replica);
        self.nodes[node].send(replica, placed.pending_tokens);
        if self.requests[request].inquiry.hop > 0 {
            self.nodes[node].guests += 1;
        }
        self.tell_sent(request, (node, replica), true);
        let hop_us = (self.config.news.hop_ms * 1e3) as u64;
        self.agenda.put(self.now.after_us(hop_us), Event::Submitted { request });
        let Some(share_ms) = self.config.news.share_ms else { return };
        let heard = self.now.after_us((share_ms * 1e3) as u64);
        for other in self.regions[self.nodes[node].region].nodes.clone() {
            if other != node {
                self.agenda.put(heard, Event::Shared { request, node: other, replica });
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
        let State::Placed(placed) = request.state else { return };
        let asked = EngineRequest {
            id: RequestId(number as u64),
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.reply_tokens,
            blocks: request.engine_chain.clone(),
        };
        let chain = request.chain().clone();
        // The engine's queue is full: the request fails.
        if self.replicas[placed.replica].submit(self.now, asked, chain).is_err() {
            request.was_refused = true;
            self.release(number, &placed);
            return;
        }
        self.schedule(placed.replica);
    }

    fn forward(&mut self, request: usize, region: usize) {
        let asked = &mut self.requests[request];
        asked.state = State::Moving;
        let (home, node) = (asked.region, asked.entry);
        self.nodes[node].count_forwarded(region, 1, 0, self.config.origin + self.now.since_start());
        let arrival = self.now.after_us(self.way_us(home, region));
        self.agenda.put(arrival, Event::Guest { request, region });
    }

    /// Lets an arriving guest be served here, or sends it back.
    pub(super) fn welcome(&mut self, request: usize, region: usize) {
        // The client gave up while the request was on its way.
        if self.requests[request].state == State::Over {
            return;
        }
        let node = self.rng.usize(self.regions[region].nodes.clone());
        self.requests[request].node = node;
        self.requests[request].inquiry.hop = 1;
        self.refresh(node);
        if let Verdict::Serve { replica, prediction } = self.verdict(request, false) {
            let counted = prediction.map_or(0, |prediction| prediction.cached_tokens);
            let placed = Placed {
                replica: self.regions[region].replicas.start + replica,
                sent: self.now,
                prediction,
                pending_tokens: self.requests[request].prompt_tokens.saturating_sub(counted),
                first_token: None,
            };
            self.place(request, replica, placed);
            return;
        }
        let home = self.requests[request].region;
        let back = self.now.after_us(self.way_us(region, home));
        self.agenda.put(back, Event::Refused { request, region });
    }

    /// Takes back a guest that another region refused, and decides again.
    pub(super) fn turn_back(&mut self, request: usize, region: usize) {
        let instant = self.config.origin + self.now.since_start();
        let asked = &mut self.requests[request];
        self.nodes[asked.entry].count_forwarded(region, 0, 1, instant);
        // The client gave up while the request was on its way.
        if asked.state == State::Over {
            return;
        }
        asked.node = asked.entry;
        asked.inquiry.hop = 0;
        asked.refused.push(region);
        self.decide(request, false);
    }

    /// Puts a request into its node's queue. Returns false if the queue takes no more.
    fn wait(&mut self, request: usize) -> bool {
        let asked = &mut self.requests[request];
        let entry = WaitEntry {
            bytes: asked.inquiry.prompt_bytes as usize,
            ..WaitEntry::new(request, asked.inquiry.deadline)
        };
        let instant = self.config.origin + self.now.since_start();
        match self.nodes[asked.node].waiting.push(entry, instant) {
            Ok(ticket) => {
                (asked.state, asked.ticket, asked.waited) = (State::Waiting, Some(ticket), true);
                true
            }
            Err(_) => {
                asked.state = State::Over;
                false
            }
        }
    }

    /// Decides about the requests that wait in a node, one after the other, until the first finds
    /// no place.
    pub(super) fn wake(&mut self, node: usize) {
        let instant = self.config.origin + self.now.since_start();
        while let Some((_, entry)) = self.nodes[node].waiting.pop_next(instant) {
            // Regions that refused before may have room by now.
            self.requests[entry.item].refused.clear();
            if !self.decide(entry.item, true) {
                return;
            }
        }
    }

    /// Decides about all requests that wait in a node: a place may be free, here or elsewhere.
    pub(super) fn look_at_waiting(&mut self, node: usize) {
        let instant = self.config.origin + self.now.since_start();
        let mut waiting = Vec::new();
        while let Some((_, entry)) = self.nodes[node].waiting.pop_next(instant) {
            waiting.push(entry.item);
        }
        for request in waiting {
            // Regions that refused before may have room by now.
            self.requests[request].refused.clear();
            self.decide(request, true);
        }
    }
}

/// Caches of a region, for one request.
#[derive(Debug)]
struct Caches<'a> {
    replicas: &'a [Replica],
    engine_chain: &'a [u64],
    chain: &'a [u64],
}

impl Truth for Caches<'_> {
    fn cached_blocks(&self, replica: usize) -> u32 {
        self.replicas[replica].cached_blocks(self.engine_chain, self.chain)
    }
}
