//! Applies the agreed state to this node: regions, replicas, and reports of sibling nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_cluster_state::State;
use spillway_config::ClusterConfig;
use spillway_control_plane::ControlPlane;
use spillway_health::PeerReports;
use spillway_link::Link;
use spillway_types::{Country, NodeName, RegionName, ReplicaName};

use crate::agreed::peer_report::{connected, peer_reports};
use crate::agreed::{ClusterMember, RegionFacts, SharedRegionFacts};
use crate::fold::AgreedWorld;
use crate::keeper::KeeperHandle;
use crate::rollouts::RolloutCounts;

/// Period of checking whether reports of other nodes still count: nodes fall silent, or this node
/// loses the cluster, without a new entry in the log.
const PERIOD: Duration = Duration::from_secs(1);
/// Maximum age of this node's state with which reports of others count. Without a quorum no node
/// can take back a report.
const PEER_REPORTS_AGE_MAX: Duration = Duration::from_secs(15);

/// Task that applies the agreed state to this node.
#[derive(Debug)]
pub(super) struct Follower {
    control_plane: Arc<ControlPlane>,
    config: ClusterConfig,
    me: (NodeName, RegionName),
    link: Arc<Link>,
    region_facts: Arc<SharedRegionFacts>,
    keeper: KeeperHandle,
    rollouts: Arc<RolloutCounts>,
    /// The own region's country by the config.
    country: Option<Country>,
    /// The state that was applied last.
    seen: Arc<State>,
    /// Reports of sibling nodes that were handed to the keeper last.
    peer_reports: BTreeMap<ReplicaName, PeerReports>,
}

impl Follower {
    pub(super) fn new(
        member: &ClusterMember,
        link: &Arc<Link>,
        country: Option<Country>,
        control_plane: Arc<ControlPlane>,
    ) -> Self {
        Self {
            control_plane,
            config: member.config.clone(),
            me: (member.name.clone(), member.region.clone()),
            link: Arc::clone(link),
            region_facts: Arc::clone(&member.region_facts),
            keeper: member.keeper.clone(),
            rollouts: Arc::clone(&member.rollouts),
            country,
            seen: Arc::new(State::new()),
            peer_reports: BTreeMap::new(),
        }
    }

    /// Applies each new state as long as states are published.
    pub(super) async fn run(mut self) {
        let mut publications = self.control_plane.publications();
        loop {
            // Marked before the state is read, so that one published in between is not missed.
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
                // After the shares have changed here.
                self.rollouts.watch(state, Instant::now());
            }
            self.seen = Arc::clone(state);
        }
        let peer_reports = self.peer_reports(state);
        if peer_reports != self.peer_reports {
            self.peer_reports.clone_from(&peer_reports);
            self.keeper.take_peer_reports(peer_reports).await;
        }
    }

    fn take_regions(&self, state: &State) {
        let own = (&self.me.1, self.country);
        let said = RegionFacts::agreed(state, &self.config.regions, own);
        let before = self.region_facts.load();
        for region in said.new_contradictions(&before) {
            let remedy = "correct the region's record or the nodes' configs: until then no region serves \
                          there what has to stay in certain countries";
            tracing::error!(region, remedy, "a region is declared to be in several countries");
        }
        if **before != said {
            tracing::info!(regions = %said, "records of regions changed");
            self.region_facts.store(Arc::new(said));
        }
    }

    /// Returns the reports of sibling nodes about this region's replicas; empty if this node's
    /// state is too old.
    fn peer_reports(&self, state: &State) -> BTreeMap<ReplicaName, PeerReports> {
        let age = self.control_plane.status().age;
        if age.is_none_or(|age| age > PEER_REPORTS_AGE_MAX) {
            return BTreeMap::new();
        }
        peer_reports(state, (&self.me.0, &self.me.1), &connected(&self.link, &self.me.1))
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
