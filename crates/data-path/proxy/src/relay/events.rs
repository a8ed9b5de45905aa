//! Relays an event stream: counts and times its events, and ends it properly if the replica does
//! not.

use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http::response::Parts;
use spillway_journey::{PartEnd, PieceKind, ReplyEvent};
use spillway_protocol::{
    EventFault, EventFlavour, EventOptions, EventRelay, GatewayError, JudgedStream, Next,
    ReplyFacts, Terms, Thread, Unfit,
};
use spillway_request::flavour::Flavour;
use spillway_types::{GapHistogram, TokenCounts};
use spillway_usage::ReplyTokens;

use crate::relay::content::{counts, engine_state, part_end};
use crate::relay::relay_plan::RelayPlan;
use crate::request::{ContinuationPosition, has_events};

/// Most bytes of an incomplete event that are held back, so that an error event never lands in the
/// middle of an event. No event of a language model comes near this size.
const HELD_BYTES_MAX: usize = 256 << 10;

/// Comment that keeps a silent stream alive.
static KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");
/// Event that does so in Anthropic's API, whose own servers send it.
static PING: Bytes = Bytes::from_static(b"event: ping\ndata: {\"type\": \"ping\"}\n\n");

/// Event stream of one reply.
#[derive(Debug)]
pub(crate) struct Events {
    relay: EventRelay,
    options: EventOptions,
    /// Follows a stream that another replica may continue.
    thread: Option<Box<Thread>>,
    flavour: Flavour,
    gaps: Box<GapHistogram>,
    last_event_at: Option<Instant>,
    events_seen: u64,
}

impl Events {
    /// Returns the events of a reply; `None` if it is no readable event stream.
    pub(super) fn of(head: &Parts, plan: &RelayPlan) -> Option<Self> {
        if !has_events(&head.headers) {
            return None;
        }
        let options = EventOptions {
            api: plan.api,
            strip_usage: plan.strip_usage,
            held_bytes_max: HELD_BYTES_MAX,
            judged: judged(head.status == StatusCode::OK, plan.is_known_engine),
        };
        let thread = plan.resume.as_ref().and_then(|resume| resume.thread());
        Some(Self::new(options, plan.flavour, thread))
    }

    fn new(options: EventOptions, flavour: Flavour, thread: Option<Thread>) -> Self {
        Self {
            relay: EventRelay::new(options),
            options,
            thread: thread.map(Box::new),
            flavour,
            gaps: Box::default(),
            last_event_at: None,
            events_seen: 0,
        }
    }

    /// Appends a piece of the stream that arrived at `now`, and shows each event that it completes to
    /// `see`; `None` for an event that is too long to be held.
    pub(crate) fn push(&mut self, piece: Bytes, now: Instant, see: impl FnMut(Option<&[u8]>)) {
        let was_whole = self.relay.at_boundary();
        self.relay.push_seen(piece, see);
        if let Some(thread) = &mut self.thread {
            let is_whole = was_whole && self.relay.at_boundary();
            while let Some(events) = self.relay.pop() {
                if is_whole { thread.push(&events) } else { thread.push_part(events) }
            }
        }
        let events = self.relay.tally().events;
        // Comments and parts of events say nothing about the pace of the tokens.
        if events == self.events_seen {
            return;
        }
        if let Some(last) = self.last_event_at {
            // Events that arrived together share one gap.
            let gap = now.saturating_duration_since(last);
            self.gaps.record(gap);
        }
        self.last_event_at = Some(now);
        self.events_seen = events;
    }

    /// Returns what the stream so far is to its answer. Events without content, such as
    /// `response.created`, come before the prompt is read, as comments do.
    pub(super) fn kind(&self) -> PieceKind {
        let facts = self.relay.facts();
        // A stream in another form than the API's may have its content anywhere.
        let is_in_form = facts.id.is_some() || facts.model.is_some();
        let has_content = facts.has_content || !is_in_form && self.has_spoken();
        if self.is_done() && self.relay.fault().is_none() {
            PieceKind::Last
        } else if has_content {
            PieceKind::Content
        } else {
            PieceKind::NoContent
        }
    }

    /// Returns the failure that the replica reported, whose events are held back.
    pub(super) fn fault(&self) -> Option<ReplyEvent> {
        Some(match self.relay.fault()? {
            EventFault::Error(trouble) => ReplyEvent::Reported(engine_state(trouble)),
            EventFault::GivenUp => ReplyEvent::GivenUp,
            EventFault::Aborted => ReplyEvent::Aborted,
            EventFault::Unfinished => ReplyEvent::Ended(PartEnd::Unfinished),
        })
    }

    /// Judges a stream that its replica ended in good order.
    pub(super) fn part_end(&self) -> PartEnd {
        // The answer of a followed stream may be whole without its last events.
        if self.thread.as_ref().is_some_and(|thread| !thread.is_whole()) {
            return PartEnd::Unfinished;
        }
        match self.options.judged {
            JudgedStream::Nothing => PartEnd::Whole,
            judged => part_end(self.relay.facts(), self.options.api, judged),
        }
    }

    /// Returns the facts of the stream of the replica that serves now.
    pub(super) fn facts(&self) -> &ReplyFacts {
        self.relay.facts()
    }

    /// Returns the next bytes to pass on; `None` if all were.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        match &mut self.thread {
            Some(thread) => thread.pop(),
            None => self.relay.pop(),
        }
    }

    /// Returns true if [`Events::pop`] has more.
    pub(super) fn has_more(&self) -> bool {
        match &self.thread {
            Some(thread) => thread.has_more(),
            None => self.relay.has_more(),
        }
    }

    /// Releases the remaining bytes after the replica ended its reply.
    pub(crate) fn finish(&mut self) {
        self.relay.finish();
        let Some(thread) = &mut self.thread else { return };
        while let Some(events) = self.relay.pop() {
            thread.push(&events);
        }
        thread.release();
    }

    /// Returns true if no replica could continue the stream any more.
    pub(crate) fn is_unfit(&self) -> bool {
        match &self.thread {
            Some(thread) => thread.unfit().is_some(),
            None => self.has_spoken(),
        }
    }

    /// Returns the next step if the replica fails now. `terms` are the terms of the request for a
    /// continuation.
    pub(crate) fn next(&self, terms: Result<&Terms, Unfit>) -> Next {
        match &self.thread {
            Some(thread) => thread.next(terms),
            // The client has seen nothing yet, so the request can start again.
            None if !self.has_spoken() => Next::Afresh,
            None => Next::Unfit(terms.err().unwrap_or(Unfit::Unreadable)),
        }
    }

    /// Returns true if anything but comments was passed on.
    pub(crate) fn has_spoken(&self) -> bool {
        let tally = self.relay.tally();
        let is_held = self.relay.fault().is_some();
        // An event that is held back was not passed on.
        tally.events > u64::from(is_held) || self.relay.done() || !self.relay.at_boundary()
    }

    /// Passes the replica's own error on to the client.
    pub(crate) fn release_fault(&mut self) {
        self.relay.release();
        let Some(thread) = &mut self.thread else { return };
        thread.release();
        while let Some(events) = self.relay.pop() {
            thread.push_part(events);
        }
    }

    /// Returns the position at which another replica has to continue.
    pub(crate) fn end_so_far(&self) -> ContinuationPosition {
        match &self.thread {
            Some(thread) if !thread.text().is_empty() => ContinuationPosition::Behind {
                text: thread.text().to_owned(),
                tokens: thread.tokens(),
            },
            _ => ContinuationPosition::Start,
        }
    }

    /// Prepares for the stream of another replica, which continues this one. `strip_usage`: the usage
    /// was asked of it by the gateway alone. `is_known_engine`: it gives a reason for the end of each
    /// answer.
    pub(crate) fn take_up(&mut self, strip_usage: bool, is_known_engine: bool) {
        self.options.strip_usage = strip_usage;
        self.options.judged = judged(self.options.judged != JudgedStream::Nothing, is_known_engine);
        self.relay = EventRelay::new(self.options);
        self.events_seen = 0;
        if let Some(thread) = &mut self.thread {
            thread.take_up();
        }
    }

    /// Returns true if the stream has sent its end, e.g. `[DONE]`.
    pub(crate) fn is_done(&self) -> bool {
        self.thread.as_ref().map_or_else(|| self.relay.done(), |thread| thread.is_done())
    }

    /// Returns the bytes that keep a silent stream alive; `None` in the middle of an event.
    pub(super) fn keep_alive(&self) -> Option<Bytes> {
        let bytes = if self.flavour == Flavour::Messages { &PING } else { &KEEP_ALIVE };
        self.relay.at_boundary().then(|| bytes.clone())
    }

    /// Returns the event that reports to the client why its stream ends; `None` if an event was cut
    /// in the middle, so that no other event can follow.
    pub(crate) fn error_event(&self, error: &GatewayError) -> Option<Bytes> {
        let flavour = match self.flavour {
            Flavour::OpenAi => EventFlavour::OpenAi,
            Flavour::OpenAiNamed => EventFlavour::OpenAiNamed,
            Flavour::Messages => EventFlavour::Anthropic,
            Flavour::Responses => EventFlavour::Responses { sequence_number: self.events_seen },
            Flavour::KServeV2 => EventFlavour::KServeV2,
            Flavour::Grpc | Flavour::Raw => EventFlavour::Raw,
        };
        self.relay.at_boundary().then(|| error.event(flavour))
    }

    /// Returns the token counts of the replica that serves the stream now. Without usage each event
    /// counts as a token.
    pub(crate) fn tokens_of_replica(&self) -> TokenCounts {
        let tally = self.relay.tally();
        match self.relay.facts().usage {
            Some(usage) => counts(usage),
            None => TokenCounts { completion: tally.events, ..TokenCounts::default() },
        }
    }

    /// Returns the tokens that the stream has reported and those that can be counted in it, and the
    /// gaps between its events.
    pub(crate) fn account(&mut self) -> (ReplyTokens, Option<Box<GapHistogram>>) {
        let tokens = match &self.thread {
            Some(thread) => {
                let usage = thread.usage();
                let (reported, events) = (counts(usage), usage.completion_tokens);
                // The thread itself counts the text after the last report.
                let reported = Some(reported).filter(|reported| reported.prompt > 0);
                ReplyTokens { reported, events, ..ReplyTokens::default() }
            }
            None => {
                let tally = self.relay.tally();
                ReplyTokens {
                    reported: tally.usage.map(counts),
                    events: tally.events,
                    events_since_report: tally.events - tally.reported_events,
                    bytes: 0,
                }
            }
        };
        (tokens, Some(std::mem::take(&mut self.gaps)))
    }
}

/// Returns the failures that are looked for in a stream.
fn judged(is_answer: bool, is_known_engine: bool) -> JudgedStream {
    match (is_answer, is_known_engine) {
        (false, _) => JudgedStream::Nothing,
        (true, false) => JudgedStream::Reports,
        (true, true) => JudgedStream::Ends,
    }
}

#[cfg(test)]
mod tests {
    use spillway_protocol::ReplyApi;

    use super::*;

    #[test]
    fn the_path_says_what_events_look_like() {
        for (path, expected) in [
            ("/v1/chat/completions", Flavour::OpenAi),
            ("/v1/completions/", Flavour::OpenAi),
            ("/team/v1/chat/completions", Flavour::OpenAi),
            ("/v1/responses", Flavour::Responses),
            ("/v1/messages", Flavour::Messages),
            ("/claude/v1/messages/count_tokens", Flavour::Messages),
            ("/v1/images/generations", Flavour::OpenAiNamed),
            ("/generate", Flavour::OpenAiNamed),
        ] {
            assert_eq!(Flavour::of_json(path), expected, "{path}");
        }
    }

    #[test]
    fn a_stream_begins_with_its_first_content() {
        let comment = ": hello\n\n";
        let role = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
        let created = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n";
        let token = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        let delta = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n";
        for (api, before, content) in [
            (ReplyApi::Chat, comment, token),
            (ReplyApi::Chat, role, token),
            (ReplyApi::Responses, created, delta),
            // Any event may be content there.
            (ReplyApi::Chat, comment, "data: {\"token\":1}\n\n"),
            (ReplyApi::Other, comment, "data: {\"token\":1}\n\n"),
        ] {
            let options = EventOptions {
                api,
                strip_usage: false,
                held_bytes_max: HELD_BYTES_MAX,
                judged: JudgedStream::Ends,
            };
            let mut events = Events::new(options, Flavour::OpenAi, None);
            events.push(before.into(), Instant::now(), |_| {});
            assert_eq!(events.kind(), PieceKind::NoContent, "{api:?} {before}");
            events.push(content.into(), Instant::now(), |_| {});
            assert_eq!(events.kind(), PieceKind::Content, "{api:?} {content}");
            events.push(comment.into(), Instant::now(), |_| {});
            assert_eq!(events.kind(), PieceKind::Content, "{api:?}");
        }
    }

    #[test]
    fn what_came_with_the_last_piece_comes_out_in_its_order() {
        let options = EventOptions {
            api: ReplyApi::Other,
            strip_usage: false,
            held_bytes_max: HELD_BYTES_MAX,
            judged: JudgedStream::Nothing,
        };
        let mut events = Events::new(options, Flavour::OpenAi, None);
        events.push(Bytes::from_static(b"data: {\"a\""), Instant::now(), |_| {});
        assert_eq!(events.pop(), None);
        events.push(Bytes::from_static(b":1}\n\ndata: {}\n\ndata: [DONE]"), Instant::now(), |_| {});
        events.finish();
        let last: Vec<u8> = std::iter::from_fn(|| events.pop()).flatten().collect();
        assert_eq!(last, b"data: {\"a\":1}\n\ndata: {}\n\ndata: [DONE]");
        assert_eq!(events.pop(), None);
    }
}
