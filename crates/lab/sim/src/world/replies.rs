//! Path of a reply back to its client.

use spillway_journey::{Event as Outcome, StatusClass};

use super::record::Fate;
use super::request::{Assignment, Request, RequestState, Station};
use super::stream::SourceEnd;
use super::{World, WorldEvent};
use crate::router::{Ended, Replied, queue_tokens};
use crate::text::router_chain;

impl World {
    /// Notes the beginning of a reply.
    pub(super) fn begin(&mut self, number: usize, cached_tokens: u32) {
        let (now, instant) = (self.now, self.instant());
        let request = &mut self.requests[number];
        let RequestState::Assigned(assignment) = &mut request.state else { return };
        assignment.first_token = Some(now);
        let node = &mut self.nodes[request.node];
        let first_replica = self.groups[node.group].replicas.start;
        assignment.context_tokens = node.replicas[assignment.replica - first_replica].context();
        let assignment = *assignment;
        let latency_ms = now.ms_since(assignment.sent);
        let seen = (instant, latency_ms);
        let read = request.prompt_tokens.saturating_sub(cached_tokens);
        let at = assignment.replica - first_replica;
        node.begin(at, (assignment.pending_tokens, read), seen, assignment.prediction);
        if let RequestState::Assigned(assignment) = &mut request.state {
            assignment.read_tokens = node.replicas[at].read_tokens;
        }
        node.router.replied(&Replied {
            request: number,
            replica: assignment.replica - first_replica,
            chain: request.inquiry.prefix.as_slice(),
            prompt_tokens: request.prompt_tokens,
            cached_tokens,
            first_token_ms: latency_ms,
            prompt_bytes: request.inquiry.prompt_bytes,
            prediction: assignment.prediction,
            now_ms: now.ms(),
        });
        let node = self.requests[number].node;
        let (way_us, home_us) = (self.client_us(number, node), self.home_us(number, node));
        let request = &mut self.requests[number];
        request.cached_tokens = cached_tokens;
        request.first_token_ms = Some(now.ms_since(request.arrived) + way_us as f64 / 1e3);
        let (node, hop) = (request.node, request.inquiry.hop);
        let status = StatusClass::Final;
        self.tell(number, node, Outcome::Replied { status, can_repeat: true });
        self.nodes[node].router.left(number);
        if hop > 0 {
            let attempt = self.requests[number].attempt;
            let at = now.after_us(home_us);
            self.agenda.put(at, WorldEvent::Answered { request: number, attempt });
        } else if self.continues_streams() {
            self.reply_began(number);
        }
    }

    /// Notes at the client's node that another region began to reply.
    pub(super) fn answered(&mut self, number: usize) {
        let entry = self.requests[number].entry;
        self.requests[number].is_answered = true;
        self.tell(number, entry, Outcome::RegionReplied);
        self.nodes[entry].router.left(number);
        if let Some(region) = self.served_by(number) {
            self.spread_forwarded(number, region, Station::Replied);
        }
        if self.continues_streams() {
            self.reply_began(number);
        }
    }

    /// Notes at the client's node that the whole reply of another region has come.
    pub(super) fn brought_back(&mut self, number: usize) {
        if let Some(region) = self.served_by(number) {
            self.spread_forwarded(number, region, Station::Ended);
        }
        if self.continues_streams() {
            self.source_over(number, SourceEnd::Whole);
        }
    }

    /// Returns the region of the replica that a request went to last.
    pub(super) fn served_by(&self, number: usize) -> Option<usize> {
        let replica = self.requests[number].replica?;
        self.regions.iter().position(|region| region.replicas.contains(&replica))
    }

    /// Notes the end of a reply: its client thinks, and asks again.
    pub(super) fn end(&mut self, number: usize) {
        let RequestState::Assigned(assignment) = self.requests[number].state else { return };
        self.tell_ended(number, &assignment);
        let node = self.requests[number].node;
        let way_us = self.client_us(number, node);
        if self.continues_streams() {
            self.part_ended(number, &assignment);
            return self.wake(node);
        }
        if self.requests[number].inquiry.hop > 0 {
            let attempt = self.requests[number].attempt;
            let at = self.now.after_us(self.home_us(number, node));
            self.agenda.put(at, WorldEvent::BroughtBack { request: number, attempt });
        }
        self.release(number, &assignment, Fate::Answered, way_us);
        let request = &mut self.requests[number];
        request.ended_ms = Some(self.now.ms_since(request.arrived) + way_us as f64 / 1e3);
        self.wake(node);
    }

    fn tell_ended(&mut self, number: usize, assignment: &Assignment) {
        let request = &self.requests[number];
        let Some(begun) = assignment.first_token else { return };
        let at = request.node;
        let node = &mut self.nodes[at];
        let replica = assignment.replica - self.groups[node.group].replicas.start;
        let context = node.replicas[replica].context();
        let read = node.replicas[replica].read_tokens;
        let tokens = request.reply_tokens as f32;
        node.reply_tokens =
            Some(node.reply_tokens.map_or(tokens, |mean| mean + (tokens - mean) * 0.02));
        node.router.ended(&Ended {
            request: number,
            replica,
            chain: &router_chain(&request.engine_chain),
            prompt_blocks: request.chain().as_slice().len(),
            // The first token came before the span began.
            tokens: request.reply_tokens - 1,
            span_ms: self.now.ms_since(begun),
            context_tokens: (assignment.context_tokens + context) / 2.0,
            read_tokens: (read - assignment.read_tokens) as f32,
        });
        self.spread_written(number, at, replica);
    }

    /// Lets a client leave if its first token has not come.
    pub(super) fn give_up(&mut self, number: usize) {
        if self.requests[number].first_token_ms.is_some() {
            return;
        }
        let Request { state, node, .. } = self.requests[number];
        match state {
            RequestState::Over => {}
            RequestState::Moving | RequestState::Waiting => {
                self.leave_queue(number);
                self.over(number, Fate::Failed, 0);
            }
            RequestState::Assigned(assignment) => {
                self.replicas[assignment.replica].abort(number);
                self.release(number, &assignment, Fate::Failed, 0);
                self.schedule(assignment.replica);
                self.wake(node);
            }
        }
    }

    /// Notes that a request is no longer at its replica, and over; its client learns of it after so
    /// many microseconds.
    pub(super) fn release(
        &mut self,
        number: usize,
        assignment: &Assignment,
        fate: Fate,
        way_us: u64,
    ) {
        self.vacate(number, assignment);
        // The end of a reply that began was reported before. Other ends are reported nowhere else.
        self.over(number, fate, way_us);
    }

    /// Notes that a request is no longer at its replica.
    pub(super) fn vacate(&mut self, number: usize, assignment: &Assignment) {
        let request = &self.requests[number];
        let node = &mut self.nodes[request.node];
        let replica = assignment.replica - self.groups[node.group].replicas.start;
        // A reply that began took its prompt off the account already.
        if assignment.first_token.is_none() {
            node.replicas[replica].pending_tokens -= assignment.pending_tokens;
            node.limits[replica].settled();
            node.replicas[replica].slots.unbegun = node.limits[replica].unbegun();
        }
        let held_ms = self.now.ms_since(assignment.sent);
        node.end(replica, queue_tokens(&request.inquiry), held_ms, request.prompt_tokens);
        if request.inquiry.hop > 0 {
            node.guests -= 1;
        }
    }
}
