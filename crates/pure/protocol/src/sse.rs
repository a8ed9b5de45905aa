//! Relay of a replica's events, in whole events.
//!
//! The bytes handed out always end at the end of an event, so that the gateway can append an error
//! event of its own when the replica fails. Chunks pass as they are; only an event that the end of
//! a chunk cuts is held, and joined with its rest.

pub(crate) mod boundary;
pub(crate) mod event;
mod fault;
pub(crate) mod usage_chunk;
mod usage_strip;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::reply::{EventReader, Finish};
use crate::{ReplyApi, ReplyFacts, Usage};
use boundary::BoundaryScanner;
use usage_strip::{Stripped, without_usage};

pub use fault::EventFault;

/// Options of an [`EventRelay`].
#[derive(Clone, Copy, Debug)]
pub struct EventOptions {
    /// API of the request, which decides where events have facts.
    pub api: ReplyApi,
    /// True if usage is taken out of the events, because the client did not ask for it. An event that
    /// has nothing else is left out.
    pub strip_usage: bool,
    /// Longest event in bytes that is held until it is complete. Token events have some hundred
    /// bytes. A longer event is passed on in parts, and no error event can follow until it is
    /// complete.
    pub held_bytes_max: usize,
    /// Failures that are looked for.
    pub judged: JudgedStream,
}

/// Failures of a stream that are looked for, by its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgedStream {
    /// None: the stream is no answer.
    Nothing,
    /// Those that the engine reports: errors and aborts.
    Reports,
    /// Those, and an end without a reason: the engine is known to give one for each answer.
    Ends,
}

/// Counts of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events with data, except `[DONE]`; events that are left out count too.
    pub events: u64,
    /// Largest usage that events reported; `None` before the first.
    pub usage: Option<Usage>,
    /// Events up to the one that reported that usage.
    pub reported_events: u64,
}

/// Relay of one stream of events. After each [`push`](Self::push), call [`pop`](Self::pop) until it
/// returns `None`.
#[derive(Debug)]
pub struct EventRelay {
    options: EventOptions,
    boundaries: BoundaryScanner,
    /// Beginning of an event whose end has not arrived yet.
    held: BytesMut,
    /// True while an event passes in parts, because it is too long to be held.
    is_passing: bool,
    ready: VecDeque<Bytes>,
    reader: EventReader,
    /// Events with data so far, except `[DONE]`.
    events: u64,
    /// Events with data up to the one with the present usage.
    reported_events: u64,
    /// Failure that the stream has shown, unless it was released.
    fault: Option<EventFault>,
    /// Events from the one on that showed the failure.
    withheld: Vec<Bytes>,
}

impl EventRelay {
    /// Creates a relay for a new stream.
    #[must_use]
    pub fn new(options: EventOptions) -> Self {
        Self {
            options,
            boundaries: BoundaryScanner::default(),
            held: BytesMut::new(),
            is_passing: false,
            ready: VecDeque::new(),
            reader: EventReader::new(options.api),
            events: 0,
            reported_events: 0,
            fault: None,
            withheld: Vec::new(),
        }
    }

    /// Takes the next chunk from the replica.
    pub fn push(&mut self, chunk: Bytes) {
        self.push_seen(chunk, |_| {});
    }

    /// Takes the next chunk from the replica, and shows each event that it completes to `see`;
    /// `None` for an event that is too long to be held.
    pub fn push_seen(&mut self, chunk: Bytes, mut see: impl FnMut(Option<&[u8]>)) {
        if self.fault.is_some() {
            return self.withheld.push(chunk);
        }
        let mut event_start = 0;
        if self.is_inside_event() {
            let Some(end) = self.boundaries.next_end(&chunk, 0) else {
                return self.keep(chunk);
            };
            self.keep(chunk.slice(..end));
            see((!self.is_passing).then_some(&self.held[..]));
            self.complete();
            event_start = end;
            if self.fault.is_some() {
                return self.withheld.push(chunk.slice(event_start..));
            }
        }
        // Neighbouring events that stay as they are are handed out as one slice.
        let mut run_start = event_start;
        while let Some(end) = self.boundaries.next_end(&chunk, event_start) {
            see(Some(&chunk[event_start..end]));
            let stripped = self.judge(|| chunk.slice(event_start..end), &chunk[event_start..end]);
            if self.fault.is_some() {
                self.send(chunk.slice(run_start..event_start));
                return self.withheld.push(chunk.slice(event_start..));
            }
            if stripped != Stripped::Same {
                self.send(chunk.slice(run_start..event_start));
                self.send_stripped(stripped);
                run_start = end;
            }
            event_start = end;
        }
        // The usual case: the chunk has only complete events, and passes as it is.
        if run_start == 0 && event_start == chunk.len() {
            return self.send(chunk);
        }
        self.send(chunk.slice(run_start..event_start));
        self.keep(chunk.slice(event_start..));
    }

    /// Returns the next bytes for the client, or `None` until more is pushed.
    #[must_use]
    pub fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// Returns true if [`pop`](Self::pop) has more.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Releases the bytes still held when the replica has properly ended its stream. Call it once,
    /// and [`pop`](Self::pop) after it. Do not call it when the stream broke off: an error event
    /// takes the place of these bytes.
    pub fn finish(&mut self) {
        if self.is_inside_event() {
            self.complete();
        }
    }

    /// Returns the failure that the stream has shown. Its events are held back until they are
    /// [released](Self::release).
    #[must_use]
    pub fn fault(&self) -> Option<EventFault> {
        self.fault
    }

    /// Releases the events that were held back since they show a failure: the client learns of it by
    /// them.
    pub fn release(&mut self) {
        self.fault = None;
        for bytes in std::mem::take(&mut self.withheld) {
            self.send(bytes);
        }
    }

    /// Returns true if the bytes handed out so far end with the end of an event.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        !self.is_passing
    }

    /// Returns the counts of the complete events so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let reported_events = self.reported_events;
        Tally { events: self.events, usage: self.facts().usage, reported_events }
    }

    /// Returns the facts in the complete events so far.
    #[must_use]
    pub fn facts(&self) -> &ReplyFacts {
        self.reader.facts()
    }

    /// Returns true if the stream has announced its end: by `[DONE]`, or by an event that is the
    /// last one in its API, such as `response.completed` or `message_stop`.
    #[must_use]
    pub fn done(&self) -> bool {
        self.facts().is_done
    }

    fn is_inside_event(&self) -> bool {
        self.is_passing || !self.held.is_empty()
    }

    /// Holds a part of an event, or passes it on if the event has grown too long.
    fn keep(&mut self, part: Bytes) {
        if !self.is_passing {
            if self.held.len() + part.len() <= self.options.held_bytes_max {
                return self.held.extend_from_slice(&part);
            }
            self.is_passing = true;
            self.reader.begin();
            self.reader.push(&self.held);
            let held = self.held.split().freeze();
            self.send(held);
        }
        self.reader.push(&part);
        self.send(part);
    }

    /// Ends the event that earlier chunks began.
    fn complete(&mut self) {
        if std::mem::take(&mut self.is_passing) {
            let usage = self.facts().usage;
            self.events += u64::from(self.reader.end());
            return self.note_report(usage);
        }
        let event = self.held.split().freeze();
        let stripped = self.judge(|| event.clone(), &event);
        if self.fault.is_some() {
            return self.withheld.push(event);
        }
        match stripped {
            Stripped::Same => self.send(event),
            stripped => self.send_stripped(stripped),
        }
    }

    /// Counts a complete event. Returns what the client gets of it. `bytes` are those of the event.
    fn judge(&mut self, bytes: impl FnOnce() -> Bytes, event: &[u8]) -> Stripped {
        let usage = self.facts().usage;
        let reading = self.reader.read(event);
        self.events += u64::from(reading.is_counted);
        self.note_report(usage);
        let facts = self.reader.facts();
        if facts.error.is_some() || facts.finish == Some(Finish::Aborted) || facts.is_done {
            self.fault = EventFault::of(facts, &self.options);
        }
        match self.options.strip_usage && reading.may_have_usage {
            true => without_usage(bytes()),
            false => Stripped::Same,
        }
    }

    /// Notes the event that changed the usage, which was `before`.
    fn note_report(&mut self, before: Option<Usage>) {
        if self.facts().usage != before {
            self.reported_events = self.events;
        }
    }

    fn send_stripped(&mut self, stripped: Stripped) {
        if let Stripped::Changed(event) = stripped {
            self.send(event);
        }
    }

    fn send(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }
}

#[cfg(test)]
mod sse_test;
