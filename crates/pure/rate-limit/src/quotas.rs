//! All limits on this node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::limiter::Limiter;
use crate::marks::Marks;
use crate::outputs::Outputs;
use crate::quota_table::QuotaTable;
use crate::reach::ReachWait;
use crate::{
    Holding, LimitKind, LimitTerms, LimitUsage, QuotaAsk, QuotaError, QuotaHold, Rates, Scope,
    UNITS_MAX, Units,
};

/// Start value of the clock, so that charges made before the start that still count have a time.
const HEAD_START_NS: u64 = 120_000_000_000;

/// The longest time for which a new limit may be used as a whole.
const OPEN_NS: u64 = 6_000_000_000;

/// Limits that apply to requests. Requests read them without waiting; one task sets the limits and
/// the units that this node holds of them.
#[derive(Debug)]
pub struct Quotas {
    origin: Instant,
    table: ArcSwap<QuotaTable>,
    /// Terms that the table was built from.
    terms: ArcSwap<Terms>,
    /// Marks of limits of the cluster that were used since the last look at them.
    agreed_marks: Arc<Marks>,
    /// Marks of limits of this node alone that were used since debt was paid.
    own_marks: Arc<Marks>,
    /// Time until units of limits of the cluster arrive that other nodes don't need.
    reach_wait: Arc<ReachWait>,
    outputs: Outputs,
    /// True if this node has its shares of the limits that it began with.
    is_ready: AtomicBool,
    /// True if a limit of the cluster refused a request that other nodes may have room for.
    has_refused: AtomicBool,
}

/// Terms of all limits, by their origin.
#[derive(Clone, Debug, Default)]
struct Terms {
    /// Limits that the cluster agreed on.
    agreed: Vec<LimitTerms>,
    /// Limits that this node alone enforces.
    own: Vec<LimitTerms>,
}

impl Quotas {
    /// Creates a set without limits, whose clock begins at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            origin: now,
            table: ArcSwap::default(),
            terms: ArcSwap::default(),
            agreed_marks: Arc::default(),
            own_marks: Arc::default(),
            reach_wait: Arc::default(),
            outputs: Outputs::default(),
            is_ready: AtomicBool::new(true),
            has_refused: AtomicBool::new(false),
        }
    }

    /// Returns true if this node has its shares of the limits that it began with, or has waited for
    /// them long enough.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Sets the value that [`Self::is_ready`] returns.
    pub fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Relaxed);
    }

    /// Charges the request to all limits that apply to it, or to none. Never waits.
    ///
    /// # Errors
    /// Returns the limit that has no room, and when to try again.
    pub fn admit(&self, ask: &QuotaAsk<'_>) -> Result<QuotaHold, QuotaError> {
        let table = self.table.load();
        let mut hold = QuotaHold::default();
        if table.is_empty() {
            return Ok(hold);
        }
        let now_ns = self.clock_ns(ask.now);
        let (tokens, said) = (ask.tokens.min(UNITS_MAX), ask.said.min(UNITS_MAX));
        for limiter in table.applying(ask).into_iter().flatten() {
            match limiter.charge(now_ns, limiter.most(tokens, said)) {
                Ok(charges) => hold.add(Arc::clone(limiter), charges),
                Err(full) => {
                    hold.undo();
                    if full.held < full.whole && !limiter.is_own {
                        self.has_refused.store(true, Ordering::Relaxed);
                    }
                    return Err(QuotaError {
                        scope: limiter.scope.clone(),
                        kind: full.kind,
                        requests: limiter.requests,
                        retry_after: Duration::from_nanos(full.wait_ns),
                        asked: full.asked,
                        used: full.used,
                        held: full.held,
                        whole: full.whole,
                        is_divided: full.is_divided,
                    });
                }
            }
        }
        Ok(hold)
    }

    /// Returns true if, since the last call, a limit refused a request that other nodes may have room
    /// for.
    pub fn take_refused(&self) -> bool {
        self.has_refused.load(Ordering::Relaxed) && self.has_refused.swap(false, Ordering::Relaxed)
    }

    /// Returns true if any limit on tokens applies to the request.
    #[must_use]
    pub fn limits_tokens(&self, ask: &QuotaAsk<'_>) -> bool {
        let table = self.table.load();
        !table.is_empty()
            && table.applying(ask).into_iter().flatten().any(|limiter| limiter.limits_tokens())
    }

    /// Returns the rate limits that apply to the request, for headers that show its client their
    /// room; None if there are none.
    #[must_use]
    pub fn rates(&self, ask: &QuotaAsk<'_>) -> Option<Rates> {
        let table = self.table.load();
        if table.is_empty() {
            return None;
        }
        let limits = |limiter: &&Arc<Limiter>| limiter.limits_rates();
        Rates::of(table.applying(ask).map(|limiter| limiter.filter(limits).cloned()))
    }

    /// Returns the number of tokens that a request of this model is expected to generate on this route
    /// if it names no maximum: 95 of 100 replies were no longer.
    #[must_use]
    pub fn expected_output(&self, route: &str, model: &str) -> u32 {
        self.outputs.expected(route, model)
    }

    /// Returns the number of tokens that half of this model's replies on this route don't exceed;
    /// `None` before enough replies have shown it.
    #[must_use]
    pub fn usual_output(&self, route: &str, model: &str) -> Option<u32> {
        self.outputs.usual(route, model)
    }

    /// Notes that a reply of this model on this route had `tokens` tokens.
    pub fn note_output(&self, route: &str, model: &str, tokens: u32) {
        self.outputs.note(route, model, tokens);
    }

    /// Converts an instant to the clock of all charges, in nanoseconds.
    #[must_use]
    pub fn clock_ns(&self, now: Instant) -> u64 {
        HEAD_START_NS + now.saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// Sets the limits of the cluster. Charges to limits that stay count on. Nothing is held of new
    /// limits until [`Self::hold`] is called.
    pub fn set_limits(&self, limits: &[LimitTerms]) {
        self.take_limits(limits, 0);
    }

    /// Sets the limits of the cluster, as [`Self::set_limits`] does, and lets new ones be used as a
    /// whole for three seconds, or six if this node does not hold its share by then. So no request
    /// is refused only because a limit was not divided yet.
    pub fn open_limits(&self, limits: &[LimitTerms], now: Instant) {
        self.take_limits(limits, self.clock_ns(now) + OPEN_NS);
    }

    /// Sets the limits that this node alone enforces: it may use each as a whole. A limit of
    /// [`Self::set_limits`] with the same scope takes precedence.
    pub fn set_own(&self, limits: &[LimitTerms]) {
        self.terms.rcu(|terms| Terms { own: limits.to_vec(), ..Terms::clone(terms) });
        // A node has the whole of its own limits at once, so no limit has to be opened for a time.
        self.rebuild(0);
    }

    fn take_limits(&self, limits: &[LimitTerms], open_until_ns: u64) {
        self.terms.rcu(|terms| Terms { agreed: limits.to_vec(), ..Terms::clone(terms) });
        self.rebuild(open_until_ns);
    }

    /// Builds the table from the terms, again if another thread changed them during the build.
    fn rebuild(&self, open_until_ns: u64) {
        loop {
            let terms = self.terms.load_full();
            self.table.store(Arc::new(self.table_of(&terms, open_until_ns)));
            if Arc::ptr_eq(&terms, &self.terms.load()) {
                return;
            }
        }
    }

    fn table_of(&self, terms: &Terms, open_until_ns: u64) -> QuotaTable {
        let before = self.table.load();
        let bounded = |terms: &LimitTerms| {
            let whole = terms.whole.map(|whole| whole.map(|whole| whole.min(UNITS_MAX)));
            LimitTerms { whole, ..terms.clone() }
        };
        let mut table = QuotaTable::default();
        for (terms, is_own) in terms
            .agreed
            .iter()
            .map(|terms| (terms, false))
            .chain(terms.own.iter().map(|terms| (terms, true)))
        {
            // The cluster's limit of this scope is in the table already, and takes precedence.
            if table.find(&terms.scope).is_some() {
                continue;
            }
            let before = before.find(&terms.scope).map(Arc::as_ref);
            // Charges don't carry over between a limit of the cluster and one of this node.
            let before = before.filter(|before| before.is_own == is_own);
            let marks = if is_own { &self.own_marks } else { &self.agreed_marks };
            let (terms, reach_wait) = (bounded(terms), &self.reach_wait);
            let limiter = Limiter::new(&terms, before, open_until_ns, marks, reach_wait);
            table.put(Arc::new(if is_own { limiter.owned() } else { limiter }));
        }
        table.numbered()
    }

    /// Sets the units that this node holds of a limit.
    pub fn hold(&self, scope: &Scope, holding: &Holding) {
        if let Some(limiter) = self.table.load().find(scope).filter(|limiter| !limiter.is_own) {
            limiter.hold(holding);
            // The task that follows what the cluster agreed on has not set this.
            limiter.mark();
        }
    }

    /// Charges the debt of the limits of [`Self::set_own`] as far as there is room. Call this now
    /// and then.
    pub fn pay_own(&self, now: Instant) {
        let (table, now_ns) = (self.table.load(), self.clock_ns(now));
        table.take_own(&self.own_marks, |limiter| {
            limiter.pay(now_ns);
            if limiter.owes() {
                limiter.mark();
            }
        });
    }

    /// Returns the tokens that are owed to a limit of the cluster.
    #[must_use]
    pub fn tokens_owed(&self, scope: &Scope) -> u64 {
        let table = self.table.load();
        let limiter = table.find(scope).filter(|limiter| !limiter.is_own);
        limiter.map_or(0, |limiter| limiter.tokens_owed())
    }

    /// Adds the debt of a process before this one.
    pub fn owe(&self, scope: &Scope, units: Units) {
        if let Some(limiter) = self.table.load().find(scope) {
            limiter.owe(units);
            limiter.mark();
        }
    }

    /// Counts `units` as charged `age` before `now`, by a process before this one.
    pub fn assume(&self, scope: &Scope, units: Units, age: Duration, now: Instant) {
        if let Some(limiter) = self.table.load().find(scope) {
            let at_ns = self.clock_ns(now).saturating_sub(age.as_nanos() as u64);
            limiter.assume(at_ns, units);
            limiter.mark();
        }
    }

    /// Returns the charges of a kind that count, each with its least age.
    #[must_use]
    pub fn spent(&self, scope: &Scope, kind: LimitKind, now: Instant) -> Vec<(Duration, u64)> {
        let table = self.table.load();
        let spent = table.find(scope).map(|limiter| limiter.spent(self.clock_ns(now), kind));
        let spent = spent.unwrap_or_default().into_iter();
        spent.map(|(age_ns, units)| (Duration::from_nanos(age_ns), units)).collect()
    }

    /// Returns the usage of a limit; None if there is no such limit.
    #[must_use]
    pub fn usage(&self, scope: &Scope, now: Instant) -> Option<LimitUsage> {
        Some(self.table.load().find(scope)?.usage(self.clock_ns(now)))
    }

    /// Returns true if any kind of a limit may be used as a whole because it is not divided yet.
    #[must_use]
    pub fn is_open(&self, scope: &Scope, now: Instant) -> bool {
        self.table.load().find(scope).is_some_and(|limiter| limiter.is_open(self.clock_ns(now)))
    }

    /// Returns the terms and usage of the first `most` limits.
    #[must_use]
    pub fn standings(&self, now: Instant, most: usize) -> Vec<(LimitTerms, LimitUsage)> {
        let (table, now_ns) = (self.table.load(), self.clock_ns(now));
        let standing = |limiter: &Arc<Limiter>| {
            let terms = LimitTerms {
                scope: limiter.scope.clone(),
                whole: limiter.whole(),
                requests: limiter.requests,
            };
            (terms, limiter.usage(now_ns))
        };
        table.all().take(most).map(standing).collect()
    }

    /// Returns the first `most` limits of [`Self::set_own`] in the order of their names, with their
    /// usage; None if a limit of the cluster takes precedence.
    #[must_use]
    pub fn own(&self, now: Instant, most: usize) -> Vec<(LimitTerms, Option<LimitUsage>)> {
        let (terms, table, now_ns) = (self.terms.load(), self.table.load(), self.clock_ns(now));
        let mut own: Vec<&LimitTerms> = terms.own.iter().collect();
        own.sort_by(|one, other| one.scope.cmp(&other.scope));
        let usage = |terms: &LimitTerms| {
            let limiter = table.find(&terms.scope).filter(|limiter| limiter.is_own);
            (terms.clone(), limiter.map(|limiter| limiter.usage(now_ns)))
        };
        own.into_iter().take(most).map(usage).collect()
    }

    /// Returns the limits that requests meet now. Others take their place as a whole.
    pub(crate) fn table(&self) -> Arc<QuotaTable> {
        self.table.load_full()
    }

    /// Returns the time until units of limits of the cluster arrive that other nodes don't need.
    pub(crate) fn reach_wait(&self) -> &ReachWait {
        &self.reach_wait
    }

    /// Returns the marks of limits of the cluster.
    pub(crate) fn agreed_marks(&self) -> &Marks {
        &self.agreed_marks
    }
}

#[cfg(test)]
#[path = "quotas_test.rs"]
mod tests;
