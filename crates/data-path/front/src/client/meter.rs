//! Counters of one client connection, for its watchdog.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use spillway_transport::{BYTES_PER_EARNED, EARNED_BY_PIECE};

/// Counters shared by a connection's socket wrapper, its requests and its watchdog.
///
/// All accesses are relaxed: the values guide time-outs, nothing is published through them.
#[derive(Debug, Default)]
pub struct ConnectionMeter {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    write_blocked: AtomicBool,
    requests: AtomicU64,
    in_flight: AtomicU32,
    abandoned: AtomicU32,
    /// `read_bytes` when the last request ended.
    settled_bytes: AtomicU64,
    pieces_taken: AtomicU64,
    pieces_waiting: AtomicU32,
    is_flooded: AtomicBool,
    is_closed_here: AtomicBool,
}

/// Values of a [`ConnectionMeter`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeterReading {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub write_blocked: bool,
    /// Requests whose head was read.
    pub requests: u64,
    pub in_flight: u32,
    /// Requests the client gave up on.
    pub abandoned: u32,
    /// Bytes read when the last request ended: more of them belong to the next.
    pub settled_bytes: u64,
    /// Pieces of replies after which the HTTP library asked for more.
    pub pieces_taken: u64,
    /// Pieces of replies after which the HTTP library has not asked for more yet.
    pub pieces_waiting: u32,
}

/// A piece of a reply that was handed over; to be dropped when the next is asked for.
#[derive(Debug)]
pub struct PieceOut(Arc<ConnectionMeter>);

impl Drop for PieceOut {
    fn drop(&mut self) {
        self.0.pieces_waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.pieces_taken.fetch_add(1, Ordering::Relaxed);
    }
}

impl ConnectionMeter {
    pub(crate) fn read(&self) -> MeterReading {
        MeterReading {
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            write_blocked: self.write_blocked.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
            settled_bytes: self.settled_bytes.load(Ordering::Relaxed),
            pieces_taken: self.pieces_taken.load(Ordering::Relaxed),
            pieces_waiting: self.pieces_waiting.load(Ordering::Relaxed),
        }
    }

    /// Counts a piece of a reply as handed to the HTTP library, which asks for the next when the
    /// client's window has room again.
    pub fn hand_over(self: &Arc<Self>) -> PieceOut {
        self.pieces_waiting.fetch_add(1, Ordering::Relaxed);
        PieceOut(Arc::clone(self))
    }

    pub(crate) fn count_read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts `bytes` as written; `None` if the socket took nothing for now.
    pub fn count_write(&self, bytes: Option<usize>) {
        if let Some(bytes) = bytes {
            self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        self.note_blocked(bytes.is_none());
    }

    /// Notes whether bytes wait for the socket.
    pub(crate) fn note_blocked(&self, is_blocked: bool) {
        self.write_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Counts a request that has begun.
    pub fn request_started(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that has ended.
    pub fn request_ended(&self) {
        // First: once no request is in flight, the watchdog takes further bytes for a new head.
        self.settled_bytes.store(self.read_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the budget of control frames that the connection earned by requests and replies.
    pub fn earned(&self) -> u64 {
        let total = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let pieces = total(&self.requests) + total(&self.pieces_taken);
        let by_bytes = total(&self.written_bytes) / BYTES_PER_EARNED;
        pieces * EARNED_BY_PIECE + by_bytes
    }

    /// Notes that the client has exceeded its budget of control frames.
    pub fn note_flood(&self) {
        self.is_flooded.store(true, Ordering::Relaxed);
    }

    /// Returns true if the client has exceeded its budget of control frames.
    pub fn is_flooded(&self) -> bool {
        self.is_flooded.load(Ordering::Relaxed)
    }

    /// Notes that this node closes the connection because of its client's behaviour.
    pub(crate) fn note_closed_here(&self) {
        self.is_closed_here.store(true, Ordering::Relaxed);
    }

    /// Returns true if this node closed the connection, and not the client.
    pub fn is_closed_here(&self) -> bool {
        self.is_closed_here.load(Ordering::Relaxed)
    }

    /// Counts a request that the client gave up on, and returns how many there have been.
    pub fn request_abandoned(&self) -> u32 {
        self.abandoned.fetch_add(1, Ordering::Relaxed) + 1
    }
}
