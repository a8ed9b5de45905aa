//! Table of the limits that requests meet.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limiter::Limiter;
use crate::marks::{MarkedLimits, Marks};
use crate::request::LIMITS_EACH;
use crate::{QuotaAsk, Scope};

/// Limits by their scope. Once requests read it, it never changes: another table takes its place.
#[derive(Debug, Default)]
pub(crate) struct QuotaTable {
    global: Option<Arc<Limiter>>,
    tenants: BTreeMap<Box<str>, Arc<Limiter>>,
    models: BTreeMap<Box<str>, Arc<Limiter>>,
    keys: BTreeMap<Box<str>, Arc<Limiter>>,
    has_limits: bool,
    /// Limits that this node alone enforces, in the order of their numbers.
    own: Vec<Arc<Limiter>>,
    own_marked: MarkedLimits,
}

impl QuotaTable {
    /// Adds a limit.
    pub(crate) fn put(&mut self, limiter: Arc<Limiter>) {
        self.has_limits = true;
        match &limiter.scope {
            Scope::Global => self.global = Some(limiter),
            Scope::Tenant(name) => drop(self.tenants.insert(name.as_str().into(), limiter)),
            Scope::Model(name) => drop(self.models.insert(name.as_str().into(), limiter)),
            Scope::Key(id) => drop(self.keys.insert(id.as_str().into(), limiter)),
        }
    }

    /// Numbers the limits that this node alone enforces, when all limits are there.
    pub(crate) fn numbered(self) -> Self {
        let own: Vec<_> = self.all().filter(|limiter| limiter.is_own).cloned().collect();
        let own_marked = MarkedLimits::new(own.iter().map(|limiter| &limiter.scope));
        Self { own, own_marked, ..self }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_limits
    }

    /// Returns the limiters that apply to a request, the narrowest first: a client over its own
    /// limit is refused by that one, and takes nothing from the others.
    pub(crate) fn applying(&self, ask: &QuotaAsk<'_>) -> [Option<&Arc<Limiter>>; LIMITS_EACH] {
        [
            ask.key.and_then(|key| self.keys.get(key)),
            ask.tenant.and_then(|tenant| self.tenants.get(tenant)),
            ask.model.and_then(|model| self.models.get(model)),
            self.global.as_ref(),
        ]
    }

    pub(crate) fn find(&self, scope: &Scope) -> Option<&Arc<Limiter>> {
        match scope {
            Scope::Global => self.global.as_ref(),
            Scope::Tenant(name) => self.tenants.get(name.as_str()),
            Scope::Model(name) => self.models.get(name.as_str()),
            Scope::Key(id) => self.keys.get(id.as_str()),
        }
    }

    /// Returns all limits in the order of their scopes.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Limiter>> {
        let named = [&self.tenants, &self.models, &self.keys];
        self.global.iter().chain(named.into_iter().flat_map(BTreeMap::values))
    }

    /// Takes all marks, and calls `each` for the limits of this node alone that have one.
    pub(crate) fn take_own(&self, marks: &Marks, each: impl Fn(&Limiter)) {
        marks.take(&self.own_marked, |number| each(&self.own[number]));
    }
}
