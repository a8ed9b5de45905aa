//! Parts of the node that its tasks in a cluster share.

use std::sync::Arc;

use spillway_config::ClusterConfig;
use spillway_link::Link;
use spillway_types::{NodeName, RegionName};

use crate::agreed::region_facts::SharedRegionFacts;
use crate::feedback::Feedback;
use crate::keeper::KeeperHandle;
use crate::node_tasks::NodeTasks;

/// Parts of the node that the tasks of [`Agreed`](crate::agreed::Agreed) work with.
#[derive(Debug)]
pub(crate) struct AgreedParts<'a> {
    pub(crate) config: ClusterConfig,
    pub(crate) me: (NodeName, RegionName),
    pub(crate) link: Arc<Link>,
    pub(crate) region_facts: Arc<SharedRegionFacts>,
    pub(crate) keeper: KeeperHandle,
    pub(crate) feedback: &'a Feedback,
    pub(crate) tasks: NodeTasks,
}
