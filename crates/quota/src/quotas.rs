//! All limits, as this node has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::limiter::Limiter;
use crate::outputs::Outputs;
use crate::request::LIMITS_EACH;
use crate::{
    Demand, Holding, LimitKind, QuotaAsk, QuotaHold, QuotaRefusal, Scope, UNITS_MAX, Units, Usage,
};

/// What the clock shows in the beginning: enough for what was charged before that and still counts.
const HEAD_START_NS: u64 = 120_000_000_000;

/// The limits that requests meet. Requests read them without waiting; one task says which there are
/// and what this node holds of them.
#[derive(Debug)]
pub struct Quotas {
    origin: Instant,
    table: ArcSwap<Table>,
    outputs: Outputs,
}

/// A limit, and how much it allows in all regions together; nothing for what it does not limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitTerms {
    /// Whose.
    pub scope: Scope,
    /// In the order of [`crate::LimitKind::ALL`].
    pub whole: [Option<u64>; 3],
}

#[derive(Debug, Default)]
struct Table {
    global: Option<Arc<Limiter>>,
    tenants: BTreeMap<Box<str>, Arc<Limiter>>,
    models: BTreeMap<Box<str>, Arc<Limiter>>,
    keys: BTreeMap<Box<str>, Arc<Limiter>>,
    is_empty: bool,
}

impl Quotas {
    /// No limits yet. `now` is where their clock begins.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let table = Table { is_empty: true, ..Table::default() };
        Self { origin: now, table: ArcSwap::from_pointee(table), outputs: Outputs::default() }
    }

    /// Charges the request to all limits that apply to it, or to none. Never waits.
    ///
    /// # Errors
    /// The limit that has no room, and when to come again.
    pub fn admit(&self, ask: &QuotaAsk<'_>) -> Result<QuotaHold, QuotaRefusal> {
        let table = self.table.load();
        let mut hold = QuotaHold::default();
        if table.is_empty {
            return Ok(hold);
        }
        let now_ns = self.clock_ns(ask.now);
        let tokens = ask.tokens.min(UNITS_MAX);
        for limiter in table.applying(ask).into_iter().flatten() {
            match limiter.charge(now_ns, tokens) {
                Ok(charges) => hold.add(Arc::clone(limiter), charges),
                Err(full) => {
                    hold.undo();
                    return Err(QuotaRefusal {
                        scope: limiter.scope.clone(),
                        kind: full.kind,
                        retry_after: Duration::from_nanos(full.wait_ns),
                        fits: full.fits,
                    });
                }
            }
        }
        Ok(hold)
    }

    /// Whether any limit on tokens applies to the request.
    #[must_use]
    pub fn limits_tokens(&self, ask: &QuotaAsk<'_>) -> bool {
        let table = self.table.load();
        !table.is_empty
            && table.applying(ask).into_iter().flatten().any(|limiter| limiter.limits_tokens())
    }

    /// How many tokens a request of this model will generate if it names no maximum: 95 of 100
    /// replies were no longer.
    #[must_use]
    pub fn expected_output(&self, model: &str) -> u32 {
        self.outputs.expected(model)
    }

    /// A reply of this model had so many tokens.
    pub fn note_output(&self, model: &str, tokens: u32) {
        self.outputs.note(model, tokens);
    }

    /// The clock of all charges, in nanoseconds.
    #[must_use]
    pub fn clock_ns(&self, now: Instant) -> u64 {
        HEAD_START_NS + now.saturating_duration_since(self.origin).as_nanos() as u64
    }

    /// Which limits there are from now on. What was charged to those that stay counts on; of new
    /// ones nothing is held until [`Self::hold`] says so.
    pub fn set_limits(&self, limits: &[LimitTerms]) {
        let before = self.table.load();
        let mut table = Table { is_empty: limits.is_empty(), ..Table::default() };
        for terms in limits {
            let whole = terms.whole.map(|whole| whole.map(|whole| whole.min(UNITS_MAX)));
            let before = before.find(&terms.scope).map(Arc::as_ref);
            table.put(Arc::new(Limiter::new(terms.scope.clone(), whole, before)));
        }
        self.table.store(Arc::new(table));
    }

    /// What this node holds of a limit from now on.
    pub fn hold(&self, scope: &Scope, holding: &Holding) {
        if let Some(limiter) = self.table.load().find(scope) {
            limiter.hold(holding);
        }
    }

    /// Charges what is owed to a limit as far as there is room, though nobody asks for anything.
    pub(crate) fn pay_at(&self, scope: &Scope, now_ns: u64) {
        if let Some(limiter) = self.table.load().find(scope) {
            limiter.pay(now_ns);
        }
    }

    /// Tokens that are owed to each limit; limits to which nothing is owed are left out.
    #[must_use]
    pub fn debts(&self) -> Vec<(Scope, u64)> {
        let table = self.table.load();
        let owing = table.all().filter(|limiter| limiter.tokens_owed() > 0);
        owing.map(|limiter| (limiter.scope.clone(), limiter.tokens_owed())).collect()
    }

    /// Adds what a process before this one owed.
    pub fn owe(&self, scope: &Scope, units: Units) {
        if let Some(limiter) = self.table.load().find(scope) {
            limiter.owe(units);
        }
    }

    /// Counts `units` as charged that long before `now`, by a process before this one.
    pub fn assume(&self, scope: &Scope, units: Units, (age, now): (Duration, Instant)) {
        if let Some(limiter) = self.table.load().find(scope) {
            let at_ns = self.clock_ns(now).saturating_sub(age.as_nanos() as u64);
            limiter.assume(at_ns, units);
        }
    }

    /// What is charged of a kind and counts, with how long ago it was charged at least.
    #[must_use]
    pub fn spent(&self, scope: &Scope, kind: LimitKind, now: Instant) -> Vec<(Duration, u64)> {
        let table = self.table.load();
        let spent = table.find(scope).map(|limiter| limiter.spent(self.clock_ns(now), kind));
        let spent = spent.unwrap_or_default().into_iter();
        spent.map(|(age_ns, units)| (Duration::from_nanos(age_ns), units)).collect()
    }

    /// How a limit stands; none if there is no such limit.
    #[must_use]
    pub fn usage(&self, scope: &Scope, now: Instant) -> Option<Usage> {
        Some(self.table.load().find(scope)?.usage(self.clock_ns(now)))
    }

    /// How limits stand, with the whole of each: the first `most` of them.
    #[must_use]
    pub fn standings(&self, now: Instant, most: usize) -> Vec<(Scope, [Option<u64>; 3], Usage)> {
        let (table, now_ns) = (self.table.load(), self.clock_ns(now));
        let standing = |limiter: &Arc<Limiter>| {
            (limiter.scope.clone(), limiter.whole(), limiter.usage(now_ns))
        };
        table.all().take(most).map(standing).collect()
    }

    /// What is charged to a limit and counted when anything was charged last: the most that can count
    /// now.
    #[must_use]
    pub(crate) fn in_use_now(&self, scope: &Scope) -> Units {
        self.table.load().find(scope).map(|limiter| limiter.in_use()).unwrap_or_default()
    }

    /// What was asked of a limit since this was called last.
    #[must_use]
    pub fn take_demand(&self, scope: &Scope) -> Demand {
        self.table.load().find(scope).map(|limiter| limiter.take_demand()).unwrap_or_default()
    }
}

impl Table {
    /// Those that apply to a request. The narrowest first: who is over his own limit should hear of
    /// that one, and take nothing from others for a moment.
    fn applying(&self, ask: &QuotaAsk<'_>) -> [Option<&Arc<Limiter>>; LIMITS_EACH] {
        [
            ask.key.and_then(|key| self.keys.get(key)),
            ask.tenant.and_then(|tenant| self.tenants.get(tenant)),
            ask.model.and_then(|model| self.models.get(model)),
            self.global.as_ref(),
        ]
    }

    fn find(&self, scope: &Scope) -> Option<&Arc<Limiter>> {
        match scope {
            Scope::Global => self.global.as_ref(),
            Scope::Tenant(name) => self.tenants.get(name.as_str()),
            Scope::Model(name) => self.models.get(name.as_str()),
            Scope::Key(id) => self.keys.get(id.as_str()),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Limiter>> {
        let named = [&self.tenants, &self.models, &self.keys];
        self.global.iter().chain(named.into_iter().flat_map(BTreeMap::values))
    }

    fn put(&mut self, limiter: Arc<Limiter>) {
        match &limiter.scope {
            Scope::Global => self.global = Some(limiter),
            Scope::Tenant(name) => drop(self.tenants.insert(name.as_str().into(), limiter)),
            Scope::Model(name) => drop(self.models.insert(name.as_str().into(), limiter)),
            Scope::Key(id) => drop(self.keys.insert(id.as_str().into(), limiter)),
        }
    }
}

#[cfg(test)]
#[path = "quotas_test.rs"]
mod tests;
