//! Way of a reply back to its client.

use spillway_journey::{Event as Outcome, StatusClass};

use super::request::{Placed, Request, RequestState};
use super::{World, WorldEvent};
use crate::router::{Ended, Replied};

impl World {
    /// Notes the beginning of a reply.
    pub(super) fn begin(&mut self, number: usize, cached_tokens: u32) {
        let (now, home) = (self.now, self.requests[number].region);
        let request = &mut self.requests[number];
        let RequestState::Placed(placed) = &mut request.state else { return };
        placed.first_token = Some(now);
        let placed = *placed;
        let node = &mut self.nodes[request.node];
        let first_replica = self.regions[node.region].replicas.start;
        let latency_ms = now.ms_since(placed.sent);
        node.begin(placed.replica - first_replica, placed.pending_tokens, latency_ms as f32);
        node.router.replied(&Replied {
            replica: placed.replica - first_replica,
            chain: request.inquiry.prefix.as_slice(),
            prompt_tokens: request.prompt_tokens,
            cached_tokens,
            first_token_ms: latency_ms,
            prompt_bytes: request.inquiry.prompt_bytes,
            prediction: placed.prediction,
            now_ms: now.ms(),
        });
        let region = node.region;
        let way_ms = self.way_us(region, home) as f64 / 1e3;
        let request = &mut self.requests[number];
        request.cached_tokens = cached_tokens;
        request.prediction_error = placed.prediction.map(|prediction| {
            (f64::from(prediction.first_token_ms) - latency_ms).abs() / latency_ms.max(1.0)
        });
        request.first_token_ms = Some(now.ms_since(request.arrived) + way_ms);
        let (node, hop) = (request.node, request.inquiry.hop);
        let status = StatusClass::Final;
        self.tell(number, node, Outcome::Replied { status, can_repeat: true });
        self.nodes[node].router.left(number);
        if hop > 0 {
            let at = now.after_us(self.way_us(region, home));
            self.agenda.put(at, WorldEvent::Answered { request: number });
        }
    }

    /// Notes at the client's node that another region began to reply.
    pub(super) fn answered(&mut self, number: usize) {
        let entry = self.requests[number].entry;
        self.tell(number, entry, Outcome::RegionReplied);
        self.nodes[entry].router.left(number);
    }

    /// Notes the end of a reply: its client thinks, and asks again.
    pub(super) fn end(&mut self, number: usize) {
        let RequestState::Placed(placed) = self.requests[number].state else { return };
        self.tell_ended(number, &placed);
        self.release(number, &placed);
        let home = self.requests[number].region;
        let way_us = self.way_us(self.nodes[self.requests[number].node].region, home);
        let request = &mut self.requests[number];
        request.ended_ms = Some(self.now.ms_since(request.arrived) + way_us as f64 / 1e3);
        let (session, turn) = (request.session, request.turn + 1);
        if let Some(next) = self.sessions[session].turns.get(turn) {
            let at = self.now.after_us(way_us + next.think_us);
            // Sessions end with the load.
            if at.0 < (self.config.end_s * 1e6) as u64 {
                self.agenda.put(at, WorldEvent::Asked { session, turn });
            }
        }
        let node = self.requests[number].node;
        self.wake(node);
    }

    fn tell_ended(&mut self, number: usize, placed: &Placed) {
        let request = &self.requests[number];
        let node = &mut self.nodes[request.node];
        let Some(begun) = placed.first_token else { return };
        node.router.ended(&Ended {
            replica: placed.replica - self.regions[node.region].replicas.start,
            // The first token came before the span began.
            tokens: request.reply_tokens - 1,
            span_ms: self.now.ms_since(begun),
        });
    }

    /// Lets a client leave if its first token has not come.
    pub(super) fn give_up(&mut self, number: usize) {
        if self.requests[number].first_token_ms.is_some() {
            return;
        }
        let Request { state, node, entry, .. } = self.requests[number];
        match state {
            RequestState::Over => {}
            RequestState::Moving | RequestState::Waiting => {
                self.leave_queue(number);
                self.requests[number].state = RequestState::Over;
                self.nodes[entry].router.left(number);
                self.nodes[node].router.left(number);
            }
            RequestState::Placed(placed) => {
                self.replicas[placed.replica].abort(number);
                self.release(number, &placed);
                self.schedule(placed.replica);
                self.wake(node);
            }
        }
    }

    /// Notes that a request is no longer at its replica, and over.
    pub(super) fn release(&mut self, number: usize, placed: &Placed) {
        self.vacate(number, placed);
        // A reply that began was told of before; of others nobody else will hear.
        self.over(number);
    }

    /// Notes that a request is no longer at its replica.
    pub(super) fn vacate(&mut self, number: usize, placed: &Placed) {
        let request = &self.requests[number];
        let node = &mut self.nodes[request.node];
        let replica = placed.replica - self.regions[node.region].replicas.start;
        // A reply that began took its prompt off the account already.
        if placed.first_token.is_none() {
            node.replicas[replica].pending_tokens -= placed.pending_tokens;
        }
        node.end(replica);
        if request.inquiry.hop > 0 {
            node.guests -= 1;
        }
    }
}
