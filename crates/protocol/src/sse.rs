//! Passes a replica's events on, whole.
//!
//! What has been handed out always ends at the end of an event, so that the gateway can put an
//! error event of its own there when the replica breaks off. Chunks go through as they are; only
//! an event that is cut by the end of a chunk is held, and joined with the rest of it.

pub(crate) mod boundary;
pub(crate) mod event;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::{Usage, reply};
use boundary::BoundaryScanner;
use event::Reading;

/// How an [`EventRelay`] treats a stream.
#[derive(Clone, Copy, Debug)]
pub struct EventOptions {
    /// Whether to leave out the event with the usage, because the client didn't ask for it.
    pub strip_usage: bool,
    /// The longest event that is held until it is complete, in bytes. Token events have some
    /// hundred; a longer one is passed on in parts, and can't be followed by an error event
    /// until it is complete.
    pub held_bytes_max: usize,
}

/// What a stream has brought so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events with data, except `[DONE]`; events that are left out count too.
    pub events: u64,
    /// The last usage that an event told.
    pub usage: Option<Usage>,
}

/// One stream of events. After each [`push`](Self::push), [`pop`](Self::pop) until it is empty.
#[derive(Debug)]
pub struct EventRelay {
    options: EventOptions,
    boundaries: BoundaryScanner,
    /// The beginning of an event whose end has not come yet.
    held: BytesMut,
    /// Set while an event goes through in parts, because it is too long to be held.
    passing: Option<Passing>,
    ready: VecDeque<Bytes>,
    tally: Tally,
    done: bool,
}

/// What is known of an event that is passed on in parts.
#[derive(Debug)]
struct Passing {
    reading: Reading,
    /// Its last bytes: a long event's usage stands near its end.
    tail: Vec<u8>,
}

/// Enough of an event's head to tell its kind.
const HEAD_BYTES: usize = 256;
/// Enough for a usage object with all its details.
const TAIL_BYTES: usize = 1024;

impl EventRelay {
    /// A relay for a stream that begins.
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
        let mut event_start = 0;
        if self.is_inside_event() {
            let Some(end) = self.boundaries.next_end(&chunk, 0) else {
                return self.keep(chunk);
            };
            self.keep(chunk.slice(..end));
            self.complete();
            event_start = end;
        }
        // Events that stay are handed out in one run, however many they are.
        let mut run_start = event_start;
        while let Some(end) = self.boundaries.next_end(&chunk, event_start) {
            if !self.judge(&chunk[event_start..end]) {
                self.send(chunk.slice(run_start..event_start));
                run_start = end;
            }
            event_start = end;
        }
        if run_start == 0 && event_start == chunk.len() {
            return self.send(chunk);
        }
        self.send(chunk.slice(run_start..event_start));
        self.keep(chunk.slice(event_start..));
    }

    /// The next bytes for the client, or `None` until more is pushed.
    #[must_use]
    pub fn pop(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// What is still held when the replica has properly ended its stream. To be called once,
    /// after the last [`pop`](Self::pop); when the stream broke off, don't: an error event takes
    /// its place.
    #[must_use]
    pub fn finish(&mut self) -> Option<Bytes> {
        if self.is_inside_event() {
            self.complete();
        }
        self.ready.pop_front()
    }

    /// Whether all that was popped ends with the end of an event.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        self.passing.is_none()
    }

    /// What the complete events have told so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether the stream has said that it is over: by `[DONE]`, or by an event that is the last one in its
    /// API, such as `response.completed` or `message_stop`.
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
            self.passing = Some(Passing { reading: Reading::of(&head), tail: self.held.to_vec() });
            let held = self.held.split().freeze();
            self.send(held);
        }
        if let Some(passing) = &mut self.passing {
            passing.extend_tail(&part);
        }
        self.send(part);
    }

    /// The event that earlier chunks began has come to its end.
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

    /// Counts a complete event; whether the client gets it.
    fn judge(&mut self, event: &[u8]) -> bool {
        let told_usage = self.count(Reading::of(event), event);
        !(self.options.strip_usage && told_usage && event::is_usage_alone(event))
    }

    /// Whether the bytes had a usage in them.
    fn count(&mut self, reading: Reading, bytes: &[u8]) -> bool {
        self.tally.events += u64::from(reading.is_counted);
        self.done |= reading.ends_stream;
        if !reply::may_have_usage(bytes) {
            return false;
        }
        let usage = reply::usage_in(bytes);
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
