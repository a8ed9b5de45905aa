//! Applies the agreed state to this node: regions, replicas, and reports of sibling nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spillway_cluster_state::State;
use spillway_config::ClusterConfig;
use spillway_control_plane::ControlPlane;
use spillway_health::Witnesses;
use spillway_link::Link;
use spillway_types::{Country, NodeName, RegionName, ReplicaName};

use crate::agreed::witness::{connected, witnesses};
use crate::agreed::{AgreedParts, RegionFacts, SharedRegionFacts};
use crate::fold::AgreedWorld;
use crate::keeper::KeeperHandle;

/// Period of checking whether reports of other nodes still count: nodes fall silent, or this node
/// loses the cluster, without a new entry in the log.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum age of this node's state with which reports of others count. Without a quorum no node
/// can take back a report.
const WITNESSES_AGE_MAX: Duration = Duration::from_secs(15);

/// Task that applies the agreed state to this node.
#[derive(Debug)]
pub(super) struct Follower {
    control_plane: Arc<ControlPlane>,
    config: ClusterConfig,
    me: (NodeName, RegionName),
    link: Arc<Link>,
    region_facts: Arc<SharedRegionFacts>,
    keeper: KeeperHandle,
    /// The own region's country by the config.
    country: Option<Country>,
    /// The state that was applied last.
    seen: Arc<State>,
    /// Reports of sibling nodes that were handed to the keeper last.
    witnesses: BTreeMap<ReplicaName, Witnesses>,
}

impl Follower {
    pub(super) fn new(parts: &AgreedParts<'_>, control_plane: Arc<ControlPlane>) -> Self {
        Self {
            control_plane,
            config: parts.config.clone(),
            me: parts.me.clone(),
            link: Arc::clone(&parts.link),
            region_facts: Arc::clone(&parts.region_facts),
            keeper: parts.keeper.clone(),
            country: parts.feedback.gateway.config().country,
            seen: Arc::new(State::new()),
            witnesses: BTreeMap::new(),
        }
    }

    /// Applies each new state as long as states are published.
    pub(super) async fn run(mut self) {
        let mut publications = self.control_plane.publications();
        loop {
            publications.mark_unchanged();
            let state = self.control_plane.published();
            if state.cluster().is_some() {
                self.take_in(&state).await;
            }
            if let Ok(Err(_)) = tokio::time::timeout(PERIOD, publications.changed()).await {
                return;
            }
        }
    }

    async fn take_in(&mut self, state: &Arc<State>) {
        if state.applied() != self.seen.applied() {
            self.take_regions(state);
            if changes_requests(state, &self.seen) {
                self.keeper.take_agreed(AgreedWorld::of(state, &self.me.1)).await;
            }
            self.seen = Arc::clone(state);
        }
        let witnesses = self.witnesses(state);
        if witnesses != self.witnesses {
            self.witnesses.clone_from(&witnesses);
            self.keeper.take_witnesses(witnesses).await;
        }
    }

    fn take_regions(&self, state: &State) {
        let own = (&self.me.1, self.country);
        let said = RegionFacts::agreed(state, &self.config.regions, own);
        let before = self.region_facts.load();
        for region in said.new_contradictions(&before) {
            let remedy = "correct the region's record or the nodes' configs: until then nobody serves \
                          there what has to stay in certain countries";
            tracing::error!(region, remedy, "a region is said to be in several countries");
        }
        if **before != said {
            tracing::info!(%said, "what is said of regions changed");
            self.region_facts.store(Arc::new(said));
        }
    }

    /// Returns the reports of sibling nodes about this region's replicas; empty if this node's
    /// state is too old.
    fn witnesses(&self, state: &State) -> BTreeMap<ReplicaName, Witnesses> {
        let age = self.control_plane.status().age;
        if age.is_none_or(|age| age > WITNESSES_AGE_MAX) {
            return BTreeMap::new();
        }
        witnesses(state, (&self.me.0, &self.me.1), &connected(&self.link, &self.me.1))
    }
}

/// Returns true if records that routing reads differ from `before`. Most entries are about
/// something else.
fn changes_requests(state: &State, before: &State) -> bool {
    let (now, before) = (state.records(), before.records());
    now.models != before.models
        || now.splits != before.splits
        || now.routes != before.routes
        || now.replicas != before.replicas
}
