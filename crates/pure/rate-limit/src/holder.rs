//! State machine of one node that takes part in dividing limits.

mod visit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use spillway_types::NodeName;

use crate::agreed_limits::{AgreedLimits, Before};
use crate::fate::{Fate, Pending};
use crate::pace::{Pace, StatementTurn};
use crate::rows::Rows;
use crate::statement::{LINES_MAX, OVERDUE_MAX};
use crate::watch::{StatementWatch, has_legacy};
use crate::{
    LimitKind, LimitTerms, Overdue, Quotas, RequestWindow, Run, Scope, ShareLine, Shares,
    Statement, Units,
};

/// Target size of a statement, in bytes. Larger entries hold up others on thin links.
const STATEMENT_BYTES_MAX: usize = 24 << 10;
/// Delay until a limit that found no room in the agreed state is tried again.
const INTRODUCE_AGAIN_MS: u64 = 60_000;
/// Extra time after a window: the process before may have charged just after it was last counted.
const MARGIN_NS: u64 = 100_000_000;
/// Least time between two ticks, with which needs shrink.
const TICK_NS: u64 = 200_000_000;
/// Time that a statement is taken to need before the first one was answered.
const SAYS_NS: u64 = 150_000_000;
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
    /// Serial and time of the last statement.
    said_ns: Option<(u64, u64)>,
    /// Time from a statement to the answer that it is applied, about.
    says_ns: u64,
    /// Time of the last tick, and true if this look is one.
    ticked_ns: u64,
    is_tick: bool,
    pace: Pace,
    watch: StatementWatch,
    rows: Rows,
    before: Before,
    /// Kinds whose earlier charges are known, by the window of requests.
    known: [[bool; 3]; 2],
    /// Time of the first look.
    born_ns: Option<u64>,
    /// Parts of floors that an earlier process kept. Used until the first statement of this process
    /// is applied.
    floor_caps: BTreeMap<Scope, Units>,
    /// Floors of which this process gave a part away, with what is left of each.
    lowered: BTreeMap<Scope, Units>,
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
            said_ns: None,
            says_ns: SAYS_NS,
            ticked_ns: 0,
            is_tick: false,
            pace: Pace::new(dice),
            rows: Rows::default(),
            known: [[false; 3]; 2],
            lowered: floor_caps.clone(),
            floor_caps,
            is_leaving: false,
            left: BTreeSet::new(),
        }
    }

    /// Applies the agreed state, so that `quotas` hold what this node may use now. Returns the
    /// statement to propose, if any; what the statement gives up is given up already.
    ///
    /// Visits only limits that requests used or that the agreed state changed since the last call,
    /// and those that go on changing by themselves. `quotas` must have no other holder.
    #[must_use]
    pub fn look(
        &mut self,
        now: Instant,
        shares: &Shares,
        agreed_limits: &Arc<AgreedLimits>,
        quotas: &Quotas,
    ) -> Option<Statement> {
        let said = self.look_at(quotas.clock_ns(now), shares, agreed_limits, quotas);
        quotas.reach_wait().set(self.may_say_ns(), self.reach_takes_ns());
        said
    }

    fn look_at(
        &mut self,
        now_ns: u64,
        shares: &Shares,
        agreed_limits: &Arc<AgreedLimits>,
        quotas: &Quotas,
    ) -> Option<Statement> {
        self.born_ns.get_or_insert(now_ns);
        self.is_tick = now_ns >= self.ticked_ns + TICK_NS;
        if self.is_tick {
            self.ticked_ns = now_ns;
        }
        self.rows.take(agreed_limits, quotas);
        self.observe(now_ns, shares, agreed_limits);
        let turn = if self.is_waiting { StatementTurn::No } else { self.pace.turn(now_ns) };
        let is_renewal = self.is_renewal_due(now_ns, shares, agreed_limits.lease_ms);
        let (mut lines, mut is_urgent) = self.visit_rows(now_ns, shares, turn, is_renewal);
        if turn == StatementTurn::No {
            return None;
        }
        lines.extend(self.farewells(shares, LINES_MAX - lines.len()));
        let terms = (self.rows.requests_longest(), agreed_limits.place_ms);
        let inherits = self.inherits();
        let mut overdue = self.watch.overdue(now_ns, &self.run, inherits, (shares, terms));
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

    /// Returns the limits that may have had charges or debt at the last look. Limits that requests
    /// used since then are returned after the next look.
    pub fn used(&self) -> impl Iterator<Item = LimitTerms> {
        self.rows.used()
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
        self.rows.judge_all();
    }

    /// Takes note of the outcome of a statement.
    pub fn answered(&mut self, serial: u64, fate: Fate, now_ns: u64) {
        self.is_waiting = false;
        match fate {
            // A statement that may still be applied binds this process until the agreed state shows
            // it.
            Fate::Unknown => {}
            Fate::TakenIn => {
                let sent = self.said_ns.filter(|(said, _)| *said == serial);
                let took_ns = sent.map_or(self.says_ns, |(_, at_ns)| now_ns.saturating_sub(at_ns));
                self.says_ns = (3 * self.says_ns + took_ns) / 4;
            }
            Fate::Never => {
                let is_over =
                    |pending: &mut Pending| pending.serial == serial && !pending.has_earlier;
                for pending in self.pending.extract_if(.., is_over) {
                    self.rows.visit(pending.lines.keys());
                }
            }
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

    /// Returns the process whose shares this holder manages.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Returns when the leases of this process end, in nanoseconds of [`Quotas::clock_ns`].
    #[must_use]
    pub fn ends_ns(&self) -> u64 {
        self.ends_ns
    }

    /// Returns when this process can make its next statement that a request waits for, about.
    fn may_say_ns(&self) -> u64 {
        let answered_ns = self.said_ns.filter(|_| self.is_waiting);
        let answered_ns = answered_ns.map_or(0, |(_, at_ns)| at_ns + self.says_ns);
        self.pace.urgent_at_ns().max(answered_ns)
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
                // Each lease ends later than its meter knows.
                self.rows.visit_all();
            }
            Some(_) => {}
            None => self.overtake(shares),
        }
        self.rows.receive(shares);
        let known = [RequestWindow::Second, RequestWindow::Minute]
            .map(|requests| LimitKind::ALL.map(|kind| self.knows(kind, now_ns, requests)));
        if known != self.known {
            self.known = known;
            self.rows.judge_all();
        }
        let was_sibling = self.watch.observe(now_ns, &self.run, shares, &agreed_limits.siblings);
        // The region's pace is shared: one statement in two seconds, whichever node makes it.
        if was_sibling {
            self.pace.wait_for_turn(now_ns);
        }
    }

    /// Raises the incarnation above that of an earlier process, which is higher if the time of day
    /// was set back.
    fn overtake(&mut self, shares: &Shares) {
        if let Some(newest) = shares.newest(&self.run.node).filter(|newest| **newest > self.run) {
            self.run.incarnation = newest.incarnation + 1;
            self.rows.forget_views();
        }
    }

    fn is_renewal_due(&mut self, now_ns: u64, shares: &Shares, lease_ms: u32) -> bool {
        let third_ns = u64::from(lease_ms) * 1_000_000 / 3;
        now_ns + 2 * third_ns >= self.ends_ns && self.rows.holds(&self.run, shares)
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

    /// Returns the kinds that this process may take over from earlier processes of its node; None
    /// if it inherits nothing.
    fn inherits(&self) -> Option<[bool; 3]> {
        // A limit that counts requests by the second may exist beside one by the minute.
        let each = [RequestWindow::Second, self.rows.requests_longest()];
        let is_known = |kind| each.iter().all(|it| self.known[*it as usize][kind as usize]);
        (self.before != Before::Nothing).then(|| LimitKind::ALL.map(is_known))
    }

    /// Notes the limits that the next statement names for the first time.
    fn note_introduced(&mut self, lines: &[ShareLine], shares: &Shares, now_ns: u64) {
        let serial = self.next_serial();
        let is_new = |scope| shares.pool(scope).is_none_or(|pool| pool.lease(&self.run).is_none());
        for line in lines.iter().filter(|line| is_new(&line.scope)) {
            if let Some(place) = self.rows.place(&line.scope) {
                self.rows.row_mut(place).introduced = Some((serial, now_ns));
            }
        }
    }

    fn next_serial(&self) -> u64 {
        self.serial.max(self.applied) + 1
    }

    /// Returns lines that give back what this node still has of removed limits.
    fn farewells(&mut self, shares: &Shares, most: usize) -> Vec<ShareLine> {
        let line = |scope: &Scope| ShareLine {
            scope: scope.clone(),
            floor: Units::NONE,
            lease: Units::NONE,
            need: Units::NONE,
        };
        self.rows.gone(&self.run, shares).iter().map(line).take(most).collect()
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
        let (serial, lines_said) = (self.serial, said.collect());
        let mut pending = Pending { serial, at_ns: now_ns, lines: lines_said, has_earlier: false };
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
        // A line keeps no less than its visit let requests use, so no limit has to be visited again.
        self.pending.push(pending);
        self.is_waiting = true;
        self.said_ns = Some((serial, now_ns));
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

#[cfg(test)]
#[path = "holder_test.rs"]
mod tests;

#[cfg(test)]
#[path = "holder_twin_test.rs"]
mod twin_tests;
