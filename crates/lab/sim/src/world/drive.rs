//! Driver of requests: carries out one verdict of a router after the other.

use std::time::{Duration, Instant};

use spillway_journey::{Event as Outcome, RegionFailure};

use super::moves::Caches;
use super::node::SimNode;
use super::record::Fate;
use super::request::{Assignment, Request, RequestState};
use super::{World, WorldEvent};
use crate::Time;
use crate::router::{Ask, Router, RouterVerdict, WorldView};

impl World {
    /// Carries out the decisions of a request's node until the request has to wait for something.
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
                    let assignment = Assignment {
                        replica: self.groups[self.nodes[node].group].replicas.start + replica,
                        sent: self.now,
                        prediction,
                        pending_tokens: asked.prompt_tokens.saturating_sub(counted),
                        context_tokens: 0.0,
                        read_tokens: 0,
                        first_token: None,
                    };
                    // In virtual time no other request takes the slot in between.
                    self.tell(request, node, Outcome::Asked);
                    return self.assign(request, replica, assignment);
                }
                RouterVerdict::Forward(region) => {
                    self.leave_queue(request);
                    if self.is_unconnected(node, region) {
                        let failure = RegionFailure::NotConnected;
                        self.tell(
                            request,
                            node,
                            Outcome::RegionFailed { failure, can_repeat: true },
                        );
                        continue;
                    }
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
                    let way_us = self.client_us(request, node);
                    return self.over(request, Fate::Failed, way_us);
                }
            }
        }
    }

    /// Reports to a node's router the outcome of its verdict.
    pub(super) fn tell(&mut self, request: usize, node: usize, outcome: Outcome) {
        self.asking(request, node, |router, ask, sight, _| router.handle(ask, sight, outcome));
    }

    /// Lets a router look at a request and at what its node knows now.
    pub(super) fn asking<R>(
        &mut self,
        request: usize,
        node: usize,
        act: impl FnOnce(&mut dyn Router, &Ask<'_>, &WorldView<'_>, &mut fastrand::Rng) -> R,
    ) -> R {
        let others = self.others(node);
        let (now, instant) = (self.now, self.instant());
        let asked = &self.requests[request];
        let tenant = self.config.tenant_of(asked.session);
        let weight = self.config.tenants.get(tenant).map_or(1, |tenant| tenant.weight);
        let node = &mut self.nodes[node];
        let group = &self.groups[node.group];
        let truth = Caches {
            replicas: &self.replicas[group.replicas.clone()],
            engine_chain: &asked.engine_chain,
            chain: asked.chain().as_slice(),
        };
        let (own, node_count) = (node.own_report(now), node.report.nodes);
        let SimNode { router, rng, replicas, guests, queue, .. } = node;
        let sight = WorldView {
            now: instant,
            now_ms: now.ms(),
            replicas,
            others: &others,
            own,
            queue,
            nodes: node_count,
            guests: *guests,
            truth: &truth,
        };
        let ask = Ask {
            number: request,
            inquiry: &asked.inquiry,
            prompt_tokens: asked.prompt_tokens,
            ticket: asked.ticket,
            tenant,
            weight,
        };
        act(router.as_mut(), &ask, &sight, rng)
    }

    /// Rejects a request. A guest goes back to its region. A client retries at the promised time,
    /// if its patience lasts until then.
    fn shed(&mut self, request: usize, after: Option<Duration>) {
        let asked = &mut self.requests[request];
        asked.state = RequestState::Moving;
        let node = asked.node;
        if asked.inquiry.hop > 0 {
            self.nodes[node].router.left(request);
            return self.send_back(request);
        }
        if asked.part_of.is_some() {
            return self.try_ended(request);
        }
        let after_us = after.map(|after| u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
        let gives_up =
            self.requests[request].arrived.after_us((self.config.patience_s * 1e6) as u64);
        // The rejection and the retry cross the same network.
        let way_us = self.client_us(request, node);
        let again = after_us.map(|after_us| self.now.after_us(after_us + 2 * way_us));
        match again.filter(|again| *again < gives_up) {
            Some(again) => {
                self.nodes[node].router.left(request);
                let asked = &mut self.requests[request];
                asked.returns += 1;
                asked.asked_again_ms = again.ms_since(asked.arrived);
                let attempt = self.requests[request].attempt;
                self.agenda.put(again, WorldEvent::Again { request, attempt });
            }
            None => {
                let fate = if after.is_some() { Fate::Shed } else { Fate::Failed };
                self.over(request, fate, way_us);
            }
        }
    }

    /// Lets a rejected client ask the same node again, or the node that it was moved to.
    pub(super) fn ask_again(&mut self, request: usize) {
        if self.requests[request].state != RequestState::Moving {
            return;
        }
        if self.is_region_lost(self.region_of(self.requests[request].entry)) {
            let Some(region) = self.asked_region(self.requests[request].region) else {
                return self.over(request, Fate::Failed, 0);
            };
            let node = self.rng.usize(self.groups[self.entry_group(region)].nodes.clone());
            let asked = &mut self.requests[request];
            (asked.entry, asked.node) = (node, node);
        }
        self.drive(request);
    }

    /// Ends a request: its nodes forget it, and its client, which learns of it after so many
    /// microseconds, goes on.
    pub(super) fn over(&mut self, request: usize, fate: Fate, way_us: u64) {
        let asked = &mut self.requests[request];
        // The client gets its stream from another part, or the stream ends.
        if asked.part_of.is_some() {
            return self.try_ended(request);
        }
        debug_assert!(asked.fate == Fate::Open, "{asked:?} ends a second time");
        (asked.state, asked.fate) = (RequestState::Over, fate);
        self.open -= 1;
        let (entry, node, hop) = (asked.entry, asked.node, asked.inquiry.hop);
        self.nodes[entry].router.left(request);
        self.nodes[node].router.left(request);
        if hop > 0 {
            let (region, instant) = (self.region_of(node), self.instant());
            self.nodes[entry].count_forwarded(region, 0, 1, instant);
        }
        self.go_on(request, way_us);
    }

    /// Lets the client of a request that is over ask what follows it.
    fn go_on(&mut self, request: usize, way_us: u64) {
        let Request { session, turn, .. } = self.requests[request];
        self.ended_turns[session] += 1;
        let ended = self.ended_turns[session];
        let turns = &self.sessions[session].turns;
        let followers = turns.iter().enumerate().skip(turn + 1);
        let next = followers.take_while(|(_, next)| next.after.is_some());
        let next = next.filter(|(_, next)| next.after == Some(turn));
        // A turn that follows all before it starts once the last of them is over.
        let task = turns.get(ended).filter(|next| next.after.is_none()).map(|next| (ended, next));
        let end = Time::from_s(self.config.end_s);
        for (turn, next) in next.chain(task) {
            let at = self.now.after_us(way_us + next.think_us);
            // Sessions end with the load.
            if at < end {
                self.agenda.put(at, WorldEvent::Asked { session, turn });
            }
        }
    }

    /// Returns the present moment.
    pub(super) fn instant(&self) -> Instant {
        self.config.origin + self.now.since_start()
    }
}
