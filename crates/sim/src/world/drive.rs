//! Driver of requests: carries out one verdict of a router after the other.

use std::time::{Duration, Instant};

use spillway_journey::Event as Outcome;

use super::moves::Caches;
use super::node::SimNode;
use super::request::{Placed, RequestState};
use super::{World, WorldEvent};
use crate::router::{Ask, Router, RouterVerdict, Sight};

impl World {
    /// Carries out what a request's node decides, until the request has to wait for something.
    pub(super) fn drive(&mut self, request: usize) {
        let node = self.requests[request].node;
        self.refresh(node);
        loop {
            let verdict = self
                .asking(request, node, |router, ask, sight, rng| router.decide(ask, sight, rng));
            match verdict {
                RouterVerdict::Serve { replica, prediction } => {
                    self.leave_queue(request);
                    let counted = prediction.map_or(0, |prediction| prediction.cached_tokens);
                    let asked = &self.requests[request];
                    let placed = Placed {
                        replica: self.regions[self.nodes[node].region].replicas.start + replica,
                        sent: self.now,
                        prediction,
                        pending_tokens: asked.prompt_tokens.saturating_sub(counted),
                        first_token: None,
                    };
                    // In virtual time nobody takes the place in between.
                    self.tell(request, node, Outcome::Asked);
                    return self.place(request, replica, placed);
                }
                RouterVerdict::Forward(region) => {
                    self.leave_queue(request);
                    return self.forward(request, region);
                }
                RouterVerdict::Wait { terms, claim } => {
                    if self.wait(request, terms, claim) {
                        return;
                    }
                    self.tell(request, node, Outcome::QueueFull);
                }
                RouterVerdict::Pause(pause) if pause.is_zero() => {
                    self.tell(request, node, Outcome::Paused);
                }
                RouterVerdict::Pause(pause) => return self.pause(request, pause),
                RouterVerdict::Shed(after) => {
                    self.leave_queue(request);
                    return self.shed(request, after);
                }
                RouterVerdict::Fail => {
                    self.leave_queue(request);
                    return self.over(request);
                }
            }
        }
    }

    /// Reports to a node's router what came of its verdict.
    pub(super) fn tell(&mut self, request: usize, node: usize, outcome: Outcome) {
        self.asking(request, node, |router, ask, sight, _| router.handle(ask, sight, outcome));
    }

    /// Lets a router look at a request and at what its node knows now.
    pub(super) fn asking<R>(
        &mut self,
        request: usize,
        node: usize,
        act: impl FnOnce(&mut dyn Router, &Ask<'_>, &Sight<'_>, &mut fastrand::Rng) -> R,
    ) -> R {
        let others = self.others(node);
        let (now, instant) = (self.now, self.instant());
        let asked = &self.requests[request];
        let node = &mut self.nodes[node];
        let region = &self.regions[node.region];
        let truth = Caches {
            replicas: &self.replicas[region.replicas.clone()],
            engine_chain: &asked.engine_chain,
            chain: asked.chain().as_slice(),
        };
        let own = node.own_report(now);
        let SimNode { router, rng, replicas, guests, queue, .. } = node;
        let sight = Sight {
            now: instant,
            now_ms: now.ms(),
            replicas,
            others: &others,
            own,
            queue,
            nodes: u32::try_from(region.nodes.len()).unwrap_or(u32::MAX),
            guests: *guests,
            truth: &truth,
        };
        let ask = Ask {
            number: request,
            inquiry: &asked.inquiry,
            prompt_tokens: asked.prompt_tokens,
            ticket: asked.ticket,
        };
        act(router.as_mut(), &ask, &sight, rng)
    }

    /// Turns a request away. A guest goes back to its region; a client comes again when it was told
    /// to, if it has the patience.
    fn shed(&mut self, request: usize, after: Option<Duration>) {
        let asked = &mut self.requests[request];
        asked.state = RequestState::Moving;
        if asked.inquiry.hop > 0 {
            let (node, home) = (asked.node, asked.region);
            let region = self.nodes[node].region;
            self.nodes[node].router.left(request);
            let back = self.now.after_us(self.way_us(region, home));
            self.agenda.put(back, WorldEvent::Refused { request, region });
            return;
        }
        let after_us = after.map(|after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
        let gives_up = asked.arrived.after_us((self.config.patience_s * 1e6) as u64);
        let again = after_us.map(|after_us| self.now.after_us(after_us));
        match again.filter(|again| *again < gives_up) {
            Some(again) => {
                let node = asked.node;
                self.nodes[node].router.left(request);
                self.agenda.put(again, WorldEvent::Again { request });
            }
            None => self.over(request),
        }
    }

    /// Lets a client that was turned away ask the same node again.
    pub(super) fn ask_again(&mut self, request: usize) {
        if self.requests[request].state == RequestState::Moving {
            self.drive(request);
        }
    }

    /// Ends a request: its nodes forget it.
    pub(super) fn over(&mut self, request: usize) {
        let asked = &mut self.requests[request];
        asked.state = RequestState::Over;
        let (entry, node, hop) = (asked.entry, asked.node, asked.inquiry.hop);
        self.nodes[entry].router.left(request);
        self.nodes[node].router.left(request);
        if hop > 0 {
            let (region, instant) = (self.nodes[node].region, self.instant());
            self.nodes[entry].count_forwarded(region, 0, 1, instant);
        }
    }

    /// Returns the present moment.
    pub(super) fn instant(&self) -> Instant {
        self.config.origin + self.now.since_start()
    }
}
