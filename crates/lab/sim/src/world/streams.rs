//! Driver of streams: reports the events of a reply to its state machine, and carries out its
//! actions.

use std::time::Instant;

use spillway_gossip::Reach;
use spillway_journey::{
    PartEnd, PieceKind, ReplyAction, ReplyEvent, ReplySource, SourceSight, SourceState, StreamEvent,
};
use spillway_types::ShedState;

use super::record::Fate;
use super::request::{Assignment, RequestState};
use super::stream::{SourceEnd, Stream};
use super::{World, WorldEvent};
use crate::Time;

impl World {
    /// Returns true if streams are continued when their target fails or is being drained.
    pub(super) fn continues_streams(&self) -> bool {
        self.config.operator.continues_streams
    }

    /// Returns the client's request that a request is a part of.
    pub(super) fn whole_of(&self, part: usize) -> usize {
        self.requests[part].part_of.unwrap_or(part)
    }

    /// Sends the client's node a token that a replica generated after the first.
    pub(super) fn send_token(&mut self, part: usize, replica: usize) {
        let token = self.requests[part].generated;
        let heard = self.heard_at(part, replica);
        let at = self.home_at(part, heard);
        let attempt = self.requests[part].attempt;
        self.agenda.put(at, WorldEvent::Token { request: part, token, attempt });
    }

    /// Returns the moment at which the client's node gets what a part's node has at a moment. Nothing
    /// overtakes what was sent before.
    pub(super) fn home_at(&mut self, part: usize, sent: Time) -> Time {
        let node = self.requests[part].node;
        let at = sent.after_us(self.home_us(part, node)).max(self.requests[part].brought);
        self.requests[part].brought = at;
        at
    }

    /// Notes at the client's node that the reply of a part begins.
    pub(super) fn reply_began(&mut self, part: usize) {
        let request = &self.requests[part];
        let source = match request.forwarded_to {
            Some(_) => ReplySource::Region,
            None => ReplySource::Replica,
        };
        let (of, now, instant) = (self.whole_of(part), self.now, self.instant());
        if of == part {
            let deadline = self.stream_facts(part).deadline;
            let stream = Stream::new(part, source, deadline, (now, instant));
            self.streams.insert(part, stream);
        } else {
            self.continued_by(of, part, source);
        }
        self.take_token(part, 1);
    }

    fn continued_by(&mut self, of: usize, part: usize, source: ReplySource) {
        let (facts, instant) = (self.stream_facts(of), self.instant());
        let Some(stream) = self.streams.get_mut(&of) else { return };
        stream.continued.on(StreamEvent::Continued, &facts, instant);
        let before = stream.continue_with(part);
        self.requests[of].replica = self.requests[part].replica;
        // A part whose replica is being drained still has the stream.
        self.drop_part(before);
        self.report(of, ReplyEvent::Continued(source));
    }

    /// Takes a token of a part at the client's node.
    pub(super) fn take_token(&mut self, part: usize, token: u32) {
        let (of, now) = (self.whole_of(part), self.now);
        let is_of_source = |stream: &&mut Stream| stream.source == part;
        let Some(stream) = self.streams.get_mut(&of).filter(is_of_source) else { return };
        if stream.take(token, now) {
            self.pass_on(of, PieceKind::Content);
        }
    }

    /// Hands a piece to the client, which is always fast enough.
    fn pass_on(&mut self, of: usize, kind: PieceKind) {
        self.report(of, ReplyEvent::Piece(kind));
        self.report(of, ReplyEvent::Passed);
        self.report(of, ReplyEvent::Asked);
    }

    /// Takes a reply off its replica that the replica ended.
    pub(super) fn part_ended(&mut self, part: usize, assignment: &Assignment) {
        self.vacate(part, assignment);
        self.requests[part].state = RequestState::Moving;
        if self.requests[part].inquiry.hop > 0 {
            let at = self.home_at(part, self.now);
            let attempt = self.requests[part].attempt;
            self.agenda.put(at, WorldEvent::BroughtBack { request: part, attempt });
        } else {
            self.source_over(part, SourceEnd::Whole);
        }
    }

    /// Takes a reply that has begun off a replica that failed.
    pub(super) fn part_broke(&mut self, part: usize) {
        self.requests[part].state = RequestState::Moving;
        if self.requests[part].inquiry.hop > 0 {
            // Tokens that are already in transit arrive first.
            let at = self.home_at(part, self.now);
            let attempt = self.requests[part].attempt;
            self.agenda.put(at, WorldEvent::SourceBroke { request: part, attempt });
        } else {
            self.requests[part].attempt += 1;
            self.source_over(part, SourceEnd::Broke);
        }
    }

    /// Notes at the client's node that a part of a stream is over.
    pub(super) fn source_over(&mut self, part: usize, end: SourceEnd) {
        let of = self.whole_of(part);
        let is_of_source = |stream: &&mut Stream| stream.source == part;
        let Some(stream) = self.streams.get_mut(&of).filter(is_of_source) else { return };
        if stream.reply.seeks() {
            stream.held_end = Some(end);
            return;
        }
        match end {
            SourceEnd::Whole => {
                self.pass_on(of, PieceKind::Last);
                self.report(of, ReplyEvent::Ended(PartEnd::Whole));
            }
            SourceEnd::Broke => self.report(of, ReplyEvent::Broke),
        }
    }

    /// Reads on from a source that was not read while another target was sought.
    pub(super) fn read_on(&mut self, of: usize) {
        let now = self.now;
        while self.streams.get_mut(&of).is_some_and(|stream| stream.take_held(now)) {
            self.pass_on(of, PieceKind::Content);
        }
        let held = |stream: &mut Stream| Some((stream.source, stream.held_end.take()?));
        if let Some((source, end)) = self.streams.get_mut(&of).and_then(held) {
            self.source_over(source, end);
        }
    }

    /// Reports an input to the state machine of a reply, and carries out what follows.
    pub(super) fn report(&mut self, of: usize, event: ReplyEvent) {
        let instant = self.instant();
        let Some(stream) = self.streams.get_mut(&of) else { return };
        let action = stream.reply.on(event, instant);
        self.carry_out(of, action);
        self.schedule_stream(of);
    }

    /// Lets the state machine of a reply judge its source by time.
    pub(super) fn judge_stream(&mut self, of: usize) {
        let (now, instant) = (self.now, self.instant());
        let Some(stream) = self.streams.get_mut(&of) else { return };
        // A later change may have moved the moment: this event is then out of date.
        if stream.due != Some(now) {
            return;
        }
        stream.due = None;
        if stream.reply.wake_at(None).is_some_and(|wake_at| wake_at <= instant) {
            let sight = SourceSight { state: self.source_state(of), client_sent: None };
            let Some(stream) = self.streams.get_mut(&of) else { return };
            let action = stream.reply.on_time(sight, instant);
            self.carry_out(of, action);
        }
        self.schedule_stream(of);
    }

    fn schedule_stream(&mut self, of: usize) {
        let since = |at: Instant| Time::from(at.saturating_duration_since(self.config.origin));
        let Some(stream) = self.streams.get_mut(&of) else { return };
        let Some(at) = stream.reply.wake_at(None).map(since) else { return };
        let at = at.max(self.now);
        if stream.due.is_none_or(|due| due > at) {
            stream.due = Some(at);
            self.agenda.put(at, WorldEvent::StreamDue { request: of });
        }
    }

    fn carry_out(&mut self, of: usize, action: ReplyAction) {
        match action {
            ReplyAction::Proceed | ReplyAction::KeepAlive => {}
            ReplyAction::Continue(fault) => self.seek(of, fault),
            ReplyAction::Move => self.seek_better(of),
            ReplyAction::Complete | ReplyAction::Finish | ReplyAction::Close => {
                self.finish(of, Fate::Answered);
            }
            ReplyAction::Release(_) | ReplyAction::Break(_) => self.finish(of, Fate::Failed),
        }
    }

    /// Ends a stream for its client.
    pub(super) fn finish(&mut self, of: usize, fate: Fate) {
        let Some(stream) = self.streams.get_mut(&of) else { return };
        let (source, seeking) = (stream.source, stream.seeking.take());
        seeking.into_iter().for_each(|part| self.drop_part(part));
        // A guest whose reply is whole is counted at its end.
        if source != of || fate != Fate::Answered {
            self.drop_part(source);
        }
        let request = &self.requests[of];
        let way_us = self.way_us(self.region_of(request.entry), request.region);
        if fate == Fate::Answered {
            let ended_ms = self.now.ms_since(request.arrived) + way_us as f64 / 1e3;
            self.requests[of].ended_ms = Some(ended_ms);
        }
        self.over(of, fate, way_us);
    }

    /// Ends a stream whose client has lost its node.
    pub(super) fn client_gone(&mut self, of: usize) {
        self.report(of, ReplyEvent::ClientGone);
        self.finish(of, Fate::Failed);
    }

    /// Returns the state of the target that serves a stream, as far as its client's node knows.
    fn source_state(&self, of: usize) -> SourceState {
        let Some(stream) = self.streams.get(&of) else { return SourceState::Well };
        let request = &self.requests[stream.source];
        let (entry, home) = (request.entry, self.region_of(request.entry));
        let is_leaving = match request.forwarded_to {
            Some(region) if !self.is_reachable(entry, region) => return SourceState::OutOfReach,
            Some(region) => self.is_known_to_leave(home, region),
            None => {
                let leaves = |at| self.is_replica_drained(at);
                self.is_region_drained(home) || request.replica.is_some_and(leaves)
            }
        };
        if is_leaving && self.has_room_elsewhere(entry) {
            SourceState::Leaving
        } else {
            SourceState::Well
        }
    }

    /// Returns true if a node receives a region's datagrams and the region receives the node's.
    pub(super) fn is_reachable(&self, node: usize, region: usize) -> bool {
        let name = &self.network.regions[region];
        let view = self.nodes[node].gossip.machine.region(name, self.instant());
        view.is_some_and(|view| view.reach == Reach::Both)
    }

    /// Returns true if a target that is not being drained has room for a stream of this node.
    fn has_room_elsewhere(&self, node: usize) -> bool {
        let home = self.region_of(node);
        let known = &self.nodes[node];
        let is_here = !self.is_region_drained(home)
            && known.replicas.iter().any(|replica| {
                let slots = replica.slots.own_part.min(replica.slots.in_flight_max);
                !replica.is_away && replica.in_flight < slots
            });
        let has_room = |region: usize| {
            let load = known.gossip.regions[region].map(|known| known.load);
            let is_roomy =
                load.is_some_and(|load| load.shed == ShedState::Open && load.is_half_empty());
            is_roomy && !self.is_known_to_leave(home, region)
        };
        is_here || (0..self.regions.len()).any(|region| region != home && has_room(region))
    }
}
