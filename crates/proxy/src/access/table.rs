//! Every key there is, immutable once built.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_control::{Hidden, Key, KeyId, KeyRole};
use spillway_types::{Allowed, Country, Residency, TenantName};

use super::counts::{AccessCounts, TenantTally};
use super::grant::Grant;

/// Tenants with counts of their own; those beyond, by name, share one. More would make metrics pages
/// of several megabytes.
const TENANTS_COUNTED_MAX: usize = 1_000;
/// What stands for them.
const OTHER: &str = "_other";

/// What is said of a tenant besides its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantTerms {
    /// None of its keys is let in.
    pub is_suspended: bool,
    /// Its prompts must not look like those of other tenants.
    pub is_isolated: bool,
    /// Where its requests may be served.
    pub residency: Residency,
}

/// Every key that clients may come with, and what it allows.
#[derive(Debug, Default)]
pub struct KeyTable {
    keys: BTreeMap<Box<str>, Entry>,
    tenants: BTreeMap<TenantName, Tenant>,
    isolates_any: bool,
    /// Of requests that are nobody's.
    nobody: Arc<AccessCounts>,
    /// Of tenants beyond the limit.
    other: Arc<AccessCounts>,
}

/// A key.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) salt: [u8; 16],
    pub(super) hash: Hidden,
    pub(super) state: EntryState,
    pub(super) expires_ms: Option<u64>,
    pub(super) grant: Arc<Grant>,
}

/// Whether a key lets anybody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryState {
    // Good => (Revoked | Suspended)
    Good,
    // Suspended => (Good | Revoked)
    Suspended,
    // Revoked: for good
    Revoked,
}

#[derive(Debug)]
struct Tenant {
    terms: TenantTerms,
    counts: Arc<AccessCounts>,
    is_counted: bool,
}

impl KeyTable {
    /// A table of these keys; those that are no clients' are left out, and of two with one id the
    /// first counts. Counts go on where `previous` had them.
    #[must_use]
    pub fn new(
        keys: impl IntoIterator<Item = (KeyId, Key)>,
        tenants: impl IntoIterator<Item = (TenantName, TenantTerms)>,
        previous: Option<&Self>,
    ) -> Self {
        let mut table = Self {
            nobody: previous.map(|table| Arc::clone(&table.nobody)).unwrap_or_default(),
            other: previous.map(|table| Arc::clone(&table.other)).unwrap_or_default(),
            ..Self::default()
        };
        let keys: Vec<_> =
            keys.into_iter().filter(|(_, key)| key.role == KeyRole::Client).collect();
        let mut terms: BTreeMap<TenantName, TenantTerms> = tenants.into_iter().collect();
        for tenant in keys.iter().filter_map(|(_, key)| key.tenant.as_ref()) {
            terms.entry(tenant.clone()).or_default();
        }
        table.isolates_any = terms.values().any(|terms| terms.is_isolated);
        for (index, (name, terms)) in terms.into_iter().enumerate() {
            let tenant = table.tenant(&name, terms, index < TENANTS_COUNTED_MAX, previous);
            table.tenants.insert(name, tenant);
        }
        for (id, key) in keys {
            let entry = table.entry_of(&id, key);
            table.keys.entry(id.as_str().into()).or_insert(entry);
        }
        table
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How requests for entry ended so far, by tenant.
    #[must_use]
    pub fn tallies(&self) -> Vec<TenantTally> {
        let tenants = self.tenants.iter().filter(|(_, tenant)| tenant.is_counted);
        tenants
            .map(|(name, tenant)| TenantTally::of(name.as_str(), &tenant.counts))
            .chain([TenantTally::of("", &self.nobody), TenantTally::of(OTHER, &self.other)])
            .filter(|tally| !tally.totals.is_empty())
            .collect()
    }

    pub(super) fn entry(&self, id: &str) -> Option<&Entry> {
        self.keys.get(id)
    }

    /// Whether any tenant's prompts must not look like those of others.
    pub(super) fn isolates_any(&self) -> bool {
        self.isolates_any
    }

    pub(super) fn nobody(&self) -> &AccessCounts {
        &self.nobody
    }

    /// What is said of a tenant; nothing of one that is unknown here.
    #[must_use]
    pub fn terms(&self, tenant: &str) -> TenantTerms {
        self.tenants.get(tenant).map(|tenant| tenant.terms.clone()).unwrap_or_default()
    }

    /// Whether a tenant's requests may be served there.
    pub(super) fn allows(&self, tenant: &str, region: &str, country: Option<Country>) -> bool {
        let tenant = self.tenants.get(tenant);
        tenant.is_none_or(|tenant| tenant.terms.residency.allows(region, country))
    }

    /// Where a tenant's requests are counted: clients must not make new series.
    pub(super) fn counts(&self, tenant: Option<&str>) -> Arc<AccessCounts> {
        let tenant = tenant.and_then(|tenant| self.tenants.get(tenant));
        Arc::clone(tenant.map_or(&self.nobody, |tenant| &tenant.counts))
    }

    fn tenant(
        &self,
        name: &TenantName,
        terms: TenantTerms,
        is_counted: bool,
        previous: Option<&Self>,
    ) -> Tenant {
        let before = previous.and_then(|table| table.tenants.get(name));
        let counts = match before.filter(|before| before.is_counted) {
            _ if !is_counted => Arc::clone(&self.other),
            Some(before) => Arc::clone(&before.counts),
            None => Arc::default(),
        };
        Tenant { terms, counts, is_counted }
    }

    fn entry_of(&self, id: &KeyId, key: Key) -> Entry {
        let tenant = key.tenant.as_ref().map(TenantName::as_str);
        let terms = tenant.map(|tenant| self.terms(tenant)).unwrap_or_default();
        let state = match (key.is_revoked, terms.is_suspended) {
            (true, _) => EntryState::Revoked,
            (false, true) => EntryState::Suspended,
            (false, false) => EntryState::Good,
        };
        let residency = Residency::new(key.regions, []).and(&terms.residency);
        let grant = Grant {
            key: Some(id.clone()),
            counts: Some(self.counts(tenant)),
            models: Allowed::all_if_empty(key.models),
            residency,
            priority: key.priority,
            is_isolated: terms.is_isolated,
            tenant: key.tenant,
        };
        Entry {
            salt: key.salt,
            hash: key.hash,
            state,
            expires_ms: key.expires_ms,
            grant: Arc::new(grant),
        }
    }
}
