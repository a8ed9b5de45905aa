//! One node's part in dividing limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use spillway_types::NodeName;

use crate::book::{Before, Book};
use crate::fate::{Fate, Pending};
use crate::need::needed;
use crate::seen::{Seen, least};
use crate::statement::{LINES_MAX, OVERDUE_MAX};
use crate::watch::Watch;
use crate::{
    Holding, Lease, LimitKind, Overdue, Pool, Quotas, Run, Scope, ShareLine, Shares, Statement,
    Units,
};

/// Time between two statements of a region, so that limits take a known part of the log.
const PACE_MS: u64 = 2_000;
/// Nodes of a region that wait for each other's statement don't go on at the same time.
const PACE_SPREAD_MS: u64 = 400;
/// Limits looked at in one look; with more than this, each comes in a later one.
const SCOPES_EACH_LOOK: usize = 4_096;
/// Bytes of a statement. Larger entries hold up others on thin links.
const STATEMENT_BYTES_MAX: usize = 24 << 10;
/// A limit that found no place in the agreed state is tried again after this long.
const INTRODUCE_AGAIN_MS: u64 = 60_000;
/// Kept beside a window: what a process charged last may have counted a moment after it ended.
const MARGIN_NS: u64 = 100_000_000;
/// Statements of unknown fate that are remembered one by one.
const PENDING_MAX: usize = 4;

/// One node's part in dividing limits: what it may use, and what it says in the log.
///
/// Call [`Self::look`] a few times a second and whenever the agreed state changed; propose the
/// statement that it returns, and tell [`Self::answered`] what became of it.
#[derive(Debug)]
pub struct Holder {
    run: Run,
    serial: u64,
    /// The serial of our last statement that was taken in, and when its leases end.
    applied: u64,
    ends_ns: u64,
    pending: Vec<Pending>,
    is_waiting: bool,
    not_before_ns: u64,
    watch: Watch,
    needs: BTreeMap<Scope, Units>,
    /// Limits that this process has spoken of for the first time: in which statement, and when.
    introduced: BTreeMap<Scope, (u64, u64)>,
    before: Before,
    /// When this process first looked.
    born_ns: Option<u64>,
    /// What an earlier process said it keeps of floors, as long as nobody has heard this one.
    floor_caps: BTreeMap<Scope, Units>,
    /// Floors that this process has given a part of.
    lowered: BTreeMap<Scope, Units>,
    next: Option<Scope>,
    is_leaving: bool,
    /// Limits that it has spoken of since it leaves.
    left: BTreeSet<Scope>,
    dice: fastrand::Rng,
}

impl Holder {
    /// The process `incarnation` of `node`; it has to be larger than that of any process before: the
    /// time of day in milliseconds will do. What the last one kept of floors is what its
    /// [`Self::lowered_floors`] said.
    #[must_use]
    pub fn new(node: NodeName, incarnation: u64, before: Before, dice: fastrand::Rng) -> Self {
        let floor_caps = match &before {
            Before::Nothing => BTreeMap::new(),
            Before::Counted(kept) | Before::Unknown(kept) => kept.clone(),
        };
        Self {
            before,
            born_ns: None,
            watch: Watch::default(),
            run: Run { node, incarnation },
            serial: 0,
            applied: 0,
            ends_ns: 0,
            pending: Vec::new(),
            is_waiting: false,
            not_before_ns: 0,
            needs: BTreeMap::new(),
            introduced: BTreeMap::new(),
            lowered: floor_caps.clone(),
            floor_caps,
            next: None,
            is_leaving: false,
            left: BTreeSet::new(),
            dice,
        }
    }

    /// Goes by what was agreed on: `quotas` hold what this node may use now. Returns what to propose,
    /// if anything; what it gives up it has given up already.
    #[must_use]
    pub fn look(
        &mut self,
        now: Instant,
        (shares, book): (&Shares, &Book),
        quotas: &Quotas,
    ) -> Option<Statement> {
        let now_ns = quotas.clock_ns(now);
        self.born_ns.get_or_insert(now_ns);
        self.observe(now_ns, shares, book);
        let is_free = !self.is_waiting && now_ns >= self.not_before_ns;
        let is_renewal = self.is_renewal_due(now_ns, (shares, book.lease_ms));
        let mut lines = Vec::new();
        for scope in self.round(book) {
            let mut seen = Seen::new(&self.run, shares, book, &scope);
            if self.is_leaving {
                seen.lease_most = Units::NONE;
            }
            self.follow(&seen, now_ns, quotas);
            self.feel(&seen, quotas);
            if is_free && self.is_worth_a_line(&seen, is_renewal, (now_ns, quotas)) {
                lines.push(self.line(&seen, quotas));
            }
            if lines.len() >= LINES_MAX || bytes(&lines) >= STATEMENT_BYTES_MAX {
                break;
            }
        }
        if !is_free {
            return None;
        }
        lines.extend(self.farewells(shares, book, LINES_MAX - lines.len()));
        let mut overdue = self.watch.overdue(now_ns, &self.run, (shares, book.place_ms));
        overdue.truncate(OVERDUE_MAX);
        if lines.is_empty() && (self.is_leaving || overdue.is_empty() && !is_renewal) {
            return None;
        }
        Some(self.state((now_ns, shares, book.lease_ms), lines, overdue))
    }

    /// The process is about to end: the next look gives back leases that are not in use, at once. Of very
    /// many it takes some, so call this and look again until it has nothing more to say.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.is_waiting = false;
        self.not_before_ns = 0;
    }

    /// What became of a statement.
    pub fn answered(&mut self, serial: u64, fate: Fate, now_ns: u64) {
        self.is_waiting = false;
        match fate {
            Fate::TakenIn | Fate::Unknown => {}
            Fate::Never => self.pending.retain(|pending| pending.serial != serial),
        }
        // Whoever was refused asks no sooner than one who was not.
        self.pace(now_ns);
    }

    /// Floors that this node has given a part of, and what it has left of them. The next process may
    /// begin with an older state, where they are as they were before: it has to keep to these until
    /// somebody has heard it. Write them down before proposing.
    #[must_use]
    pub fn lowered_floors(&self) -> &BTreeMap<Scope, Units> {
        &self.lowered
    }

    /// Who this is.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// When the leases of this process end, by the clock of its [`Quotas`].
    #[must_use]
    pub fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    fn observe(&mut self, now_ns: u64, shares: &Shares, book: &Book) {
        match shares.runs().get(&self.run) {
            Some(row) if row.serial > self.applied => {
                let sent = self.pending.iter().find(|pending| pending.serial == row.serial);
                if let Some(sent) = sent {
                    self.ends_ns = sent.at_ns + u64::from(row.length_ms) * 1_000_000;
                }
                self.applied = row.serial;
                self.pending.retain(|pending| pending.serial > row.serial);
                self.floor_caps.clear();
            }
            Some(_) => {}
            None => self.overtake(shares),
        }
        let was_sibling = self.watch.observe(now_ns, &self.run, (shares, &book.siblings));
        if was_sibling {
            self.pace(now_ns);
        }
    }

    /// A clock that was set back gave this process a number that an earlier one had passed.
    fn overtake(&mut self, shares: &Shares) {
        if let Some(newest) = shares.newest(&self.run.node).filter(|newest| **newest > self.run) {
            self.run.incarnation = newest.incarnation + 1;
        }
    }

    fn pace(&mut self, now_ns: u64) {
        let wait_ms = PACE_MS + self.dice.u64(..PACE_SPREAD_MS);
        self.not_before_ns = self.not_before_ns.max(now_ns + wait_ms * 1_000_000);
    }

    fn is_renewal_due(&self, now_ns: u64, (shares, lease_ms): (&Shares, u32)) -> bool {
        let third_ns = u64::from(lease_ms) * 1_000_000 / 3;
        let holds = |pool: &Pool| pool.lease(&self.run).is_some_and(|lease| !lease.held.is_none());
        now_ns + 2 * third_ns >= self.ends_ns && shares.pools().values().any(holds)
    }

    /// The limits to look at now: all, or the next ones of very many.
    fn round(&mut self, book: &Book) -> Vec<Scope> {
        let first = self.next.take();
        let from = first.as_ref().map(|first| book.terms.range(first..));
        let scopes: Vec<Scope> = match from {
            Some(rest) => rest.map(|(scope, _)| scope.clone()).take(SCOPES_EACH_LOOK).collect(),
            None => book.terms.keys().take(SCOPES_EACH_LOOK).cloned().collect(),
        };
        if book.terms.len() > SCOPES_EACH_LOOK && scopes.len() == SCOPES_EACH_LOOK {
            self.next = scopes.last().cloned();
        }
        scopes
    }

    /// Has requests use what this node may use.
    fn follow(&self, seen: &Seen<'_>, now_ns: u64, quotas: &Quotas) {
        let (mut floor, mut lease) = seen.kept();
        let pending = self.pending.iter().filter_map(|pending| pending.lines.get(seen.scope));
        for (floor_said, lease_said) in pending {
            floor = least(floor, *floor_said);
            lease = least(lease, *lease_said);
        }
        if let Some(cap) = self.floor_caps.get(seen.scope) {
            floor = least(floor, *cap);
        }
        let floor = Units::each(|kind| if self.knows(kind, now_ns) { floor[kind] } else { 0 });
        quotas.hold(seen.scope, &Holding { floor, lease, lease_ends_ns: self.ends_ns });
        quotas.pay_at(seen.scope, now_ns);
    }

    /// Whether all is known that was charged to floors of a kind and still counts.
    fn knows(&self, kind: LimitKind, now_ns: u64) -> bool {
        let is_unknown = match (&self.before, kind) {
            (Before::Nothing, _) => false,
            (Before::Counted(_), LimitKind::TokenRate) => false,
            (Before::Counted(_) | Before::Unknown(_), _) => true,
        };
        // What ran ended with its process.
        let window_ns = kind.window().map_or(0, |window| window.as_nanos() as u64);
        let counts_ns = if window_ns == 0 { 0 } else { window_ns + window_ns / 1_000 + MARGIN_NS };
        !is_unknown || self.born_ns.is_some_and(|born| now_ns >= born + counts_ns)
    }

    /// Takes in what requests asked for.
    fn feel(&mut self, seen: &Seen<'_>, quotas: &Quotas) {
        let demand = quotas.take_demand(seen.scope);
        let need = self.needs.entry(seen.scope.clone()).or_default();
        let held = |kind| seen.floor[kind] + seen.lease[kind];
        *need = Units::each(|kind| {
            let whole = seen.terms.whole[kind as usize].unwrap_or(0);
            needed(need[kind], (&demand, kind), held(kind)).min(whole)
        });
    }

    fn is_worth_a_line(
        &mut self,
        seen: &Seen<'_>,
        is_renewal: bool,
        (now_ns, quotas): (u64, &Quotas),
    ) -> bool {
        let Some(pool) = seen.pool.filter(|_| seen.need.is_some()) else {
            return !self.is_leaving && self.may_introduce(seen.scope, now_ns);
        };
        self.introduced.remove(seen.scope);
        if self.is_leaving {
            return !self.left.contains(seen.scope) && self.can_give(seen, quotas);
        }
        let lease_need = self.lease_need(seen);
        let told = seen.need.unwrap_or_default();
        let is_urgent = |kind| {
            lease_need[kind] > seen.lease[kind] && lease_need[kind] > told[kind] + told[kind] / 8
        };
        let has_changed = |kind| lease_need[kind].abs_diff(told[kind]) > 1 + told[kind] / 8;
        LimitKind::ALL.into_iter().any(is_urgent)
            || is_renewal && LimitKind::ALL.into_iter().any(has_changed)
            || self.can_give(seen, quotas)
            || !pool.is_settled(seen.terms)
    }

    /// Whether to speak of a limit of which this process has no lease. If the last statement that did
    /// was taken in, there was no place for it.
    fn may_introduce(&mut self, scope: &Scope, now_ns: u64) -> bool {
        let may = self.introduced.get(scope).is_none_or(|(serial, at_ns)| {
            self.applied < *serial || now_ns >= at_ns + INTRODUCE_AGAIN_MS * 1_000_000
        });
        if may {
            self.introduced.insert(scope.clone(), (self.next_serial(), now_ns));
        }
        may
    }

    fn next_serial(&self) -> u64 {
        self.serial.max(self.applied) + 1
    }

    /// Whether so much can be given to others that it is worth a line.
    fn can_give(&self, seen: &Seen<'_>, quotas: &Quotas) -> bool {
        let (floor, lease) = seen.kept();
        if (floor, lease) == (seen.floor, seen.lease) {
            return false;
        }
        let (floor_said, lease_said) = seen.said(quotas);
        LimitKind::ALL.into_iter().any(|kind| {
            let before = seen.floor[kind] + seen.lease[kind];
            let after = floor_said[kind] + lease_said[kind];
            let least = seen.terms.whole[kind as usize].unwrap_or(0) / 64;
            after < before && (before - after > least || after == floor[kind] + lease[kind])
        })
    }

    fn line(&self, seen: &Seen<'_>, quotas: &Quotas) -> ShareLine {
        let (floor, lease) = seen.said(quotas);
        ShareLine { scope: seen.scope.clone(), floor, lease, need: self.lease_need(seen) }
    }

    fn lease_need(&self, seen: &Seen<'_>) -> Units {
        let need = self.needs.get(seen.scope).copied().unwrap_or_default();
        let floor = |kind| if self.is_leaving { u64::MAX } else { seen.floor[kind] };
        Units::each(|kind| need[kind].saturating_sub(floor(kind)))
    }

    /// Limits that are no more, of which this node still has something.
    fn farewells(&mut self, shares: &Shares, book: &Book, most: usize) -> Vec<ShareLine> {
        self.needs.retain(|scope, _| book.terms.contains_key(scope));
        self.introduced.retain(|scope, _| book.terms.contains_key(scope));
        let is_mine = |pool: &Pool| {
            let lease = pool.lease(&self.run).copied().unwrap_or_default();
            !pool.floor(&self.run.node).is_none() || lease != Lease::default()
        };
        let gone = shares
            .pools()
            .iter()
            .filter(|(scope, pool)| !book.terms.contains_key(*scope) && is_mine(pool));
        let line = |(scope, _): (&Scope, _)| ShareLine {
            scope: scope.clone(),
            floor: Units::NONE,
            lease: Units::NONE,
            need: Units::NONE,
        };
        gone.map(line).take(most).collect()
    }

    /// Remembers a floor that becomes less, and one that was less and is as it should be now.
    fn note_floor(&mut self, line: &ShareLine, shares: &Shares) {
        let agreed = shares.pool(&line.scope).map(|pool| pool.floor(&self.run.node));
        let is_lower = |kind| agreed.is_some_and(|agreed| line.floor[kind] < agreed[kind]);
        if LimitKind::ALL.into_iter().any(is_lower) || self.lowered.contains_key(&line.scope) {
            self.lowered.insert(line.scope.clone(), line.floor);
        }
    }

    fn state(
        &mut self,
        (now_ns, shares, length_ms): (u64, &Shares, u32),
        lines: Vec<ShareLine>,
        overdue: Vec<Overdue>,
    ) -> Statement {
        self.serial = self.next_serial();
        let said = lines.iter().map(|line| (line.scope.clone(), (line.floor, line.lease)));
        let mut pending = Pending { serial: self.serial, at_ns: now_ns, lines: said.collect() };
        for line in &lines {
            self.note_floor(line, shares);
        }
        if self.is_leaving {
            self.left.extend(lines.iter().map(|line| line.scope.clone()));
        }
        if self.pending.len() >= PENDING_MAX {
            // What it gave up stays given up until this later one was taken in.
            pending.take_over(self.pending.remove(0));
        }
        self.pending.push(pending);
        self.is_waiting = true;
        Statement {
            run: self.run.clone(),
            serial: self.serial,
            length_ms,
            lines,
            overdue,
            is_last: self.is_leaving,
        }
    }
}

fn bytes(lines: &[ShareLine]) -> usize {
    lines.iter().map(ShareLine::bytes_about).sum()
}

#[cfg(test)]
#[path = "holder_test.rs"]
mod tests;
