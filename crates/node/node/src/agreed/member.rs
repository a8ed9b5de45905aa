//! This node as a member of its cluster.

use std::sync::Arc;

use spillway_config::ClusterConfig;
use spillway_resolver::Resolver;
use spillway_types::{NodeName, RegionName};

use crate::agreed::region_facts::{RegionFacts, SharedRegionFacts};
use crate::keeper::KeeperHandle;
use crate::local_node::LocalNode;
use crate::node_tasks::NodeTasks;
use crate::rollouts::RolloutCounts;

/// This node as a member of its cluster: its name, its region, and its own part in both.
#[derive(Clone, Debug)]
pub(crate) struct ClusterMember {
    pub(crate) name: NodeName,
    pub(crate) region: RegionName,
    pub(crate) config: ClusterConfig,
    /// Terms of regions.
    pub(crate) region_facts: Arc<SharedRegionFacts>,
    /// Keeper of this node's replicas.
    pub(crate) keeper: KeeperHandle,
    /// Resolver of other nodes' host names.
    pub(crate) resolver: Resolver,
    pub(crate) tasks: NodeTasks,
    /// Figures of the arms of rollouts.
    pub(crate) rollouts: Arc<RolloutCounts>,
}

impl ClusterMember {
    /// Returns a member that knows the regions' terms by its config alone.
    pub(crate) fn new(
        (name, region): (NodeName, RegionName),
        config: ClusterConfig,
        local: &LocalNode,
        resolver: &Resolver,
        tasks: &NodeTasks,
    ) -> Self {
        let region_facts = RegionFacts::of_config(&config.regions);
        Self {
            name,
            region,
            config,
            region_facts: Arc::new(SharedRegionFacts::from_pointee(region_facts)),
            keeper: local.keeper.clone(),
            resolver: resolver.clone(),
            tasks: tasks.clone(),
            rollouts: Arc::clone(&local.outcomes.rollouts),
        }
    }
}
