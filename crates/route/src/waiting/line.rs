//! What waits of one tenant in one class.

use std::collections::BTreeSet;
use std::time::Instant;

/// A request's place in its tenant's line. The order is that in which it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    /// When its turn should come: as it was told, but before it must have left.
    pub(super) turn_by: Instant,
    /// Number of its arrival, which no other one has.
    pub(super) arrival: u64,
    pub(super) is_newcomer: bool,
    /// When it must have left, served or not.
    pub(super) leave_by: Instant,
    /// Tokens that it takes of the tenant's share, at least 1.
    pub(super) cost: u32,
    /// What it takes of the queue, in parts of [`SIZE_UNIT`] of a place.
    pub(super) size: u64,
}

/// Requests and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) requests: usize,
    /// Tokens.
    pub(crate) cost: u64,
}

/// The line, and the tenant's turn.
#[derive(Debug)]
pub(super) struct Line {
    /// Of those that were promised a place, and of others.
    seats: [BTreeSet<Seat>; 2],
    pub(super) weight: u16,
    pub(super) promised: Load,
    pub(super) newcomers: Load,
    newcomer_size: u64,
    /// Tokens that it may take, as of a round. What it has left when its line is empty is gone: a
    /// share can't be saved up.
    credit: i64,
    credit_round: u64,
    /// The round in which its first request can be paid for, and its place within that round.
    pub(super) turn: (u64, u64),
}

impl Line {
    /// An empty one that joins in this round, behind all others.
    pub(super) fn new(weight: u16, round: u64, sequence: u64) -> Self {
        Self {
            seats: Default::default(),
            weight: weight.max(1),
            promised: Load::default(),
            newcomers: Load::default(),
            newcomer_size: 0,
            credit: 0,
            credit_round: round,
            turn: (round, sequence),
        }
    }

    pub(super) fn insert(&mut self, seat: Seat) {
        if self.seats[usize::from(seat.is_newcomer)].insert(seat) {
            let load = self.load_of(&seat);
            load.requests += 1;
            load.cost += u64::from(seat.cost);
            self.newcomer_size += u64::from(seat.is_newcomer) * seat.size;
        }
    }

    pub(super) fn remove(&mut self, seat: &Seat) {
        if self.seats[usize::from(seat.is_newcomer)].remove(seat) {
            let load = self.load_of(seat);
            load.requests -= 1;
            load.cost -= u64::from(seat.cost);
            self.newcomer_size -= u64::from(seat.is_newcomer) * seat.size;
        }
    }

    /// The next one is served in this round and paid for.
    pub(super) fn take_first(&mut self, round: u64) -> Option<Seat> {
        let first = self.first()?;
        self.accrue(round);
        self.credit -= i64::from(first.cost);
        self.remove(&first);
        Some(first)
    }

    /// Gives the tenant another share from this round on.
    pub(super) fn set_weight(&mut self, weight: u16, round: u64) {
        self.accrue(round);
        self.weight = weight.max(1);
    }

    /// Says when its turn is, after its first request may have changed.
    pub(super) fn plan(&mut self, round: u64) {
        self.accrue(round);
        let Some(first) = self.first() else { return };
        // What was saved up for a request that has left is no reason for a burst.
        self.credit = self.credit.min(i64::from(first.cost) + self.share());
        let lacking = i64::from(first.cost) - self.credit;
        let rounds = lacking.max(0).unsigned_abs().div_ceil(self.share().unsigned_abs());
        self.turn.0 = round + rounds;
    }

    /// The one that is served last of those that were not promised a place.
    pub(super) fn last_newcomer(&self) -> Option<&Seat> {
        self.seats[1].last()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seats.iter().all(BTreeSet::is_empty)
    }

    /// What of it is served before this seat.
    pub(super) fn before(&self, seat: &Seat) -> Load {
        let mut load = Load::default();
        for other in self.seats.iter().flat_map(|seats| seats.range(..seat)) {
            load.requests += 1;
            load.cost += u64::from(other.cost);
        }
        load
    }

    /// All that waits.
    pub(super) fn load(&self) -> Load {
        self.promised.plus(self.newcomers)
    }

    /// How much of a full queue it holds without a promise, by its weight.
    pub(super) fn size(&self) -> u64 {
        self.newcomer_size / u64::from(self.weight)
    }

    /// The same with one more seat.
    pub(super) fn size_with(&self, seat: &Seat) -> u64 {
        (self.newcomer_size + seat.size) / u64::from(self.weight)
    }

    fn first(&self) -> Option<Seat> {
        self.seats.iter().filter_map(BTreeSet::first).min().copied()
    }

    fn load_of(&mut self, seat: &Seat) -> &mut Load {
        if seat.is_newcomer { &mut self.newcomers } else { &mut self.promised }
    }

    fn accrue(&mut self, round: u64) {
        let rounds = i64::try_from(round - self.credit_round).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(rounds.saturating_mul(self.share()));
        self.credit_round = round;
    }

    /// Tokens for each round.
    fn share(&self) -> i64 {
        QUANTUM * i64::from(self.weight)
    }
}

impl Load {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, cost: self.cost + other.cost }
    }
}

/// Tokens that each tenant of weight 1 may take in a round: about one usual request of a chat, so that
/// tenants take turns request by request. More serves several of one tenant in a row; less gives the
/// same shares.
pub(super) const QUANTUM: i64 = 1_024;

/// One place in the queue. Small parts of it count, and differences between large weights.
pub(super) const SIZE_UNIT: u64 = 1 << 16;
