//! Does what the cluster agreed on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spillway_agreement::Agreement;
use spillway_control::{ReplicaState, State};
use spillway_health::{DrainReason, Order};
use spillway_link::{Identity, Link, PeerConfig};
use spillway_types::{NodeName, RegionName, ReplicaName};

use crate::agreed::{AgreedParts, Book, Said};
use crate::config::ClusterConfig;
use crate::keeper::KeeperHandle;

/// How long a replica that the cluster drains may take to finish what it has.
const DRAIN_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Follows the agreed state.
#[derive(Debug)]
pub(super) struct Follower {
    agreement: Arc<Agreement>,
    config: ClusterConfig,
    me: (NodeName, RegionName),
    link: Arc<Link>,
    book: Arc<Book>,
    keeper: KeeperHandle,
    /// What each of the own region's replicas was ordered last.
    ordered: BTreeMap<ReplicaName, bool>,
}

impl Follower {
    pub(super) fn new(parts: &AgreedParts<'_>, agreement: Arc<Agreement>) -> Self {
        Self {
            agreement,
            config: parts.config.clone(),
            me: parts.me.clone(),
            link: Arc::clone(&parts.link),
            book: Arc::clone(&parts.book),
            keeper: parts.keeper.clone(),
            ordered: BTreeMap::new(),
        }
    }

    /// Does what is new, as long as the state is published.
    pub(super) async fn run(mut self) {
        let mut publications = self.agreement.publications();
        loop {
            publications.mark_unchanged();
            let state = self.agreement.published();
            if state.cluster().is_some() {
                self.take_in(&state).await;
            }
            if publications.changed().await.is_err() {
                return;
            }
        }
    }

    async fn take_in(&mut self, state: &State) {
        let said = Said::agreed(state, &self.config.regions, &self.me.1);
        if **self.book.load() != said {
            tracing::info!(?said, "what is said of regions changed");
            self.book.store(Arc::new(said));
        }
        match peers(state, &self.config, &self.me.0) {
            Ok(peers) => self.link.set_peers(peers),
            Err(error) => tracing::error!(%error, "a node of the cluster has an impossible name"),
        }
        self.order_replicas(state).await;
    }

    /// Drains and resumes what the cluster says, each once.
    async fn order_replicas(&mut self, state: &State) {
        let own = state.records().replicas.iter().filter(|(id, _)| id.region == self.me.1);
        let wanted: BTreeMap<ReplicaName, bool> = own
            .map(|(id, replica)| (id.name.clone(), replica.state != ReplicaState::Active))
            .collect();
        for (name, is_drained) in &wanted {
            let before = self.ordered.get(name).copied().unwrap_or(false);
            if before == *is_drained {
                continue;
            }
            let order = match is_drained {
                true => Order::Drain { limit: DRAIN_LIMIT, why: DrainReason::Operator },
                false => Order::Resume,
            };
            match self.keeper.order(name.clone(), order).await {
                Ok(()) => {
                    self.ordered.insert(name.clone(), *is_drained);
                }
                // Another node of the region has it; this one may get it with its next config.
                Err(error) => tracing::debug!(%error, "the cluster orders a replica unknown here"),
            }
        }
        self.ordered.retain(|name, _| wanted.contains_key(name));
    }
}

/// Those whom the cluster knows, and those of the config that it does not know yet.
fn peers(
    state: &State,
    config: &ClusterConfig,
    me: &NodeName,
) -> Result<Vec<PeerConfig>, spillway_link::NameError> {
    let rtt_ms = |region: &RegionName| {
        let known = config.regions.iter().find(|known| known.name == *region);
        let rtt = known.and_then(|region| region.rtt);
        rtt.map(|rtt| u32::try_from(rtt.as_millis()).unwrap_or(u32::MAX))
    };
    let mut found = BTreeMap::new();
    for peer in &config.peers {
        let address = peer.address.to_string();
        found.insert(peer.name.clone(), (peer.region.clone(), address));
    }
    for (_, node) in state.records().nodes.iter() {
        let spec = &node.spec;
        // A config may know a shorter way, but not another region.
        let configured = found.get(&spec.name).map(|(_, address)| address.clone());
        let address = configured.unwrap_or_else(|| spec.address.clone());
        found.insert(spec.name.clone(), (spec.region.clone(), address));
    }
    found.remove(me);
    let peer = |(name, (region, address)): (NodeName, (RegionName, String))| {
        let identity = Identity::new(&config.id, region.as_str(), name.as_str())?;
        Ok(PeerConfig { identity, address, rtt_ms: rtt_ms(&region) })
    };
    found.into_iter().map(peer).collect()
}
