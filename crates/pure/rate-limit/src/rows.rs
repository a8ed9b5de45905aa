//! Limits as a holder follows them, and which of them its next look has to visit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::agreed_limits::AgreedLimits;
use crate::bits::Bits;
use crate::limiter::Limiter;
use crate::marks::MarkedLimits;
use crate::quota_table::QuotaTable;
use crate::seen::LimitView;
use crate::{
    LimitKind, LimitTerms, Pool, PoolLease, Quotas, RequestWindow, Run, RunRow, Scope, Shares,
    Units,
};

/// Limits visited in one look at most. If there are more, later looks visit the rest.
const ROWS_EACH_LOOK: usize = 4_096;

/// Limits in the order of their scopes. A visit to a limit that is in none of the sets would change
/// nothing, and the limit is worth no line.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    agreed: Arc<AgreedLimits>,
    requests_longest: RequestWindow,
    table: Arc<QuotaTable>,
    /// Last statements of the division that the views are of.
    statements: BTreeMap<Run, RunRow>,
    rows: Vec<Row>,
    marked: MarkedLimits,
    /// Limits whose charges, debt or need may change, by requests or without any.
    used: Bits,
    /// Limits to visit at the next look.
    due: Bits,
    /// Limits to visit at the next turn to make a statement.
    unjudged: Bits,
    /// Limits to visit at the next turn to renew leases.
    at_renewal: Bits,
    next: usize,
    /// Limits removed since the last turn. One that comes back goes on as it was.
    removed: BTreeMap<Scope, Row>,
    /// Removed limits of which this process still has units; None if they are not known.
    gone: Option<Vec<Scope>>,
    /// True if this process holds any lease; None if that is not known.
    holds: Option<bool>,
}

/// A limit, and what this process needs of it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) scope: Scope,
    pub(crate) need: Units,
    /// Most units in use recently.
    pub(crate) recent: Units,
    /// Time since which this process has waited for more than the given units; None if there is
    /// nothing to wait for.
    pub(crate) waiting: Option<(u64, Units)>,
    /// Serial and time of the statement that named the limit for the first time.
    pub(crate) introduced: Option<(u64, u64)>,
    known: Option<Known>,
}

/// View of a limit, and its meters if requests meet any.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) seen: LimitView,
    pub(crate) limiter: Option<Arc<Limiter>>,
}

/// Time at which a limit that stays as it is has to be judged again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// At the next turn.
    Anew,
    /// At the next turn to renew leases.
    AtRenewal,
    /// When it has changed.
    Never,
}

/// Limits to visit in a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visits {
    /// Changed limits only: no statement can be made.
    Due,
    /// Also limits to judge: a statement can be made.
    Judge,
    /// Also limits that wait for a renewal of leases: it is time for it.
    Renew,
}

impl Rows {
    /// Adopts the agreed limits, and the limits that requests used since the last call.
    pub(crate) fn take(&mut self, agreed: &Arc<AgreedLimits>, quotas: &Quotas) {
        if !Arc::ptr_eq(agreed, &self.agreed) {
            let is_same = *agreed == self.agreed;
            self.agreed = Arc::clone(agreed);
            if !is_same {
                self.rebuild();
            }
        }
        let table = quotas.table();
        if !Arc::ptr_eq(&table, &self.table) {
            self.table = table;
            self.forget_views();
        }
        let (used, due, unjudged) = (&mut self.used, &mut self.due, &mut self.unjudged);
        quotas.agreed_marks().take(&self.marked, |place| {
            used.set(place, true);
            due.set(place, true);
            unjudged.set(place, true);
        });
    }

    /// Adopts a division: views of limits that changed become invalid.
    pub(crate) fn receive(&mut self, shares: &Shares) {
        // A division is a function of the statements, so the same ones have left it as it was.
        if self.statements == *shares.runs() {
            return;
        }
        match shares.changed_since(&self.statements) {
            Some(scopes) => scopes.into_iter().for_each(|scope| self.forget_view(scope)),
            None => self.forget_views(),
        }
        self.statements.clone_from(shares.runs());
    }

    fn forget_view(&mut self, scope: &Scope) {
        self.holds = None;
        let Some(place) = self.place(scope) else {
            self.gone = None;
            return;
        };
        self.rows[place].known = None;
        self.due.set(place, true);
        self.unjudged.set(place, true);
    }

    /// Schedules all limits to be seen, visited and judged again.
    pub(crate) fn forget_views(&mut self) {
        self.rows.iter_mut().for_each(|row| row.known = None);
        (self.gone, self.holds) = (None, None);
        self.used = Bits::all(self.rows.len());
        self.judge_all();
    }

    /// Has all limits visited and judged.
    pub(crate) fn judge_all(&mut self) {
        self.unjudged = Bits::all(self.rows.len());
        self.visit_all();
    }

    /// Has all limits visited.
    pub(crate) fn visit_all(&mut self) {
        self.due = Bits::all(self.rows.len());
    }

    /// Has the limits of a statement visited.
    pub(crate) fn visit<'a>(&mut self, scopes: impl Iterator<Item = &'a Scope>) {
        for scope in scopes {
            if let Some(place) = self.place(scope) {
                self.due.set(place, true);
            }
        }
    }

    /// Returns the places to look at now: all of them, or the next ones of very many.
    pub(crate) fn round(&mut self) -> Range<usize> {
        let round = self.next..self.rows.len().min(self.next + ROWS_EACH_LOOK);
        let is_part = self.rows.len() > ROWS_EACH_LOOK && round.len() == ROWS_EACH_LOOK;
        self.next = if is_part { round.end - 1 } else { 0 };
        round
    }

    /// Returns the first place of `round` to visit.
    pub(crate) fn next(&self, round: Range<usize>, visits: Visits) -> Option<usize> {
        let all = [&self.due, &self.unjudged, &self.at_renewal];
        let sets = match visits {
            Visits::Due => &all[..1],
            Visits::Judge => &all[..2],
            Visits::Renew => &all[..],
        };
        let places = sets.iter().filter_map(|places| places.next(round.start));
        places.min().filter(|place| *place < round.end)
    }

    /// Takes the view of a limit out for a visit, or makes a new view of it.
    pub(crate) fn begin(&mut self, place: usize, run: &Run, shares: &Shares) -> Known {
        let row = &mut self.rows[place];
        row.known.take().unwrap_or_else(|| Known {
            seen: LimitView::new(run, shares, &self.agreed, &row.scope),
            limiter: self.table.find(&row.scope).filter(|limiter| !limiter.is_own).cloned(),
        })
    }

    /// Ends a visit. A limit that is not steady has charges, debt or a need that change without a
    /// request. None if the limit was not judged, because there was no turn.
    pub(crate) fn end(&mut self, place: usize, known: Known, visit: (bool, Option<Judged>)) {
        let (is_steady, judged) = visit;
        self.rows[place].known = Some(known);
        self.used.set(place, !is_steady);
        self.due.set(place, !is_steady);
        if let Some(judged) = judged {
            self.unjudged.set(place, !is_steady || judged == Judged::Anew);
            self.at_renewal.set(place, judged == Judged::AtRenewal);
        }
    }

    pub(crate) fn row(&self, place: usize) -> &Row {
        &self.rows[place]
    }

    pub(crate) fn row_mut(&mut self, place: usize) -> &mut Row {
        &mut self.rows[place]
    }

    /// Returns the place of a limit; None if there is no such limit.
    pub(crate) fn place(&self, scope: &Scope) -> Option<usize> {
        self.rows.binary_search_by(|row| row.scope.cmp(scope)).ok()
    }

    /// Returns the lease that is fair for a process of which only this need of a kind is known.
    pub(crate) fn target(
        &self,
        place: usize,
        run: &Run,
        shares: &Shares,
        (kind, need): (LimitKind, u64),
    ) -> u64 {
        let scope = &self.rows[place].scope;
        let known = shares.pool(scope).zip(self.agreed.terms.get(scope));
        known.map_or(u64::MAX, |(pool, terms)| pool.target(terms, kind, run, need))
    }

    /// Returns the limits that may have charges or debt, with their terms.
    pub(crate) fn used(&self) -> impl Iterator<Item = LimitTerms> {
        self.used.iter().filter_map(|place| {
            let (scope, terms) = self.agreed.terms.get_key_value(&self.rows[place].scope)?;
            Some(LimitTerms { scope: scope.clone(), whole: terms.whole, requests: terms.requests })
        })
    }

    /// Returns the longest window over which any limit counts requests.
    pub(crate) fn requests_longest(&self) -> RequestWindow {
        self.requests_longest
    }

    /// Returns true if the process holds any lease.
    pub(crate) fn holds(&mut self, run: &Run, shares: &Shares) -> bool {
        let holds = |pool: &Pool| pool.lease(run).is_some_and(|lease| !lease.held.is_none());
        *self.holds.get_or_insert_with(|| shares.pools().values().any(holds))
    }

    /// Returns the removed limits of which the process still has units. Call this at each turn.
    pub(crate) fn gone(&mut self, run: &Run, shares: &Shares) -> &[Scope] {
        self.removed.clear();
        let terms = &self.agreed.terms;
        let is_mine = |pool: &Pool| {
            let lease = pool.lease(run).copied().unwrap_or_default();
            !pool.floor(&run.node).is_none() || lease != PoolLease::default()
        };
        self.gone.get_or_insert_with(|| {
            let pools = shares.pools().iter();
            let gone = pools.filter(|(scope, pool)| !terms.contains_key(*scope) && is_mine(pool));
            gone.map(|(scope, _)| scope.clone()).collect()
        })
    }

    /// Makes the rows of the agreed limits. Limits that stay keep their needs.
    fn rebuild(&mut self) {
        let next = self.rows.get(self.next).map(|row| row.scope.clone()).filter(|_| self.next > 0);
        let before = std::mem::take(&mut self.rows).into_iter();
        self.removed.extend(before.map(|row| (row.scope.clone(), row)));
        let row =
            |scope: &Scope| self.removed.remove(scope).unwrap_or_else(|| Row::new(scope.clone()));
        self.rows = self.agreed.terms.keys().map(row).collect();
        self.next = next.map_or(0, |next| self.rows.partition_point(|row| row.scope < next));
        self.marked = MarkedLimits::new(self.rows.iter().map(|row| &row.scope));
        self.at_renewal = Bits::none(self.rows.len());
        self.requests_longest = self.agreed.requests_longest();
        self.forget_views();
    }
}

impl Known {
    /// Returns the units that count, without a look at the clock.
    pub(crate) fn in_use(&self) -> Units {
        self.limiter.as_ref().map(|limiter| limiter.in_use()).unwrap_or_default()
    }
}

impl Row {
    fn new(scope: Scope) -> Self {
        let (need, recent) = (Units::NONE, Units::NONE);
        Self { scope, need, recent, waiting: None, introduced: None, known: None }
    }
}
