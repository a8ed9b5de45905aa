//! Keeps the data path's table of keys: what this node's config says, and what the cluster agreed
//! on.

use std::sync::{Arc, Mutex, PoisonError};

use spillway_agreement::Agreement;
use spillway_control::State;
use spillway_proxy::{Gateway, KeyTable, TenantTerms};
use spillway_types::TenantName;

use crate::config::AccessConfig;

/// The keys that clients are let in by, and where they come from.
///
/// Where both know a key, the cluster's word counts: a key that it revoked is let in by no config.
/// A tenant is suspended or kept apart as soon as one of them says so, and served only
/// where both let it be, in regions that both allow. The lock is for those who
/// write, which happens when a config or the agreed state changes; requests never take it.
#[derive(Debug)]
pub(crate) struct KeyBook {
    gateway: Arc<Gateway>,
    sources: Mutex<Sources>,
}

#[derive(Debug, Default)]
struct Sources {
    config: AccessConfig,
    agreed: AccessConfig,
}

impl KeyBook {
    /// A book of the config's keys, which `gateway` goes by from now on.
    pub(crate) fn new(gateway: &Arc<Gateway>, config: AccessConfig) -> Self {
        let book = Self { gateway: Arc::clone(gateway), sources: Mutex::default() };
        book.take_config(config);
        book
    }

    /// Goes by another config.
    pub(crate) fn take_config(&self, config: AccessConfig) {
        self.change(|sources| sources.config = config);
    }

    /// Goes by what the cluster agrees on as long as that is published. What is revoked there is
    /// refused here as soon as the entry is applied and published, which takes 100 ms at most.
    pub(crate) async fn follow(self: Arc<Self>, agreement: Arc<Agreement>) {
        let mut publications = agreement.publications();
        let mut seen = Arc::new(State::new());
        loop {
            publications.mark_unchanged();
            let state = agreement.published();
            // Most entries are about something else.
            let (now, before) = (state.records(), seen.records());
            if now.keys != before.keys || now.tenants != before.tenants {
                self.take_state(&state);
            }
            seen = state;
            if publications.changed().await.is_err() {
                return;
            }
        }
    }

    /// Goes by the keys and tenants of this state.
    pub(crate) fn take_state(&self, state: &State) {
        let records = state.records();
        let keys = records.keys.iter().map(|(id, key)| (id.clone(), key.clone()));
        let tenants = records.tenants.iter().map(|(name, tenant)| {
            let terms = TenantTerms {
                is_suspended: tenant.is_suspended,
                residency: tenant.residency.residency(),
                ..TenantTerms::default()
            };
            (name.clone(), terms)
        });
        let agreed = AccessConfig { keys: keys.collect(), tenants: tenants.collect() };
        let count = agreed.keys.len();
        let had_others = self.change(|sources| {
            let before = std::mem::replace(&mut sources.agreed, agreed);
            before.keys != sources.agreed.keys
        });
        if had_others {
            tracing::info!(keys = count, "the cluster's keys changed");
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Sources) -> T) -> T {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut sources);
        let previous = self.gateway.keys();
        // Under the lock, or of two changes at a time the older could stay.
        self.gateway.replace_keys(sources.table(&previous));
        changed
    }
}

impl Sources {
    fn table(&self, previous: &KeyTable) -> KeyTable {
        let mut keys = self.config.keys.clone();
        keys.extend(self.agreed.keys.iter().map(|(id, key)| (id.clone(), key.clone())));
        let mut tenants = self.config.tenants.clone();
        for (name, terms) in &self.agreed.tenants {
            let known: &mut TenantTerms = tenants.entry(TenantName::clone(name)).or_default();
            known.is_suspended |= terms.is_suspended;
            known.is_isolated |= terms.is_isolated;
            known.residency = known.residency.and(&terms.residency);
        }
        KeyTable::new(keys, tenants, Some(previous))
    }
}
