//! Memory pressure: a watcher of the process's memory sets a flag that requests read.
//!
//! Everything that grows with load has a limit of its own; their sum is still more than a small
//! machine has. So a node refuses most new work before its memory is used up. It still serves a
//! trickle: the allocator may keep freed memory, and then only work done shows that there is room.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU64, Ordering};

use crate::ahead_room::AheadRoom;

/// Share of the ceiling from which on new requests are refused, in thousandths.
const TIGHT_PERMILLE: u64 = 900;
/// Share from which on new connections are refused too, in thousandths.
const FULL_PERMILLE: u64 = 970;
/// Hysteresis: a state ends this much below the share at which it began, in thousandths.
const BACK_PERMILLE: u64 = 50;
/// Requests, and connections, served whatever the memory in each period of the trickle.
const TRICKLE: i32 = 4;
/// Bytes read from all clients in each period of the trickle while memory is full: heads of some
/// hundred requests.
const READ_TRICKLE_BYTES: i64 = 1 << 20;
/// Part of the ceiling that all buffered bodies together may hold, as a divisor: while a body is
/// gathered it takes up to three times its length, and other things need memory too.
const BODIES_PART: u64 = 5;
/// Divisor for buffered bodies while memory is tight.
const BODIES_PART_TIGHT: u64 = 16;
/// Divisor for buffered bodies while memory is full: new bodies are stopped then, except short
/// ones.
const BODIES_PART_FULL: u64 = 64;
/// Share of the ceiling from which on memory is checked more often and free memory is returned to
/// the system, in thousandths.
const CLOSE_PERMILLE: u64 = 700;
/// Part of the ceiling that all replies read ahead together may hold, as a divisor. Nothing more is
/// read ahead while memory is tight: a replica that waits costs others time, a node without memory
/// costs everything.
const AHEAD_PART: u64 = 8;

/// Memory pressure of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    // Free => (Tight | Full)
    /// Memory is free.
    #[default]
    Free,
    // Tight => (Free | Full)
    /// Memory is tight: requests are refused, except for a trickle.
    Tight,
    // Full => (Tight | Free)
    /// Memory is full: connections are refused as well, except for a trickle.
    Full,
}

/// Memory of the process, as requests see it. Reading never blocks.
#[derive(Debug)]
pub struct Memory {
    pressure: AtomicU8,
    /// Requests admitted until the trickle is renewed.
    trickle: AtomicI32,
    /// Connections admitted until then.
    connection_trickle: AtomicI32,
    /// Bytes read from clients until then, if memory is full.
    read_trickle: AtomicI64,
    used_bytes: AtomicU64,
    ceiling_bytes: AtomicU64,
    ahead: Arc<AheadRoom>,
    /// Most bytes read ahead, whatever the ceiling.
    ahead_bytes_max: u64,
}

impl Pressure {
    /// Returns the state that follows this one at `used_bytes` of `ceiling_bytes`. A ceiling of 0
    /// is none.
    #[must_use]
    pub fn next(self, used_bytes: u64, ceiling_bytes: u64) -> Self {
        let reaches = |state: Self, permille: u64| {
            let margin = if self >= state { BACK_PERMILLE } else { 0 };
            let part = u128::from(ceiling_bytes) * u128::from(permille - margin);
            ceiling_bytes > 0 && u128::from(used_bytes) * 1000 >= part
        };
        if reaches(Self::Full, FULL_PERMILLE) {
            return Self::Full;
        }
        if reaches(Self::Tight, TIGHT_PERMILLE) { Self::Tight } else { Self::Free }
    }

    fn of(number: u8) -> Self {
        match number {
            0 => Self::Free,
            1 => Self::Tight,
            _ => Self::Full,
        }
    }
}

impl Memory {
    /// Returns memory without a ceiling. All replies read ahead of their clients have
    /// `ahead_bytes_max` at most.
    pub fn new(ahead_bytes_max: u64) -> Self {
        Self {
            pressure: AtomicU8::default(),
            trickle: AtomicI32::default(),
            connection_trickle: AtomicI32::default(),
            read_trickle: AtomicI64::default(),
            used_bytes: AtomicU64::default(),
            ceiling_bytes: AtomicU64::default(),
            ahead: Arc::new(AheadRoom::new(ahead_bytes_max)),
            ahead_bytes_max,
        }
    }

    /// Sets the memory in use and the ceiling, and renews the trickle. Call it ten times a
    /// second; returns the new state.
    pub fn note(&self, used_bytes: u64, ceiling_bytes: u64) -> Pressure {
        self.trickle.store(TRICKLE, Ordering::Relaxed);
        self.connection_trickle.store(TRICKLE, Ordering::Relaxed);
        self.read_trickle.store(READ_TRICKLE_BYTES, Ordering::Relaxed);
        self.look(used_bytes, ceiling_bytes)
    }

    /// Sets the memory in use and the ceiling. May be called at any time; returns the new state.
    pub fn look(&self, used_bytes: u64, ceiling_bytes: u64) -> Pressure {
        let next = self.pressure().next(used_bytes, ceiling_bytes);
        self.used_bytes.store(used_bytes, Ordering::Relaxed);
        self.ceiling_bytes.store(ceiling_bytes, Ordering::Relaxed);
        self.pressure.store(next as u8, Ordering::Relaxed);
        self.ahead.resize(match (next, ceiling_bytes) {
            (Pressure::Free, 0) => self.ahead_bytes_max,
            (Pressure::Free, ceiling) => self.ahead_bytes_max.min(ceiling / AHEAD_PART),
            (Pressure::Tight | Pressure::Full, _) => 0,
        });
        next
    }

    /// Returns the memory limit of replies that are read ahead of their clients.
    #[must_use]
    pub fn ahead(&self) -> &Arc<AheadRoom> {
        &self.ahead
    }

    /// Returns the current state.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        Pressure::of(self.pressure.load(Ordering::Relaxed))
    }

    /// Returns true if memory is tight or full.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.pressure() >= Pressure::Tight
    }

    /// Returns true if a new request may be served. Call it once for each request.
    #[must_use]
    pub fn admits_request(&self) -> bool {
        !self.is_tight() || self.trickle.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// Returns true if a new connection may be served. Call it once for each connection.
    /// Without a trickle, a node whose memory became free unnoticed would refuse every client for
    /// ever.
    pub fn admits_connection(&self) -> bool {
        let is_in_trickle = || self.connection_trickle.fetch_sub(1, Ordering::Relaxed) > 0;
        self.pressure() < Pressure::Full || is_in_trickle()
    }

    /// Returns true if bytes of a client may be read while memory is full. Unread bytes take no
    /// memory.
    pub fn admits_read(&self) -> bool {
        self.read_trickle.load(Ordering::Relaxed) > 0
    }

    /// Counts bytes that were read from a client while memory is full.
    pub fn count_read(&self, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.read_trickle.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns true if the ceiling is so near that memory must be checked more often and free
    /// memory be returned to the system.
    #[must_use]
    pub fn is_near_ceiling(&self) -> bool {
        let near = u128::from(self.ceiling_bytes()) * u128::from(CLOSE_PERMILLE);
        near > 0 && u128::from(self.used_bytes()) * 1000 >= near
    }

    /// Returns the most bytes that all buffered bodies may hold together.
    pub fn bodies_bytes_max(&self) -> u64 {
        let part = match self.pressure() {
            Pressure::Free => BODIES_PART,
            Pressure::Tight => BODIES_PART_TIGHT,
            Pressure::Full => BODIES_PART_FULL,
        };
        match self.ceiling_bytes() {
            0 => u64::MAX,
            ceiling => ceiling / part,
        }
    }

    /// Returns the memory in use at the last call of `look` or `note`, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns the ceiling in bytes; 0 without one.
    #[must_use]
    pub fn ceiling_bytes(&self) -> u64 {
        self.ceiling_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_begins_at_its_share_and_ends_below_it() {
        let memory = Memory::new(100);
        let looks = [
            (899, Pressure::Free),
            (900, Pressure::Tight),
            (860, Pressure::Tight),
            (849, Pressure::Free),
            (899, Pressure::Free),
            (970, Pressure::Full),
            (925, Pressure::Full),
            (919, Pressure::Tight),
            (969, Pressure::Tight),
            (2_000, Pressure::Full),
            (10, Pressure::Free),
        ];
        for (used, expected) in looks {
            assert_eq!(memory.note(used, 1_000), expected, "{used}");
            assert_eq!(memory.pressure(), expected);
        }
        assert_eq!((memory.used_bytes(), memory.ceiling_bytes()), (10, 1_000));
        assert_eq!(memory.note(u64::MAX, u64::MAX), Pressure::Full);
    }

    #[test]
    fn without_a_ceiling_nothing_is_refused() {
        let memory = Memory::new(100);
        assert_eq!(memory.note(u64::MAX, 0), Pressure::Free);
        assert!((0..100).all(|_| memory.admits_request()));
        assert!(memory.admits_connection() && memory.bodies_bytes_max() == u64::MAX);
    }

    #[test]
    fn a_trickle_goes_on_while_memory_is_tight() {
        let memory = Memory::new(100);
        memory.note(950, 1_000);
        let let_in = || (0..100).filter(|_| memory.admits_request()).count();
        assert_eq!(let_in(), 4);
        assert_eq!(let_in(), 0);
        assert!(memory.admits_connection());
        assert_eq!(memory.bodies_bytes_max(), 62);
        memory.note(980, 1_000);
        assert_eq!(let_in(), 4);
        assert_eq!(memory.bodies_bytes_max(), 15);
        memory.note(100, 1_000);
        assert_eq!((let_in(), memory.bodies_bytes_max()), (100, 200));
    }

    #[test]
    fn a_trickle_of_connections_is_let_in_while_memory_is_full() {
        let memory = Memory::new(100);
        let let_in = || (0..100).filter(|_| memory.admits_connection()).count();
        memory.note(980, 1_000);
        assert_eq!((let_in(), let_in()), (4, 0));
        memory.look(985, 1_000);
        assert_eq!(let_in(), 0, "a look alone renews nothing");
        memory.note(980, 1_000);
        assert_eq!(let_in(), 4);
        memory.note(100, 1_000);
        assert_eq!(let_in(), 100);
    }

    #[test]
    fn a_trickle_of_bytes_is_read_while_memory_is_full() {
        let memory = Memory::new(100);
        memory.note(980, 1_000);
        memory.count_read(1 << 19);
        assert!(memory.admits_read());
        memory.count_read(1 << 19);
        assert!(!memory.admits_read());
        memory.look(980, 1_000);
        assert!(!memory.admits_read(), "a look alone renews nothing");
        memory.note(980, 1_000);
        assert!(memory.admits_read());
    }

    #[test]
    fn memory_is_looked_at_closely_near_its_ceiling() {
        let memory = Memory::new(100);
        assert!(!memory.is_near_ceiling());
        for (used, ceiling, is_near) in [(699, 1_000, false), (700, 1_000, true), (700, 0, false)] {
            memory.look(used, ceiling);
            assert_eq!(memory.is_near_ceiling(), is_near, "{used} of {ceiling}");
        }
    }

    #[test]
    fn what_is_read_ahead_has_a_part_of_the_ceiling_and_nothing_while_memory_is_tight() {
        let memory = Memory::new(100);
        let room = |bytes| memory.ahead().has(bytes);
        assert!(room(100) && !room(101), "before the first look");
        for (used, ceiling, most) in
            [(1, 0, 100), (1, 8_000, 100), (1, 400, 50), (380, 400, 0), (399, 400, 0), (1, 80, 10)]
        {
            memory.note(used, ceiling);
            assert!(room(most) && !room(most + 1), "{used} of {ceiling}");
        }
    }
}
