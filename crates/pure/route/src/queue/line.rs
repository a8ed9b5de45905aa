//! Line of one tenant in one class.

use std::collections::BTreeSet;
use std::time::Instant;

/// Place of a request in its tenant's line; the order is the order of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seat {
    /// Moment of the turn as promised or predicted, at the latest `leave_by`.
    pub(super) turn_by: Instant,
    /// Number of the arrival, unique in the queue.
    pub(super) arrival: u64,
    pub(super) is_newcomer: bool,
    /// Moment by which the request must have left, served or not.
    pub(super) leave_by: Instant,
    /// Tokens that the request takes of the tenant's share, at least 1.
    pub(super) cost: u32,
    /// Size in the queue, in parts of [`SIZE_UNIT`] of a place.
    pub(super) size: u64,
}

/// Number of requests and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueLoad {
    pub(crate) requests: usize,
    /// Cost in tokens.
    pub(crate) cost: u64,
}

/// Line of a tenant, and its turn.
#[derive(Debug)]
pub(super) struct Line {
    /// Seats of promised requests, and of others.
    seats: [BTreeSet<Seat>; 2],
    pub(super) weight: u16,
    pub(super) promised: QueueLoad,
    pub(super) newcomers: QueueLoad,
    newcomer_size: u64,
    /// Tokens that the tenant may take, as of `credit_round`. The rest is lost when the line is
    /// empty: a share can't be saved up.
    credit: i64,
    credit_round: u64,
    /// Round in which the first request can be paid for, and the place within that round.
    pub(super) turn: (u64, u64),
}

impl Line {
    /// Returns an empty line that joins in this round, behind all others.
    pub(super) fn new(weight: u16, round: u64, sequence: u64) -> Self {
        Self {
            seats: Default::default(),
            weight: weight.max(1),
            promised: QueueLoad::default(),
            newcomers: QueueLoad::default(),
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

    /// Removes the first seat, and pays for it in this round.
    pub(super) fn take_first(&mut self, round: u64) -> Option<Seat> {
        let first = self.first()?;
        self.accrue(round);
        self.credit -= i64::from(first.cost);
        self.remove(&first);
        Some(first)
    }

    /// Sets the tenant's weight from this round on.
    pub(super) fn set_weight(&mut self, weight: u16, round: u64) {
        self.accrue(round);
        self.weight = weight.max(1);
    }

    /// Computes the turn again, after the first request may have changed.
    pub(super) fn plan(&mut self, round: u64) {
        self.accrue(round);
        let Some(first) = self.first() else { return };
        // Credit that was saved up for a request that has left must not allow a burst.
        self.credit = self.credit.min(i64::from(first.cost) + self.share());
        let lacking = i64::from(first.cost) - self.credit;
        // Rounds until the tenant has saved up the missing tokens.
        let rounds = lacking.max(0).unsigned_abs().div_ceil(self.share().unsigned_abs());
        self.turn.0 = round + rounds;
    }

    /// Returns the newcomer, which is a request without a promise, that would be served last.
    pub(super) fn last_newcomer(&self) -> Option<&Seat> {
        self.seats[1].last()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seats.iter().all(BTreeSet::is_empty)
    }

    /// Returns the load that is served before this seat.
    pub(super) fn before(&self, seat: &Seat) -> QueueLoad {
        let mut load = QueueLoad::default();
        for other in self.seats.iter().flat_map(|seats| seats.range(..seat)) {
            load.requests += 1;
            load.cost += u64::from(other.cost);
        }
        load
    }

    /// Returns the load of all requests.
    pub(super) fn load(&self) -> QueueLoad {
        self.promised.plus(self.newcomers)
    }

    /// Returns the part of the queue that newcomers of the line hold, divided by the weight.
    pub(super) fn size(&self) -> u64 {
        self.newcomer_size / u64::from(self.weight)
    }

    /// Returns [`Self::size`] with one more seat.
    pub(super) fn size_with(&self, seat: &Seat) -> u64 {
        (self.newcomer_size + seat.size) / u64::from(self.weight)
    }

    fn first(&self) -> Option<Seat> {
        self.seats.iter().filter_map(BTreeSet::first).min().copied()
    }

    fn load_of(&mut self, seat: &Seat) -> &mut QueueLoad {
        if seat.is_newcomer { &mut self.newcomers } else { &mut self.promised }
    }

    fn accrue(&mut self, round: u64) {
        let rounds = i64::try_from(round - self.credit_round).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_add(rounds.saturating_mul(self.share()));
        self.credit_round = round;
    }

    /// Returns the tokens that the tenant gets in each round.
    fn share(&self) -> i64 {
        QUANTUM * i64::from(self.weight)
    }
}

impl QueueLoad {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, cost: self.cost + other.cost }
    }
}

/// Tokens that a tenant of weight 1 gets in a round: about one usual request of a chat, so that
/// tenants take turns request by request. With a larger value several requests of one tenant are
/// served in a row; a smaller one gives the same shares.
pub(super) const QUANTUM: i64 = 1_024;

/// Size of one place in the queue: fine enough for small parts and for differences between large
/// weights.
pub(super) const SIZE_UNIT: u64 = 1 << 16;
