//! The keys and tenants that the data path lets in: from this node's config and from the cluster's
//! agreed state.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spillway_cluster_state::State;
use spillway_config::AccessConfig;
use spillway_control_plane::ControlPlane;
use spillway_front::access::{KeyTable, TenantTerms};
use spillway_request::gateway::{ClientState, Switches};
use spillway_types::TenantName;
use tokio::sync::watch;

/// Age of this node's knowledge up to which it counts as connected to a leader.
const IN_CONTACT: Duration = Duration::from_secs(3);

/// Period of checking whether this node follows its cluster, without a new entry in the log.
const DOUBT_PERIOD: Duration = Duration::from_secs(1);

/// Keys and tenants from the config and from the cluster, merged into the key table of the data path.
///
/// For a key that both know, the cluster's record counts: no config lets in a key that the cluster
/// revoked. A tenant is suspended or isolated as soon as one source says so, and may be served only
/// in regions that both sources allow. The lock is taken when a config or the agreed state changes;
/// requests never take it.
#[derive(Debug)]
pub(crate) struct KeyBook {
    clients: Arc<ClientState>,
    switches: Arc<Switches>,
    sources: Mutex<KeySources>,
    /// Index of the state that was taken in last.
    taken: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct KeySources {
    config: AccessConfig,
    agreed: AccessConfig,
    /// True while the agreed keys may have been revoked without this node's knowledge.
    is_misled: bool,
}

impl KeyBook {
    /// Creates the book with the config's keys, and lets clients use them at once.
    pub(crate) fn new(
        clients: &Arc<ClientState>,
        switches: &Arc<Switches>,
        config: AccessConfig,
    ) -> Self {
        let book = Self {
            clients: Arc::clone(clients),
            switches: Arc::clone(switches),
            sources: Mutex::default(),
            taken: watch::Sender::new(0),
        };
        book.take_config(config);
        book
    }

    /// Replaces what the config says of keys and tenants.
    pub(crate) fn take_config(&self, config: AccessConfig) {
        self.change(|sources| sources.config = config);
    }

    /// Returns the index of the state whose keys admit requests.
    pub(crate) fn taken(&self) -> watch::Receiver<u64> {
        self.taken.subscribe()
    }

    /// Lets requests wait a moment for keys that other nodes have made, as long as this node can
    /// learn of them: it knows of entries that it has not applied, or its knowledge is fresh.
    pub(crate) fn await_news(&self, control_plane: &Arc<ControlPlane>) {
        let control_plane = Arc::downgrade(control_plane);
        self.clients.authenticator.news.hope(move || {
            let status = control_plane.upgrade().map(|control_plane| control_plane.status());
            status.is_some_and(|status| {
                let is_fresh = status.age.is_some_and(|age| age < IN_CONTACT);
                is_fresh || status.committed_index > status.applied_index
            })
        });
    }

    /// Follows the agreed state until it is published no more. A revoked key is refused here as
    /// soon as its entry is applied and published, which takes 100 ms at most.
    pub(crate) async fn follow(self: Arc<Self>, control_plane: Arc<ControlPlane>) {
        let mut publications = control_plane.publications();
        let mut seen = Arc::new(State::new());
        loop {
            // Marked before the state is read, so that one published in between is not missed.
            publications.mark_unchanged();
            let state = control_plane.published();
            // Most entries are about something else.
            let (now, before) = (state.records(), seen.records());
            let is_new = !Arc::ptr_eq(&state, &seen);
            if is_new && (now.keys != before.keys || now.tenants != before.tenants) {
                self.take_state(&state);
            }
            self.taken.send_replace(state.applied());
            seen = state;
            self.take_doubt(control_plane.status().is_misled);
            if let Ok(Err(_)) = tokio::time::timeout(DOUBT_PERIOD, publications.changed()).await {
                return;
            }
        }
    }

    /// Replaces what the cluster says of keys and tenants.
    pub(crate) fn take_state(&self, state: &State) {
        let records = state.records();
        let keys = records.keys.iter().map(|(id, key)| (id.clone(), key.clone()));
        let tenants = records.tenants.iter().map(|(name, tenant)| {
            let terms = TenantTerms {
                is_suspended: tenant.is_suspended,
                is_isolated: tenant.terms.isolates_prompts,
                residency: tenant.residency.residency(),
            };
            (name.clone(), terms)
        });
        let agreed = AccessConfig {
            keys: keys.collect(),
            tenants: tenants.collect(),
            ..AccessConfig::default()
        };
        let count = agreed.keys.len();
        let had_others = self.change(|sources| {
            let before = std::mem::replace(&mut sources.agreed, agreed);
            before.keys != sources.agreed.keys
        });
        if had_others {
            tracing::info!(keys = count, "the cluster's keys changed");
        }
    }

    /// Rejects all keys of the cluster as long as this node can't follow the cluster, even though
    /// it receives the cluster's messages.
    fn take_doubt(&self, is_misled: bool) {
        let was = {
            let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
            sources.is_misled
        };
        if was != is_misled {
            self.change(|sources| sources.is_misled = is_misled);
            self.switches.set_misled(is_misled);
            match is_misled {
                true => tracing::error!(
                    "this node can't follow its cluster: it lets none of the cluster's keys in"
                ),
                false => {
                    tracing::info!(
                        "this node follows its cluster: the cluster's keys are valid again"
                    );
                }
            }
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut KeySources) -> T) -> T {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut sources);
        let previous = self.clients.authenticator.table();
        // Under the lock: otherwise the older of two concurrent changes could win.
        self.clients.authenticator.replace(sources.table(&previous));
        changed
    }
}

impl KeySources {
    fn table(&self, previous: &KeyTable) -> KeyTable {
        let mut keys = self.config.keys.clone();
        keys.extend(self.agreed.keys.iter().map(|(id, key)| (id.clone(), key.clone())));
        let mut tenants = self.config.tenants.clone();
        for (name, terms) in &self.agreed.tenants {
            let known: &mut TenantTerms = tenants.entry(TenantName::clone(name)).or_default();
            // The stricter of both sources counts.
            known.is_suspended |= terms.is_suspended;
            known.is_isolated |= terms.is_isolated;
            known.residency = known.residency.and(&terms.residency);
        }
        let table = KeyTable::new(keys, tenants, Some(previous));
        match self.is_misled {
            true => table.in_doubt(self.agreed.keys.keys()),
            false => table,
        }
    }
}
