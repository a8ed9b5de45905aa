//! A stream of events in passing: counted, timed, and ended properly when its replica does not.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, header};
use spillway_protocol::{EventFlavour, EventOptions, EventRelay, GatewayError, Usage};
use spillway_types::{GapHistogram, TokenCounts};

/// Bytes of an incomplete event that are held back, so that an error event never lands in the
/// middle of one. No event of a language model is near it.
const HELD_BYTES_MAX: usize = 256 << 10;

/// How the events of a reply are read, and how its errors look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// `data:` chunks as chat/completions has them.
    OpenAi,
    /// Named events as /v1/responses has them.
    Responses,
    /// KServe V2's generate extension.
    KServeV2,
    /// Messages of gRPC: no events, but an end that is always told.
    Grpc,
    /// Unknown events of a custom route.
    Raw,
}

/// The events of one reply.
#[derive(Debug)]
pub(crate) struct Events {
    relay: EventRelay,
    flavour: Flavour,
    gaps: Box<GapHistogram>,
    last_event_at: Option<Instant>,
    events_seen: u64,
}

impl Events {
    /// `None` if the reply is not a readable event stream.
    pub(crate) fn of(headers: &HeaderMap, flavour: Flavour, strip_usage: bool) -> Option<Self> {
        let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let is_readable = !headers.contains_key(header::CONTENT_ENCODING);
        if !content_type.starts_with("text/event-stream") || !is_readable {
            return None;
        }
        let options = EventOptions { strip_usage, held_bytes_max: HELD_BYTES_MAX };
        Some(Self {
            relay: EventRelay::new(options),
            flavour,
            gaps: Box::default(),
            last_event_at: None,
            events_seen: 0,
        })
    }

    /// Takes a piece of the stream that arrived at `now`.
    pub(crate) fn push(&mut self, piece: Bytes, now: Instant) {
        self.relay.push(piece);
        let events = self.relay.tally().events;
        if events == self.events_seen {
            return;
        }
        if let Some(last) = self.last_event_at {
            // Events that came together waited for one gap, shared by them all.
            let gap = now.saturating_duration_since(last);
            self.gaps.record(gap);
        }
        self.last_event_at = Some(now);
        self.events_seen = events;
    }

    /// Bytes to pass on now.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.relay.pop()
    }

    /// What is left when the replica ended its reply by itself.
    pub(crate) fn finish(&mut self) -> Option<Bytes> {
        self.relay.finish()
    }

    /// Whether the stream had said all it had to say, e.g. `[DONE]`.
    pub(crate) fn is_done(&self) -> bool {
        self.relay.done()
    }

    /// The event that tells the client why its stream ends; `None` if an event was cut in the
    /// middle and nothing can be put behind it.
    pub(crate) fn error_event(&self, error: &GatewayError) -> Option<Bytes> {
        let flavour = match self.flavour {
            Flavour::OpenAi => EventFlavour::OpenAi,
            Flavour::Responses => EventFlavour::Responses { sequence_number: self.events_seen },
            Flavour::KServeV2 => EventFlavour::KServeV2,
            Flavour::Grpc | Flavour::Raw => EventFlavour::Raw,
        };
        self.relay.at_boundary().then(|| error.event(flavour))
    }

    /// What the stream told of its tokens so far.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.relay.tally().usage
    }

    /// Tokens as far as the stream told, and the gaps between its events.
    pub(crate) fn account(&mut self) -> (TokenCounts, Option<Box<GapHistogram>>) {
        let tally = self.relay.tally();
        let tokens = match tally.usage {
            Some(usage) => TokenCounts {
                prompt: usage.prompt_tokens,
                completion: usage.completion_tokens,
                cached: usage.cached_tokens.unwrap_or(0),
            },
            None => TokenCounts { completion: tally.events, ..TokenCounts::default() },
        };
        (tokens, Some(std::mem::take(&mut self.gaps)))
    }
}
