//! Priority class of the queue: a line per tenant, served by deficit round robin on tokens.
//!
//! In each round every tenant that waits gets [`QUANTUM`] tokens, times its weight, and is served
//! while they pay for its next request. A tenant whose next request costs more saves up over
//! rounds. Each line knows the round of its next turn, so that the next line is found in an ordered
//! set, without going through rounds in which no tenant can pay.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Line, QUANTUM, QueueLoad, Seat};

/// Lines of a class, and their turns.
#[derive(Debug, Default)]
pub(super) struct Class {
    lines: BTreeMap<u64, Line>,
    /// Round, place within it, and tenant; the first is served next.
    turns: BTreeSet<(u64, u64, u64)>,
    /// Tenants by the share of the queue that they hold without a promise.
    sizes: BTreeSet<(u64, u64)>,
    round: u64,
    /// Number of lines that ever joined.
    joined: u64,
    load: QueueLoad,
    /// Requests of other classes that were taken out since the last of this one, or since this
    /// class was empty.
    pub(super) passed_over: u32,
}

impl Class {
    pub(super) fn insert(&mut self, tenant: u64, weight: u16, seat: Seat) {
        self.change(tenant, weight, |line, _| line.insert(seat));
        self.load = self.load.plus(QueueLoad { requests: 1, cost: seat.cost.into() });
    }

    pub(super) fn remove(&mut self, tenant: u64, seat: &Seat) {
        let weight = self.weight(tenant).unwrap_or(1);
        self.change(tenant, weight, |line, _| line.remove(seat));
        self.count_out(seat);
    }

    /// Removes the next request.
    pub(super) fn take_next(&mut self) -> Option<(u64, Seat)> {
        let &(round, _, tenant) = self.turns.first()?;
        self.round = round;
        let weight = self.weight(tenant).unwrap_or(1);
        let mut taken = None;
        self.change(tenant, weight, |line, round| taken = line.take_first(round));
        let seat = taken?;
        self.count_out(&seat);
        Some((tenant, seat))
    }

    /// Returns the newcomer that would be served last, of the tenant that holds most of the queue.
    pub(super) fn last_newcomer(&self) -> Option<(u64, Seat)> {
        let &(_, tenant) = self.sizes.last()?;
        let seat = self.lines.get(&tenant)?.last_newcomer()?;
        Some((tenant, *seat))
    }

    /// Returns [`Self::last_newcomer`] if its tenant holds more than this tenant does with one more
    /// seat.
    pub(super) fn last_newcomer_over(&self, tenant: u64, seat: &Seat) -> Option<(u64, Seat)> {
        let own = self.lines.get(&tenant);
        let own = own.map_or(seat.size, |line| line.size_with(seat));
        let &(size, largest) = self.sizes.last()?;
        let is_over = largest != tenant && size > own;
        is_over.then(|| self.last_newcomer()).flatten()
    }

    /// Returns [`Self::last_newcomer`] for a promised request to replace: if it is of this tenant,
    /// or of a tenant of which more waits.
    pub(super) fn last_newcomer_for(&self, tenant: u64) -> Option<(u64, Seat)> {
        let found = self.last_newcomer()?;
        let waits = |tenant: u64| {
            let line = self.lines.get(&tenant);
            line.map_or(0, |line| line.load().requests / usize::from(line.weight))
        };
        (found.0 == tenant || waits(found.0) > waits(tenant)).then_some(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.load.requests == 0
    }

    /// Returns the load of all requests that wait.
    pub(super) fn load(&self) -> QueueLoad {
        self.load
    }

    /// Returns the tenants that wait: name, weight, load of promised requests, load of others.
    pub(super) fn lines(&self) -> impl Iterator<Item = (u64, u16, QueueLoad, QueueLoad)> + '_ {
        let parts =
            |(&tenant, line): (&u64, &Line)| (tenant, line.weight, line.promised, line.newcomers);
        self.lines.iter().map(parts)
    }

    /// Returns the weight of this tenant; `None` if no request of it waits.
    pub(super) fn weight(&self, tenant: u64) -> Option<u16> {
        self.lines.get(&tenant).map(|line| line.weight)
    }

    /// Returns how many requests of this tenant wait, and how many tenants wait, with this one.
    pub(super) fn share(&self, tenant: u64) -> (usize, usize) {
        match self.lines.get(&tenant) {
            Some(line) => (line.load().requests, self.lines.len()),
            None => (0, self.lines.len() + 1),
        }
    }

    /// Returns how many requests of this class are served before this one, if no other comes: those
    /// of its own tenant by their order, and of other tenants as many as their shares allow by
    /// then.
    pub(super) fn position(&self, tenant: u64, seat: &Seat) -> usize {
        let Some(own) = self.lines.get(&tenant) else { return 0 };
        let before = own.before(seat);
        let cost = before.cost + u64::from(seat.cost);
        let others = self.lines.iter().filter(|&(&other, _)| other != tenant);
        let part = |(_, other): (&u64, &Line)| {
            let load = other.load();
            // By then each other tenant was served as many tokens, in proportion to the weights.
            let paid = cost * u64::from(other.weight) / u64::from(own.weight);
            if paid >= load.cost { load.requests } else { share_of(load, paid) }
        };
        before.requests + others.map(part).sum::<usize>()
    }

    /// Changes a tenant's line, creates it if there is none, and updates the indexes.
    fn change(&mut self, tenant: u64, weight: u16, change: impl FnOnce(&mut Line, u64)) {
        let mut line = self.lines.remove(&tenant).unwrap_or_else(|| {
            self.joined += 1;
            Line::new(weight, self.round, self.joined)
        });
        // The indexes hold values that are about to change.
        self.turns.remove(&(line.turn.0, line.turn.1, tenant));
        self.sizes.remove(&(line.size(), tenant));
        change(&mut line, self.round);
        // The weight counts from this round on: earlier credit was earned with the old one.
        line.set_weight(weight, self.round);
        // An empty line is dropped with its unused credit: shares can't be saved up.
        if line.is_empty() {
            return;
        }
        line.plan(self.round);
        self.turns.insert((line.turn.0, line.turn.1, tenant));
        self.sizes.insert((line.size(), tenant));
        self.lines.insert(tenant, line);
    }

    fn count_out(&mut self, seat: &Seat) {
        self.load.requests -= 1;
        self.load.cost -= u64::from(seat.cost);
        // An empty class is owed no turns.
        if self.is_empty() {
            self.passed_over = 0;
        }
    }
}

/// Returns the tokens that a request takes of its tenant's share.
pub(crate) fn cost(tokens: u32) -> u32 {
    if tokens == 0 { QUANTUM as u32 } else { tokens.max(COST_MIN) }
}

/// Least cost of a request in tokens: a replica works on each request, however small.
const COST_MIN: u32 = 64;

fn share_of(load: QueueLoad, paid: u64) -> usize {
    (load.requests as f64 * paid as f64 / load.cost as f64) as usize
}
