//! Searches for a target that continues a stream. Each try is a part of its own, which goes on a
//! journey as any request does.

use std::time::{Duration, Instant};

use spillway_journey::{
    BreakCause, Ending, ReplyEvent, ReplyFault, StreamBreak, StreamEnd, StreamEvent, StreamRest,
    StreamStep, StreamTarget, Unasked,
};
use spillway_types::{BlockHashes, Deadline, Inquiry};

use super::record::Fate;
use super::request::{Request, RequestState};
use super::stream::StreamFacts;
use super::{REPLY_S_MAX, World, WorldEvent};
use crate::Time;
use crate::router::region_name;
use crate::text::{BYTES_PER_TOKEN, ENGINE_BLOCK_TOKENS, router_chain};

impl World {
    /// Leaves a source that failed, and begins the search for a target that continues the stream.
    pub(super) fn seek(&mut self, of: usize, fault: ReplyFault) {
        let Some(stream) = self.streams.get(&of) else { return };
        let is_death = fault.is_death(stream.reply.source());
        let broke = self.stream_break(of, fault.break_cause(), is_death);
        let source = stream.source;
        self.drop_part(source);
        self.begin_search(of, broke);
    }

    /// Begins the search for a target with room that continues a stream whose source is being
    /// drained. The source keeps its reply until one is found.
    pub(super) fn seek_better(&mut self, of: usize) {
        let broke = self.stream_break(of, BreakCause::Drained, false);
        if broke.rest == StreamRest::LastEvents {
            // Its last events are in transit.
            return self.report(of, ReplyEvent::NotContinued(StreamEnd::NoTargetLeft));
        }
        self.begin_search(of, broke);
    }

    fn stream_break(&self, of: usize, cause: BreakCause, is_death: bool) -> StreamBreak {
        let stream = &self.streams[&of];
        let source = &self.requests[stream.source];
        let group = &self.groups[self.nodes[source.entry].group];
        let target = match (source.forwarded_to, source.replica) {
            (Some(region), _) => Some(StreamTarget::Region(region_name(region))),
            (None, Some(replica)) => {
                let at = replica - group.replicas.start;
                Some(StreamTarget::Replica(group.names.replicas[at].clone()))
            }
            (None, None) => None,
        };
        let rest = match stream.record.tokens {
            0 => StreamRest::Whole,
            tokens if tokens >= self.requests[of].reply_tokens => StreamRest::LastEvents,
            _ => StreamRest::Text,
        };
        StreamBreak { target, rest, cause, is_death }
    }

    fn begin_search(&mut self, of: usize, broke: StreamBreak) {
        if let Some(stream) = self.streams.get_mut(&of) {
            stream.cause = broke.cause;
        }
        self.tell_stream(of, StreamEvent::Broke(broke));
        self.search(of);
    }

    /// Returns the facts that the continuation of a stream reads.
    pub(super) fn stream_facts(&self, of: usize) -> StreamFacts {
        let request = &self.requests[of];
        let (home, begun) = (self.region_of(request.entry), self.config.origin);
        let group = &self.groups[self.nodes[request.entry].group];
        let others = (0..self.regions.len()).filter(|&region| region != home);
        let has_others = self.config.central.is_none();
        let longest = Duration::from_secs_f64(REPLY_S_MAX);
        StreamFacts {
            replicas: group.names.replicas.clone(),
            regions: others.filter(|_| has_others).map(region_name).collect(),
            deadline: Deadline::after(begun + request.arrived.since_start(), longest),
        }
    }

    fn tell_stream(&mut self, of: usize, event: StreamEvent) {
        let (facts, instant) = (self.stream_facts(of), self.instant());
        if let Some(stream) = self.streams.get_mut(&of) {
            stream.continued.on(event, &facts, instant);
            stream.record.deaths = stream.continued.deaths();
        }
    }

    /// Carries out the steps of a search until it has to wait for something.
    fn search(&mut self, of: usize) {
        loop {
            let (facts, instant) = (self.stream_facts(of), self.instant());
            let Some(stream) = self.streams.get_mut(&of) else { return };
            match stream.continued.next(&facts, instant) {
                StreamStep::TakeRetry(_) => {
                    let entry = self.requests[of].entry;
                    let is_allowed = self.nodes[entry].router.take_retry(instant);
                    stream.record.retries += u32::from(is_allowed);
                    self.tell_stream(of, StreamEvent::Retry { is_allowed });
                }
                StreamStep::Try { unasked, until } => return self.try_part(of, unasked, until),
                StreamStep::Pause(pause) => {
                    let over = self.now.after_us(pause.as_micros() as u64);
                    return self.agenda.put(over, WorldEvent::SearchPaused { request: of });
                }
                StreamStep::End(end) => return self.not_continued(of, end),
                StreamStep::Relay => return self.not_continued(of, StreamEnd::Failed),
            }
        }
    }

    fn not_continued(&mut self, of: usize, end: StreamEnd) {
        let Some(stream) = self.streams.get_mut(&of) else { return };
        if stream.cause == BreakCause::Drained {
            stream.continued.stay();
        }
        self.report(of, ReplyEvent::NotContinued(end));
        self.read_on(of);
    }

    /// Sends the rest of a stream's request to a target that is not left out.
    fn try_part(&mut self, of: usize, unasked: Unasked, until: Instant) {
        let part = self.requests.len();
        let Some(stream) = self.streams.get_mut(&of) else { return };
        stream.seeking = Some(part);
        let (tokens, deaths) = (stream.record.tokens, stream.continued.deaths());
        let request = self.rest_of(of, tokens);
        let entry = request.entry;
        self.requests.push(request);
        self.open += 1;
        let over = Time::from(until.saturating_duration_since(self.config.origin)).max(self.now);
        self.agenda.put(over, WorldEvent::SearchOver { request: part });
        self.asking(part, entry, |router, ask, sight, _| {
            router.resume(ask, sight, &unasked, deaths);
        });
        self.drive(part);
    }

    /// Returns the request for the rest of a stream: the text so far is a part of its prompt.
    fn rest_of(&self, of: usize, tokens: u32) -> Request {
        let whole = &self.requests[of];
        let prompt_tokens = whole.prompt_tokens + tokens;
        let blocks = (prompt_tokens / ENGINE_BLOCK_TOKENS) as usize;
        let known = &whole.engine_chain[..blocks.min(whole.engine_chain.len())];
        let inquiry = Inquiry {
            prefix: BlockHashes::new(router_chain(known).to_vec()),
            prompt_bytes: prompt_tokens * BYTES_PER_TOKEN,
            output_tokens_max: whole.inquiry.output_tokens_max.map(|most| most - tokens),
            deadline: self.stream_facts(of).deadline,
            hop: 0,
            ..whole.inquiry.clone()
        };
        Request {
            part_of: Some(of),
            entry: whole.entry,
            node: whole.entry,
            engine_chain: whole.engine_chain.clone(),
            prompt_tokens,
            reply_tokens: whole.reply_tokens - tokens,
            ..Request::new((whole.session, whole.turn), whole.region, self.now, inquiry)
        }
    }

    /// Notes that the journey of a part ended without a reply.
    pub(super) fn try_ended(&mut self, part: usize) {
        let of = self.whole_of(part);
        let entry = self.requests[part].entry;
        let ended = self.nodes[entry].router.ending(part);
        let (ending, deaths) = ended.unwrap_or((Ending::LastFailure, 0));
        self.drop_part(part);
        if let Some(stream) = self.streams.get_mut(&of) {
            stream.seeking = None;
            stream.continued.note_deaths(deaths);
        }
        self.tell_stream(of, StreamEvent::NoReply(ending));
        self.search(of);
    }

    /// Ends the search that a part was sent for, if the part has not begun to reply.
    pub(super) fn search_over(&mut self, part: usize) {
        let of = self.whole_of(part);
        let Some(stream) = self.streams.get_mut(&of) else { return };
        if stream.seeking != Some(part) {
            return;
        }
        stream.seeking = None;
        self.drop_part(part);
        self.tell_stream(of, StreamEvent::TimeOver);
        self.search(of);
    }

    /// Goes on with a search after a pause.
    pub(super) fn search_paused(&mut self, of: usize) {
        // The client may have lost its node during the pause.
        if self.requests[of].state != RequestState::Over {
            self.tell_stream(of, StreamEvent::Paused);
            self.search(of);
        }
    }

    /// Takes a part out of the node and the replica where it is.
    pub(super) fn drop_part(&mut self, part: usize) {
        if self.requests[part].state == RequestState::Over {
            return;
        }
        let node = self.requests[part].node;
        self.withdraw(part);
        self.come_home(part);
        let asked = &mut self.requests[part];
        let entry = asked.entry;
        if asked.part_of.is_some() {
            (asked.state, asked.fate) = (RequestState::Over, Fate::Failed);
            self.open -= 1;
        }
        self.nodes[entry].router.left(part);
        self.wake(node);
    }

    /// Gives a request back to the node that its client asked.
    pub(super) fn come_home(&mut self, request: usize) {
        let instant = self.instant();
        let asked = &mut self.requests[request];
        (asked.node, asked.inquiry.hop) = (asked.entry, 0);
        if let Some(region) = asked.forwarded_to.take() {
            self.nodes[asked.entry].count_forwarded(region, 0, 1, instant);
        }
    }
}
