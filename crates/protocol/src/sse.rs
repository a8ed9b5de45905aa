//! Relay of a replica's events, in whole events.
//!
//! The bytes handed out always end at the end of an event, so that the gateway can append an error
//! event of its own when the replica fails. Chunks pass as they are; only an event that the end of
//! a chunk cuts is held, and joined with its rest.

pub(crate) mod boundary;
pub(crate) mod event;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::{Usage, reply};
use boundary::BoundaryScanner;
use event::SseReading;

/// Options of an [`EventRelay`].
#[derive(Clone, Copy, Debug)]
pub struct EventOptions {
    /// True if the event with the usage is left out, because the client did not ask for it.
    pub strip_usage: bool,
    /// Longest event in bytes that is held until it is complete. Token events have some hundred
    /// bytes. A longer event is passed on in parts, and no error event can follow until it is
    /// complete.
    pub held_bytes_max: usize,
}

/// Counts of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events with data, except `[DONE]`; events that are left out count too.
    pub events: u64,
    /// Last usage that an event reported; `None` before the first.
    pub usage: Option<Usage>,
}

/// Relay of one stream of events. After each [`push`](Self::push), call [`pop`](Self::pop) until it
/// returns `None`.
#[derive(Debug)]
pub struct EventRelay {
    options: EventOptions,
    boundaries: BoundaryScanner,
    /// Beginning of an event whose end has not arrived yet.
    held: BytesMut,
    /// Event that passes in parts, because it is too long to be held; `None` at other times.
    passing: Option<Passing>,
    ready: VecDeque<Bytes>,
    tally: Tally,
    done: bool,
}

/// State of an event that is passed on in parts.
#[derive(Debug)]
struct Passing {
    reading: SseReading,
    /// Last bytes of the event: a long event has its usage near its end.
    tail: Vec<u8>,
}

/// Bytes of an event's beginning that are enough to tell its kind.
const HEAD_BYTES: usize = 256;
/// Bytes of an event's end that are enough for a usage object with all its details.
const TAIL_BYTES: usize = 1024;

impl EventRelay {
    /// Creates a relay for a new stream.
    #[must_use]
    pub fn new(options: EventOptions) -> Self {
        Self {
            options,
            boundaries: BoundaryScanner::default(),
            held: BytesMut::new(),
            passing: None,
            ready: VecDeque::new(),
            tally: Tally::default(),
            done: false,
        }
    }

    /// Takes the next chunk from the replica.
    pub fn push(&mut self, chunk: Bytes) {
        self.push_seen(chunk, |_| {});
    }

    /// Takes the next chunk from the replica, and shows each event that it completes to `see`;
    /// `None` for an event that is too long to be held.
    pub fn push_seen(&mut self, chunk: Bytes, mut see: impl FnMut(Option<&[u8]>)) {
        let mut event_start = 0;
        if self.is_inside_event() {
            let Some(end) = self.boundaries.next_end(&chunk, 0) else {
                return self.keep(chunk);
            };
            self.keep(chunk.slice(..end));
            see(self.passing.is_none().then_some(&self.held[..]));
            self.complete();
            event_start = end;
        }
        // Neighbouring events that are kept are handed out as one slice.
        let mut run_start = event_start;
        while let Some(end) = self.boundaries.next_end(&chunk, event_start) {
            see(Some(&chunk[event_start..end]));
            if !self.judge(&chunk[event_start..end]) {
                self.send(chunk.slice(run_start..event_start));
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

    /// Returns the bytes still held when the replica has properly ended its stream. Call it once,
    /// after the last [`pop`](Self::pop). Do not call it when the stream broke off: an error event
    /// takes the place of these bytes.
    #[must_use]
    pub fn finish(&mut self) -> Option<Bytes> {
        if self.is_inside_event() {
            self.complete();
        }
        self.ready.pop_front()
    }

    /// Returns true if the bytes handed out so far end with the end of an event.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.passing.is_none()
    }

    /// Returns the counts of the complete events so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns true if the stream has announced its end: by `[DONE]`, or by an event that is the
    /// last one in its API, such as `response.completed` or `message_stop`.
    #[must_use]
    pub fn done(&self) -> bool {
        self.done
    }

    fn is_inside_event(&self) -> bool {
        self.passing.is_some() || !self.held.is_empty()
    }

    /// Holds a part of an event, or passes it on if the event has grown too long.
    fn keep(&mut self, part: Bytes) {
        if self.passing.is_none() {
            if self.held.len() + part.len() <= self.options.held_bytes_max {
                return self.held.extend_from_slice(&part);
            }
            let head: Vec<u8> = self.held.iter().chain(&part).take(HEAD_BYTES).copied().collect();
            self.passing =
                Some(Passing { reading: SseReading::of(&head), tail: self.held.to_vec() });
            let held = self.held.split().freeze();
            self.send(held);
        }
        if let Some(passing) = &mut self.passing {
            passing.extend_tail(&part);
        }
        self.send(part);
    }

    /// Ends the event that earlier chunks began.
    fn complete(&mut self) {
        if let Some(Passing { reading, tail }) = self.passing.take() {
            self.count(reading, &tail);
            return;
        }
        let event = self.held.split().freeze();
        if self.judge(&event) {
            self.send(event);
        }
    }

    /// Counts a complete event. Returns true if the client gets it.
    fn judge(&mut self, event: &[u8]) -> bool {
        let told_usage = self.count(SseReading::of(event), event);
        !(self.options.strip_usage && told_usage && event::is_usage_alone(event))
    }

    /// Counts an event. Returns true if `bytes` contain a usage.
    fn count(&mut self, reading: SseReading, bytes: &[u8]) -> bool {
        self.tally.events += u64::from(reading.is_counted);
        self.done |= reading.ends_stream;
        if !reply::may_have_usage(bytes) {
            return false;
        }
        let usage = reply::usage_in(bytes);
        // The last usage of a stream has the final counts.
        self.tally.usage = usage.or(self.tally.usage);
        usage.is_some()
    }

    fn send(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.ready.push_back(bytes);
        }
    }
}

impl Passing {
    fn extend_tail(&mut self, part: &[u8]) {
        self.tail.extend_from_slice(&part[part.len().saturating_sub(TAIL_BYTES)..]);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
    }
}

#[cfg(test)]
mod sse_test;
