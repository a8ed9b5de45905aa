//! Table of all keys, immutable once built.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_cluster_state::{Hidden, Key, KeyId, KeyRole};
use spillway_types::{Allowed, Country, Residency, TenantName};

use super::counts::{AccessCounts, TenantTally};
use super::grant::Grant;

/// Tenants with counters of their own; those beyond it, by name, share one. More would make metrics
/// pages of several megabytes.
const TENANTS_COUNTED_MAX: usize = 1_000;
/// Name in metrics of all tenants beyond the limit.
const OTHER: &str = "_other";

/// Terms of a tenant: all settings besides its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantTerms {
    /// True if all of the tenant's keys are rejected.
    pub is_suspended: bool,
    /// True if the tenant's prompts must not share cache entries with other tenants.
    pub is_isolated: bool,
    /// Residency rules of the tenant's requests.
    pub residency: Residency,
}

/// Table of all client keys and their permissions.
#[derive(Debug, Default)]
pub struct KeyTable {
    keys: BTreeMap<Box<str>, KeyEntry>,
    tenants: BTreeMap<TenantName, Tenant>,
    isolates_any: bool,
    /// Counters of requests without a valid key.
    nobody: Arc<AccessCounts>,
    /// Counters of all tenants beyond the limit.
    other: Arc<AccessCounts>,
}

/// A key's salted hash, state and permissions.
#[derive(Clone, Debug)]
pub(crate) struct KeyEntry {
    pub salt: [u8; 16],
    pub hash: Hidden,
    pub state: EntryState,
    pub expires_ms: Option<u64>,
    pub grant: Arc<Grant>,
}

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    // Good => (Revoked | Suspended | Unsure)
    Good,
    // Unsure => (Good | Revoked | Suspended): the node can't follow the cluster that has the key
    Unsure,
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
    /// Builds a table of these keys. Keys that are not for clients are left out; of two keys with
    /// one id the first counts. Counters continue from `previous`.
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
        // A tenant that only a key names has the default terms.
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

    /// Lets no key of these ids in until another table says whether it still counts.
    #[must_use]
    pub fn in_doubt<'k>(mut self, ids: impl IntoIterator<Item = &'k KeyId>) -> Self {
        for id in ids {
            if let Some(entry) = self.keys.get_mut(id.as_str())
                && entry.state == EntryState::Good
            {
                entry.state = EntryState::Unsure;
            }
        }
        self
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if the table has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the authentication results so far, by tenant.
    #[must_use]
    pub fn tallies(&self) -> Vec<TenantTally> {
        let tenants = self.tenants.iter().filter(|(_, tenant)| tenant.is_counted);
        tenants
            .map(|(name, tenant)| TenantTally::of(name.as_str(), &tenant.counts))
            .chain([TenantTally::of("", &self.nobody), TenantTally::of(OTHER, &self.other)])
            .filter(|tally| !tally.totals.is_empty())
            .collect()
    }

    /// Returns the key with this id; `None` if there is none.
    pub(crate) fn entry(&self, id: &str) -> Option<&KeyEntry> {
        self.keys.get(id)
    }

    /// Returns true if any tenant's prompts must not share cache entries with other tenants.
    pub fn isolates_any(&self) -> bool {
        self.isolates_any
    }

    /// Returns the counters of requests whose key is unknown.
    pub(crate) fn nobody(&self) -> &AccessCounts {
        &self.nobody
    }

    /// Returns the terms of a tenant; the defaults for an unknown one.
    #[must_use]
    pub fn terms(&self, tenant: &str) -> TenantTerms {
        self.tenants.get(tenant).map(|tenant| tenant.terms.clone()).unwrap_or_default()
    }

    /// Returns true if the tenant's residency rules allow this region; true for an unknown tenant.
    pub fn may_serve(&self, tenant: &str, region: &str, country: Option<Country>) -> bool {
        let tenant = self.tenants.get(tenant);
        tenant.is_none_or(|tenant| tenant.terms.residency.may_serve(region, country))
    }

    /// Returns the counters of a tenant. Unknown tenants share one, so that clients cannot create
    /// time series.
    pub(crate) fn counts(&self, tenant: Option<&str>) -> Arc<AccessCounts> {
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

    fn entry_of(&self, id: &KeyId, key: Key) -> KeyEntry {
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
            client: None,
            priority: key.priority,
            is_isolated: terms.is_isolated,
            tenant: key.tenant,
        };
        KeyEntry {
            salt: key.salt,
            hash: key.hash,
            state,
            expires_ms: key.expires_ms,
            grant: Arc::new(grant),
        }
    }
}
