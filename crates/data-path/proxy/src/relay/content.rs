//! Content of a reply as it passes: what its bytes say about the answer and its end.

use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http::response::Parts;
use spillway_journey::{EngineState, FailureForm, PartEnd, PieceKind, ReplyEvent};
use spillway_protocol::{
    EngineTrouble, JudgedStream, ReplyApi, ReplyFacts, ReplyVerdict, WholeReader, is_encoded,
};
use spillway_request::flavour::Flavour;
use spillway_request::reply_hasher::ReplyHasher;
use spillway_types::TokenCounts;

use crate::relay::events::Events;
use crate::relay::relay_plan::RelayPlan;

/// Content of a reply, by its form.
#[derive(Debug)]
pub(super) enum Content {
    /// Events, which pass whole.
    Events(Box<Events>),
    /// One document of an API that reports facts, such as the usage.
    Document(Document),
    /// Messages and trailers of a gRPC call.
    Call {
        /// True once the call has its status.
        has_status: bool,
    },
    /// Bytes without any known meaning.
    Bytes,
}

/// A reply in one document, read as it passes.
#[derive(Debug)]
pub(super) struct Document {
    reader: Box<WholeReader>,
    /// True if all of it was read before it passes, in one piece.
    is_read: bool,
    /// API by which the end of the answer is judged; `None` if the reply is no answer.
    judge: Option<ReplyApi>,
    /// True if the engine is known to give a reason for the end of each answer.
    is_known_engine: bool,
}

impl Content {
    /// Returns the content of a reply with this head.
    pub(super) fn of(head: &Parts, plan: &mut RelayPlan) -> Self {
        if plan.flavour == Flavour::Grpc {
            return Self::Call { has_status: false };
        }
        // A reply of which a part was read before the relay is neither events nor encoded.
        if let Some(reader) = plan.reader.take() {
            return Self::document(reader, true, head, plan);
        }
        if let Some(events) = Events::of(head, plan) {
            return Self::Events(Box::new(events));
        }
        if !plan.flavour.is_read() || is_encoded(&head.headers) {
            return Self::Bytes;
        }
        Self::document(Box::new(WholeReader::new(plan.api)), false, head, plan)
    }

    fn document(reader: Box<WholeReader>, is_read: bool, head: &Parts, plan: &RelayPlan) -> Self {
        let judge = (head.status == StatusCode::OK && plan.api.generates()).then_some(plan.api);
        Self::Document(Document { reader, is_read, judge, is_known_engine: plan.is_known_engine })
    }

    /// Returns the form in which the reply can end badly.
    pub(super) fn form(&self) -> FailureForm {
        match self {
            Self::Events(_) => FailureForm::Events,
            Self::Call { .. } => FailureForm::Call,
            Self::Document(_) | Self::Bytes => FailureForm::Bytes,
        }
    }

    /// Takes a piece that came at `now`. Returns the bytes that pass at once, unless they come out
    /// by [`Content::pop`], and what they are to the answer.
    pub(super) fn take(
        &mut self,
        piece: Bytes,
        now: Instant,
        hasher: Option<&mut ReplyHasher>,
    ) -> (Option<Bytes>, PieceKind) {
        match self {
            Self::Events(events) => {
                let mut hasher = hasher;
                events.push(piece, now, |event| {
                    if let Some(hasher) = &mut hasher {
                        hasher.event(event);
                    }
                });
                (None, events.kind())
            }
            Self::Document(document) => {
                if !document.is_read {
                    document.reader.push(&piece);
                }
                match hasher {
                    Some(hasher) if document.is_read => {
                        hasher.whole(&piece, document.reader.first_choice());
                    }
                    Some(hasher) => hasher.piece(&piece),
                    None => {}
                }
                (Some(piece), PieceKind::Content)
            }
            Self::Call { .. } | Self::Bytes => {
                if let Some(hasher) = hasher {
                    hasher.piece(&piece);
                }
                (Some(piece), PieceKind::Content)
            }
        }
    }

    /// Returns the next bytes that were held back until they were whole events.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        match self {
            Self::Events(events) => events.pop(),
            Self::Document(_) | Self::Call { .. } | Self::Bytes => None,
        }
    }

    /// Returns true if [`Content::pop`] has more.
    pub(super) fn has_more(&self) -> bool {
        matches!(self, Self::Events(events) if events.has_more())
    }

    /// Returns the failure that the source reported within its stream, which is held back.
    pub(super) fn fault(&self) -> Option<ReplyEvent> {
        match self {
            Self::Events(events) => events.fault(),
            Self::Document(_) | Self::Call { .. } | Self::Bytes => None,
        }
    }

    /// Judges a part that the source ended in good order.
    pub(super) fn part_end(&mut self) -> PartEnd {
        match self {
            Self::Events(events) => events.part_end(),
            Self::Document(document) => document.part_end(),
            // A call without a status was cut off: the client would have to guess the result.
            Self::Call { has_status: false } => PartEnd::Unfinished,
            Self::Call { has_status: true } | Self::Bytes => PartEnd::Whole,
        }
    }

    /// Returns the facts of the reply so far; `None` if the reply is not read.
    pub(super) fn facts(&self) -> Option<&ReplyFacts> {
        match self {
            Self::Events(events) => Some(events.facts()),
            Self::Document(document) => Some(document.reader.facts()),
            Self::Call { .. } | Self::Bytes => None,
        }
    }

    /// Returns the events of the reply; `None` if it is no stream of events.
    pub(super) fn events(&mut self) -> Option<&mut Events> {
        match self {
            Self::Events(events) => Some(events),
            Self::Document(_) | Self::Call { .. } | Self::Bytes => None,
        }
    }

    /// Returns the tokens of the source that serves now, as it reported or sent them.
    pub(super) fn tokens_of_source(&self) -> TokenCounts {
        match self {
            Self::Events(events) => events.tokens_of_replica(),
            Self::Document(_) | Self::Call { .. } | Self::Bytes => {
                self.facts().and_then(|facts| facts.usage).map(counts).unwrap_or_default()
            }
        }
    }
}

impl Document {
    fn part_end(&mut self) -> PartEnd {
        if !self.is_read {
            self.reader.finish();
        }
        let Some(api) = self.judge else { return PartEnd::Whole };
        match self.reader.facts().verdict(api, self.is_known_engine) {
            ReplyVerdict::Aborted => PartEnd::Aborted,
            ReplyVerdict::Unfinished | ReplyVerdict::Empty => PartEnd::Unfinished,
            // An error is an answer.
            ReplyVerdict::Complete | ReplyVerdict::Failed(_) => PartEnd::Whole,
        }
    }
}

/// Returns the end of a stream with these facts.
pub(super) fn part_end(facts: &ReplyFacts, api: ReplyApi, judged: JudgedStream) -> PartEnd {
    match facts.verdict(api, judged == JudgedStream::Ends) {
        ReplyVerdict::Complete => PartEnd::Whole,
        ReplyVerdict::Aborted => PartEnd::Aborted,
        ReplyVerdict::Unfinished | ReplyVerdict::Empty => PartEnd::Unfinished,
        // The error is held back before, unless the client is to blame.
        ReplyVerdict::Failed(error) if error.is_of_server() => {
            PartEnd::Failed(EngineState::Serving)
        }
        ReplyVerdict::Failed(_) => PartEnd::Whole,
    }
}

/// Returns the state of an engine that reported this trouble.
pub(crate) fn engine_state(trouble: Option<EngineTrouble>) -> EngineState {
    match trouble {
        None => EngineState::Serving,
        Some(EngineTrouble::Draining) => EngineState::Draining,
        Some(EngineTrouble::Dying) => EngineState::Dying,
    }
}

/// Returns the counts of a reported usage.
pub(super) fn counts(usage: spillway_protocol::Usage) -> TokenCounts {
    TokenCounts {
        prompt: usage.prompt_tokens,
        completion: usage.completion_tokens,
        cached: usage.cached_tokens.unwrap_or(0),
    }
}
