//! Reader of the facts in a stream of events.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::api::ReplyApi;
use super::document::DocumentReader;
use super::event_kind::EventKind;
use super::event_lines::EventLines;
use super::facts::ReplyFacts;
use super::plain_event::{EventReading, PlainEvent};
use super::schema::{Form, Schema};
use crate::sse::event::{SseReading, field, lines};

/// Events with data in which an id is looked for. Engines have it in the first one.
const HEAD_EVENTS: u32 = 8;
/// Events with data in which content is looked for. A stream with more of them has content of a form
/// that is not known.
const CONTENT_EVENTS: u32 = 64;

static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
static REASON: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"finish_reason\""));
static STOP_REASON: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"stop_reason\""));
static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"error\""));
static RESPONSE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"response"));
static STOP: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"message_stop\""));
static DONE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b".done\""));

/// Reader of one stream. Most events only add text: they are recognized by a few searches or by
/// their likeness to another one, and are not parsed.
#[derive(Debug)]
pub(crate) struct EventReader {
    api: ReplyApi,
    facts: ReplyFacts,
    document: DocumentReader,
    lines: EventLines,
    plain: PlainEvent,
    /// Events with data so far, up to the largest number that matters.
    seen: u32,
}

impl EventReader {
    pub(crate) fn new(api: ReplyApi) -> Self {
        Self {
            api,
            facts: ReplyFacts::default(),
            document: DocumentReader::new(Schema::new(api, Form::Event)),
            lines: EventLines::default(),
            plain: PlainEvent::default(),
            seen: 0,
        }
    }

    pub(crate) fn facts(&self) -> &ReplyFacts {
        &self.facts
    }

    /// Reads a complete event.
    pub(crate) fn read(&mut self, event: &[u8]) -> EventReading {
        if let Some(reading) = self.plain.reading_of(event) {
            return reading;
        }
        let SseReading { is_counted, ends_stream, kind } = SseReading::of(event);
        self.facts.is_done |= ends_stream;
        if !is_counted && !kind.is_error {
            return EventReading::default();
        }
        let usage = if kind.is_content { Member::Absent } else { member(&USAGE, event) };
        let reading = EventReading { is_counted, may_have_usage: usage != Member::Absent };
        if self.must_parse(kind, usage, event) {
            self.begin();
            // Data lines of one event belong together.
            for data in lines(event).filter_map(|line| field(line, b"data")) {
                self.document.push(data);
                self.document.push(b"\n");
            }
            self.close(is_counted, kind);
            return reading;
        }
        self.seen = self.seen.saturating_add(1);
        if self.api.has_choices() {
            self.plain.learn(event, reading);
        }
        reading
    }

    /// Prepares for an event that comes in pieces.
    pub(crate) fn begin(&mut self) {
        let schema = Schema {
            wants_head: self.wants_head(),
            wants_content: !self.facts.has_content,
            ..Schema::new(self.api, Form::Event)
        };
        self.document.begin(schema);
        self.lines.begin();
    }

    /// Reads a piece of an event.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.lines.push(piece, &mut self.document);
    }

    /// Ends an event that came in pieces. Returns true if it has data other than `[DONE]`.
    pub(crate) fn end(&mut self) -> bool {
        self.lines.end(&mut self.document);
        let EventLines { is_counted, is_done, kind, .. } = self.lines;
        self.facts.is_done |= is_done || kind.is_last;
        self.close(is_counted, kind);
        is_counted
    }

    /// Takes the facts of an event whose data was read.
    fn close(&mut self, is_counted: bool, kind: EventKind) {
        if (is_counted || kind.is_error) && !self.is_known(kind) {
            self.add(is_counted, kind);
        }
        self.seen = self.seen.saturating_add(u32::from(is_counted));
        self.facts.has_content |= self.seen >= CONTENT_EVENTS;
    }

    fn add(&mut self, is_counted: bool, kind: EventKind) {
        // Later events may be passed over, so that one which is no JSON means nothing.
        self.facts.is_unreadable |=
            is_counted && !self.facts.has_content && !self.document.is_over();
        let found = self.document.found_mut();
        found.settle(Form::Event, self.api, kind);
        self.facts.is_done |= found.kind.is_last;
        self.facts.add(found);
    }

    fn wants_head(&self) -> bool {
        self.facts.id.is_none() && self.seen < HEAD_EVENTS
    }

    /// Returns true if an event of this name can only have facts that are known.
    fn is_known(&self, kind: EventKind) -> bool {
        kind.is_content && !self.wants_head() && self.facts.has_content
    }

    /// Returns true if the event may have a fact that is not known yet.
    fn must_parse(&self, kind: EventKind, usage: Member, event: &[u8]) -> bool {
        if self.wants_head() || !self.facts.has_content || kind.is_last || kind.is_error {
            return true;
        }
        if self.is_known(kind) {
            return false;
        }
        let has = |finder: &Finder<'_>| finder.find(event).is_some();
        let api = self.api;
        usage == Member::Value
            || member(&ERROR, event) == Member::Value
            || (api.has_choices() && member(&REASON, event) == Member::Value)
            || (api.has_messages() && member(&STOP_REASON, event) == Member::Value)
            || (api.names_events() && [&RESPONSE, &STOP, &DONE].into_iter().any(|it| has(it)))
    }
}

/// Member of an event, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// The event has no member of this name.
    Absent,
    /// All members of this name are null.
    Null,
    Value,
}

/// Looks for members of any depth by their quoted name.
fn member(name: &Finder<'_>, event: &[u8]) -> Member {
    let mut member = Member::Absent;
    for at in name.find_iter(event) {
        member = Member::Null;
        let value = event[at + name.needle().len()..].trim_ascii_start();
        let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii_start();
        if !value.starts_with(b"null") {
            return Member::Value;
        }
    }
    member
}
