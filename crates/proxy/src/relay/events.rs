//! Relays an event stream: counts and times its events, and ends it properly if the replica does
//! not.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use spillway_protocol::{
    EventFlavour, EventOptions, EventRelay, GatewayError, Next, Terms, Thread, Unfit, Usage,
};
use spillway_types::{GapHistogram, TokenCounts};

use crate::request::{ContinuationPosition, has_events};
use spillway_request::flavour::Flavour;

/// Most bytes of an incomplete event that are held back, so that an error event never lands in the
/// middle of an event. No event of a language model comes near this size.
const HELD_BYTES_MAX: usize = 256 << 10;

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
    pub(crate) fn of(headers: &HeaderMap, flavour: Flavour, strip_usage: bool) -> Option<Self> {
        if !has_events(headers) {
            return None;
        }
        let options = EventOptions { strip_usage, held_bytes_max: HELD_BYTES_MAX };
        Some(Self {
            relay: EventRelay::new(options),
            options,
            thread: None,
            flavour,
            gaps: Box::default(),
            last_event_at: None,
            events_seen: 0,
        })
    }

    /// Sets the thread that follows the stream, so that another replica can continue it.
    pub(crate) fn followed(self, thread: Option<Thread>) -> Self {
        Self { thread: thread.map(Box::new), ..self }
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

    /// Returns the next bytes to pass on; `None` if all were.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        match &mut self.thread {
            Some(thread) => thread.pop(),
            None => self.relay.pop(),
        }
    }

    /// Returns the remaining bytes after the replica ended its reply.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        let rest = self.relay.finish();
        let Some(thread) = &mut self.thread else {
            // The last piece may have brought several runs of events.
            return joined(rest.into_iter().chain(std::iter::from_fn(|| self.relay.pop())));
        };
        if let Some(rest) = rest {
            thread.push(&rest);
        }
        thread.release();
        joined(std::iter::from_fn(|| thread.pop()))
    }

    /// Returns true if the answer is incomplete, so that a replica that stops here failed. A stream
    /// that is not followed counts as incomplete until it has begun.
    pub(crate) fn is_short(&self) -> bool {
        match &self.thread {
            Some(thread) => !thread.is_whole(),
            None => !self.has_spoken(),
        }
    }

    /// Returns true if no replica could continue the stream any more.
    pub(crate) fn is_unfit(&self) -> bool {
        match &self.thread {
            Some(thread) => thread.unfit().is_some(),
            None => self.has_spoken(),
        }
    }

    /// Returns the next step after the replica failed. `terms` are the terms of the request for a
    /// continuation.
    pub(crate) fn broke_off(&mut self, terms: Result<&Terms, Unfit>) -> Next {
        let has_spoken = self.has_spoken();
        match &mut self.thread {
            Some(thread) => thread.broke_off(terms),
            // The client has seen nothing yet, so the request can start again.
            None if !has_spoken => Next::Afresh,
            None => Next::Unfit(terms.err().unwrap_or(Unfit::Unreadable)),
        }
    }

    /// Returns true if anything but comments was passed on.
    pub(crate) fn has_spoken(&self) -> bool {
        let tally = self.relay.tally();
        tally.events > 0 || self.relay.done() || !self.relay.at_boundary()
    }

    /// Returns true if the replica sent an error event.
    pub(crate) fn has_fault(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.has_fault())
    }

    /// Passes that error event on to the client.
    pub(crate) fn release_fault(&mut self) {
        if let Some(thread) = &mut self.thread {
            thread.release_fault();
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

    /// Prepares for the stream of another replica, which continues this one.
    pub(crate) fn take_up(&mut self) {
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

    /// Returns the event that tells the client why its stream ends; `None` if an event was cut in
    /// the middle, so that no other event can follow.
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

    /// Returns the token usage so far, as told by the replica that serves the stream now.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.relay.tally().usage
    }

    /// Returns the token counts of the replica that serves the stream now. Without usage each event
    /// counts as a token.
    pub(crate) fn tokens_of_replica(&self) -> TokenCounts {
        let tally = self.relay.tally();
        match tally.usage {
            Some(usage) => counts(usage),
            None => TokenCounts { completion: tally.events, ..TokenCounts::default() },
        }
    }

    /// Returns the token counts as far as the stream told them, and the gaps between its events.
    pub(crate) fn account(&mut self) -> (TokenCounts, Option<Box<GapHistogram>>) {
        let tokens = match &self.thread {
            Some(thread) => counts(thread.usage()),
            None => self.tokens_of_replica(),
        };
        (tokens, Some(std::mem::take(&mut self.gaps)))
    }
}

/// Joins the pieces; a single piece is not copied.
fn joined(mut pieces: impl Iterator<Item = Bytes>) -> Option<Bytes> {
    let first = pieces.next()?;
    let Some(second) = pieces.next() else { return Some(first) };
    let mut all = BytesMut::from(first);
    [second].into_iter().chain(pieces).for_each(|piece| all.extend_from_slice(&piece));
    Some(all.freeze())
}

fn counts(usage: Usage) -> TokenCounts {
    TokenCounts {
        prompt: usage.prompt_tokens,
        completion: usage.completion_tokens,
        cached: usage.cached_tokens.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
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
    fn what_came_with_the_last_piece_comes_out_in_its_order() {
        let kind = http::HeaderValue::from_static("text/event-stream");
        let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, kind)]);
        let mut events = Events::of(&headers, Flavour::OpenAi, false).expect("events");
        events.push(Bytes::from_static(b"data: {\"a\""), Instant::now(), |_| {});
        assert_eq!(events.pop(), None);
        events.push(Bytes::from_static(b":1}\n\ndata: {}\n\ndata: [DONE]"), Instant::now(), |_| {});
        let last = events.finish().expect("all of it");
        assert_eq!(last, "data: {\"a\":1}\n\ndata: {}\n\ndata: [DONE]");
        assert_eq!(events.pop(), None);
    }
}
