//! State machine of one node that takes part in dividing limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use spillway_types::NodeName;

use crate::agreed_limits::{AgreedLimits, Before};
use crate::fate::{Fate, Pending};
use crate::need::needed;
use crate::pace::{Pace, StatementTurn};
use crate::seen::{LimitView, least};
use crate::statement::{LINES_MAX, OVERDUE_MAX};
use crate::watch::{StatementWatch, has_legacy};
use crate::{
    Holding, LimitKind, Overdue, Pool, PoolLease, Quotas, RequestWindow, Run, Scope, ShareLine,
    Shares, Statement, Units,
};

/// Limits handled in one call of [`Holder::look`]. If there are more, later calls handle the rest.
const SCOPES_EACH_LOOK: usize = 4_096;
/// Target size of a statement, in bytes. Larger entries hold up others on thin links.
const STATEMENT_BYTES_MAX: usize = 24 << 10;
/// Delay until a limit that found no room in the agreed state is tried again.
const INTRODUCE_AGAIN_MS: u64 = 60_000;
/// Extra time after a window: the process before may have charged just after it was last counted.
const MARGIN_NS: u64 = 100_000_000;
/// Statements of unknown outcome that are kept one by one; older ones are merged.
const PENDING_MAX: usize = 4;

/// Part of one node in dividing limits: what it may use, and what it states in the log.
///
/// Call [`Self::look`] a few times a second and whenever the agreed state changed, propose the
/// statement that it returns, and report the outcome to [`Self::answered`].
#[derive(Debug)]
pub struct Holder {
    run: Run,
    serial: u64,
    /// Serial of our last applied statement. `ends_ns` is when its leases end.
    applied: u64,
    ends_ns: u64,
    pending: Vec<Pending>,
    is_waiting: bool,
    pace: Pace,
    watch: StatementWatch,
    needs: BTreeMap<Scope, Units>,
    /// Limits that this process named for the first time: the serial of that statement, and when.
    introduced: BTreeMap<Scope, (u64, u64)>,
    before: Before,
    /// Time of the first look.
    born_ns: Option<u64>,
    /// Parts of floors that an earlier process kept. Used until the first statement of this process
    /// is applied.
    floor_caps: BTreeMap<Scope, Units>,
    /// Floors of which this process gave a part away, with what is left of each.
    lowered: BTreeMap<Scope, Units>,
    next: Option<Scope>,
    is_leaving: bool,
    /// Limits that this process named since it began to leave.
    left: BTreeSet<Scope>,
}

impl Holder {
    /// Creates the state of the process `incarnation` of `node`. The incarnation must be larger
    /// than that of any earlier process; the time of day in milliseconds will do. `before` has what
    /// the last process reported by [`Self::lowered_floors`].
    #[must_use]
    pub fn new(node: NodeName, incarnation: u64, before: Before, dice: fastrand::Rng) -> Self {
        let floor_caps = match &before {
            Before::Nothing => BTreeMap::new(),
            Before::Counted(kept) | Before::Unknown(kept) => kept.clone(),
        };
        Self {
            before,
            born_ns: None,
            watch: StatementWatch::default(),
            run: Run { node, incarnation },
            serial: 0,
            applied: 0,
            ends_ns: 0,
            pending: Vec::new(),
            is_waiting: false,
            pace: Pace::new(dice),
            needs: BTreeMap::new(),
            introduced: BTreeMap::new(),
            lowered: floor_caps.clone(),
            floor_caps,
            next: None,
            is_leaving: false,
            left: BTreeSet::new(),
        }
    }

    /// Applies the agreed state, so that `quotas` hold what this node may use now. Returns the
    /// statement to propose, if any; what the statement gives up is given up already.
    #[must_use]
    pub fn look(
        &mut self,
        now: Instant,
        shares: &Shares,
        agreed_limits: &AgreedLimits,
        quotas: &Quotas,
    ) -> Option<Statement> {
        let now_ns = quotas.clock_ns(now);
        self.born_ns.get_or_insert(now_ns);
        self.observe(now_ns, shares, agreed_limits);
        let turn = if self.is_waiting { StatementTurn::No } else { self.pace.turn(now_ns) };
        let is_renewal = self.is_renewal_due(now_ns, shares, agreed_limits.lease_ms);
        let mut lines = Vec::new();
        let mut is_urgent = false;
        for scope in self.round(agreed_limits) {
            let mut seen = LimitView::new(&self.run, shares, agreed_limits, &scope);
            if self.is_leaving {
                seen.lease_most = Units::NONE;
            }
            // Charges of the process before to a floor may still count, so no floor is given away
            // yet.
            for kind in LimitKind::ALL {
                if !self.knows(kind, now_ns, seen.terms.requests) {
                    seen.floor_most[kind] = u64::MAX;
                }
            }
            // Before the line is made: what a statement gives up must not be charged any more.
            self.follow(&seen, now_ns, quotas);
            self.feel(&seen, quotas);
            if turn == StatementTurn::No {
                continue;
            }
            let worth = self.worth(&seen, is_renewal, now_ns, quotas);
            if worth > Worth::Nothing {
                is_urgent |= worth == Worth::Urgent;
                lines.push(self.line(&seen, quotas));
            }
            if lines.len() >= LINES_MAX || bytes(&lines) >= STATEMENT_BYTES_MAX {
                break;
            }
        }
        if turn == StatementTurn::No {
            return None;
        }
        lines.extend(self.farewells(shares, agreed_limits, LINES_MAX - lines.len()));
        let inherits = self.inherits(now_ns, agreed_limits);
        let mut overdue = self.watch.overdue(now_ns, &self.run, inherits, (shares, agreed_limits));
        overdue.truncate(OVERDUE_MAX);
        // Leases of this node's earlier process are needed at once.
        is_urgent |= overdue.iter().any(|overdue| overdue.run.node == self.run.node);
        // An urgent turn is spent only on lines that another process or a request waits for.
        if turn == StatementTurn::Urgent && !is_urgent {
            return None;
        }
        // Without lines, a statement is worth an entry only to renew leases or to report overdue
        // ones.
        if lines.is_empty() && (self.is_leaving || overdue.is_empty() && !is_renewal) {
            return None;
        }
        self.pace.said(now_ns, turn);
        self.note_introduced(&lines, shares, now_ns);
        Some(self.state((now_ns, shares, agreed_limits.lease_ms), lines, overdue))
    }

    /// Returns true if this process holds its shares of all limits, including those of earlier
    /// processes.
    #[must_use]
    pub fn holds_shares(&self, now_ns: u64, shares: &Shares, agreed_limits: &AgreedLimits) -> bool {
        let is_held =
            |scope| shares.pool(scope).is_some_and(|pool| pool.lease(&self.run).is_some());
        let is_limited = |kind: &LimitKind| {
            agreed_limits.terms.values().any(|terms| terms.whole[*kind as usize].is_some())
        };
        let requests = agreed_limits.requests_longest();
        let is_known = |kind| self.knows(kind, now_ns, requests);
        agreed_limits.terms.is_empty()
            || now_ns < self.ends_ns
                && agreed_limits.terms.keys().all(is_held)
                && LimitKind::ALL.into_iter().filter(is_limited).all(is_known)
                && !has_legacy(shares, &self.run, [true; 3])
    }

    /// Begins to leave: the next looks give back leases that are not in use, without a wait. Call
    /// this and look again until there is no statement left to make, since one look covers a part
    /// of very many limits.
    pub fn leave(&mut self) {
        self.is_leaving = true;
        self.is_waiting = false;
        self.pace.now();
    }

    /// Takes note of the outcome of a statement.
    pub fn answered(&mut self, serial: u64, fate: Fate, now_ns: u64) {
        self.is_waiting = false;
        match fate {
            // A statement that may still be applied binds this process until the agreed state shows
            // it.
            Fate::TakenIn | Fate::Unknown => {}
            Fate::Never => self.pending.retain(|pending| pending.serial != serial),
        }
        // A refused node waits as long as an accepted one before it asks again.
        self.pace.wait(now_ns);
    }

    /// Returns the floors of which this node gave a part away, with what is left of each. Store
    /// them before proposing a statement: the next process may start from an older state that shows
    /// the floors as they were before, and must keep to these until its own first statement is
    /// applied.
    #[must_use]
    pub fn lowered_floors(&self) -> &BTreeMap<Scope, Units> {
        &self.lowered
    }

    /// Returns the process that this holder speaks for.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Returns when the leases of this process end, in nanoseconds of [`Quotas::clock_ns`].
    #[must_use]
    pub fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    fn observe(&mut self, now_ns: u64, shares: &Shares, agreed_limits: &AgreedLimits) {
        match shares.runs().get(&self.run) {
            Some(row) if row.serial > self.applied => {
                let sent = self.pending.iter().find(|pending| pending.serial == row.serial);
                if let Some(sent) = sent {
                    // Counted from before it was made; other nodes count from when they see it,
                    // which is later.
                    self.ends_ns = sent.at_ns + u64::from(row.length_ms) * 1_000_000;
                }
                self.applied = row.serial;
                self.pending.retain(|pending| pending.serial > row.serial);
                // From now on, statements of earlier processes are stale: the agreed floors hold.
                self.floor_caps.clear();
            }
            Some(_) => {}
            None => self.overtake(shares),
        }
        let was_sibling = self.watch.observe(now_ns, &self.run, shares, &agreed_limits.siblings);
        // The region's pace is shared: one statement in two seconds, whichever node makes it.
        if was_sibling {
            self.pace.wait(now_ns);
        }
    }

    /// Raises the incarnation above that of an earlier process, which is higher if the time of day
    /// was set back.
    fn overtake(&mut self, shares: &Shares) {
        if let Some(newest) = shares.newest(&self.run.node).filter(|newest| **newest > self.run) {
            self.run.incarnation = newest.incarnation + 1;
        }
    }

    fn is_renewal_due(&self, now_ns: u64, shares: &Shares, lease_ms: u32) -> bool {
        let third_ns = u64::from(lease_ms) * 1_000_000 / 3;
        let holds = |pool: &Pool| pool.lease(&self.run).is_some_and(|lease| !lease.held.is_none());
        now_ns + 2 * third_ns >= self.ends_ns && shares.pools().values().any(holds)
    }

    /// Returns the limits to look at now: all of them, or the next ones of very many.
    fn round(&mut self, agreed_limits: &AgreedLimits) -> Vec<Scope> {
        let first = self.next.take();
        let from = first.as_ref().map(|first| agreed_limits.terms.range(first..));
        let scopes: Vec<Scope> = match from {
            Some(rest) => rest.map(|(scope, _)| scope.clone()).take(SCOPES_EACH_LOOK).collect(),
            None => agreed_limits.terms.keys().take(SCOPES_EACH_LOOK).cloned().collect(),
        };
        if agreed_limits.terms.len() > SCOPES_EACH_LOOK && scopes.len() == SCOPES_EACH_LOOK {
            self.next = scopes.last().cloned();
        }
        scopes
    }

    /// Tells `quotas` what requests may use of a limit.
    fn follow(&self, seen: &LimitView<'_>, now_ns: u64, quotas: &Quotas) {
        let (mut floor, mut lease) = seen.kept();
        let pending = self.pending.iter().filter_map(|pending| pending.lines.get(seen.scope));
        for (floor_said, lease_said) in pending {
            floor = least(floor, *floor_said);
            lease = least(lease, *lease_said);
        }
        if let Some(cap) = self.floor_caps.get(seen.scope) {
            floor = least(floor, *cap);
        }
        let requests = seen.terms.requests;
        let is_known = |kind| self.knows(kind, now_ns, requests);
        let floor = Units::each(|kind| if is_known(kind) { floor[kind] } else { 0 });
        let is_share = seen.is_divided() && now_ns < self.ends_ns;
        quotas.hold(seen.scope, &Holding { floor, lease, lease_ends_ns: self.ends_ns, is_share });
        quotas.pay_at(seen.scope, now_ns);
    }

    /// Returns true if all charges made before this process that still count are known.
    fn knows(&self, kind: LimitKind, now_ns: u64, requests: RequestWindow) -> bool {
        let window = kind.window(requests);
        let is_unknown = match &self.before {
            Before::Nothing => false,
            // Charges of the last second are not written down, only those of the last minute.
            Before::Counted(_) => window != LimitKind::TokenRate.window(requests),
            Before::Unknown(_) => true,
        };
        // Requests of the process before ended with it.
        let window_ns = window.map_or(0, |window| window.as_nanos() as u64);
        let counts_ns = if window_ns == 0 { 0 } else { window_ns + window_ns / 1_000 + MARGIN_NS };
        !is_unknown || self.born_ns.is_some_and(|born| now_ns >= born + counts_ns)
    }

    /// Updates the need of a limit by what requests asked for.
    fn feel(&mut self, seen: &LimitView<'_>, quotas: &Quotas) {
        let demand = quotas.take_demand(seen.scope);
        let need = self.needs.entry(seen.scope.clone()).or_default();
        let held = |kind| seen.floor[kind] + seen.lease[kind];
        *need = Units::each(|kind| {
            let whole = seen.terms.whole[kind as usize].unwrap_or(0);
            let is_wanted = seen.is_wanted[kind as usize];
            needed(need[kind], &demand, kind, held(kind), is_wanted).min(whole)
        });
    }

    /// Returns the kinds that this process may take over from earlier processes of its node; None
    /// if it inherits nothing.
    fn inherits(&self, now_ns: u64, agreed_limits: &AgreedLimits) -> Option<[bool; 3]> {
        let may = self.before != Before::Nothing;
        let requests = agreed_limits.requests_longest();
        may.then(|| {
            // A limit that counts requests by the second may stand beside one by the minute.
            let each = [RequestWindow::Second, requests];
            LimitKind::ALL.map(|kind| each.into_iter().all(|it| self.knows(kind, now_ns, it)))
        })
    }

    fn worth(
        &mut self,
        seen: &LimitView<'_>,
        is_renewal: bool,
        now_ns: u64,
        quotas: &Quotas,
    ) -> Worth {
        let Some(pool) = seen.pool.filter(|_| seen.need.is_some()) else {
            let may = !self.is_leaving && self.may_introduce(seen.scope, now_ns);
            return if may { Worth::Urgent } else { Worth::Nothing };
        };
        self.introduced.remove(seen.scope);
        if self.is_leaving {
            let gives = !self.left.contains(seen.scope) && self.can_give(seen, quotas);
            return if gives { Worth::Urgent } else { Worth::Nothing };
        }
        let lease_need = self.lease_need(seen);
        let told = seen.need.unwrap_or_default();
        let is_urgent = |kind| {
            lease_need[kind] > seen.lease[kind] && lease_need[kind] > told[kind] + told[kind] / 8
        };
        let has_changed = |kind| lease_need[kind].abs_diff(told[kind]) > 1 + told[kind] / 8;
        // Nodes that wait for units can't know that this node no longer needs them.
        let is_awaited = |kind| {
            seen.is_wanted[kind as usize] && has_changed(kind) && lease_need[kind] < told[kind] / 2
        };
        if LimitKind::ALL.into_iter().any(|kind| is_urgent(kind) || is_awaited(kind))
            || self.can_give(seen, quotas)
        {
            Worth::Urgent
        } else if is_renewal && LimitKind::ALL.into_iter().any(has_changed)
            || !pool.is_settled(seen.terms)
        {
            if seen.is_divided() { Worth::Line } else { Worth::Urgent }
        } else {
            Worth::Nothing
        }
    }

    /// Returns true if a limit of which this process has no lease should be named. If the last
    /// statement that named it was applied, there was no room for it.
    fn may_introduce(&self, scope: &Scope, now_ns: u64) -> bool {
        self.introduced.get(scope).is_none_or(|(serial, at_ns)| {
            self.applied < *serial || now_ns >= at_ns + INTRODUCE_AGAIN_MS * 1_000_000
        })
    }

    /// Notes the limits that the next statement names for the first time.
    fn note_introduced(&mut self, lines: &[ShareLine], shares: &Shares, now_ns: u64) {
        let serial = self.next_serial();
        let is_new = |scope| shares.pool(scope).is_none_or(|pool| pool.lease(&self.run).is_none());
        for line in lines.iter().filter(|line| is_new(&line.scope)) {
            self.introduced.insert(line.scope.clone(), (serial, now_ns));
        }
    }

    fn next_serial(&self) -> u64 {
        self.serial.max(self.applied) + 1
    }

    /// Returns true if this node can give away enough of a limit to be worth a line.
    fn can_give(&self, seen: &LimitView<'_>, quotas: &Quotas) -> bool {
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

    fn line(&self, seen: &LimitView<'_>, quotas: &Quotas) -> ShareLine {
        let (floor, lease) = seen.said(quotas);
        // A lease that is kept as a whole is sent as the maximum, since an earlier statement may
        // have raised it by the time this one is applied.
        let keeps_all = |kind| lease[kind] == seen.lease[kind] && !self.is_leaving;
        let lease = Units::each(|kind| if keeps_all(kind) { u64::MAX } else { lease[kind] });
        ShareLine { scope: seen.scope.clone(), floor, lease, need: self.lease_need(seen) }
    }

    fn lease_need(&self, seen: &LimitView<'_>) -> Units {
        let need = self.needs.get(seen.scope).copied().unwrap_or_default();
        let floor = |kind| if self.is_leaving { u64::MAX } else { seen.floor[kind] };
        Units::each(|kind| need[kind].saturating_sub(floor(kind)))
    }

    /// Returns lines that give back what this node still has of removed limits.
    fn farewells(
        &mut self,
        shares: &Shares,
        agreed_limits: &AgreedLimits,
        most: usize,
    ) -> Vec<ShareLine> {
        self.needs.retain(|scope, _| agreed_limits.terms.contains_key(scope));
        self.introduced.retain(|scope, _| agreed_limits.terms.contains_key(scope));
        let is_mine = |pool: &Pool| {
            let lease = pool.lease(&self.run).copied().unwrap_or_default();
            !pool.floor(&self.run.node).is_none() || lease != PoolLease::default()
        };
        let gone = shares
            .pools()
            .iter()
            .filter(|(scope, pool)| !agreed_limits.terms.contains_key(*scope) && is_mine(pool));
        let line = |(scope, _): (&Scope, _)| ShareLine {
            scope: scope.clone(),
            floor: Units::NONE,
            lease: Units::NONE,
            need: Units::NONE,
        };
        gone.map(line).take(most).collect()
    }

    /// Notes the floor that a line leaves, if it is lower than agreed or was noted before.
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
            // Units given up by the earlier statement stay given up until the later one is applied.
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

/// Urgency of a limit in the next statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Nothing,
    Line,
    /// Another process waits for units of the limit.
    Urgent,
}

fn bytes(lines: &[ShareLine]) -> usize {
    lines.iter().map(ShareLine::bytes_about).sum()
}

#[cfg(test)]
#[path = "holder_test.rs"]
mod tests;
