//! Names that people write in the config, and the dense numbers that replace them inside a view.

use serde::{Deserialize, Serialize};

use crate::name;

name! {
    /// A model as clients ask for it, e.g. `llama-3.1-8b`.
    ModelName
}
name! {
    /// A model server, unique within a node's config.
    ReplicaName
}
name! {
    /// A route of the config: a set of requests and how they are served.
    RouteName
}
name! {
    /// A pool of replicas, whose members share their load and may replace each other.
    PoolName
}
name! {
    /// A version of a model, e.g. `2`, as KServe V2 has it.
    ModelVersion
}
name! {
    /// A region, e.g. `eu-central-1`: the nodes and replicas that are near each other.
    RegionName
}
name! {
    /// A process of the cluster; unique in the cluster.
    NodeName
}
name! {
    /// An arm of a traffic split, e.g. `canary`; unique within its split.
    ArmName
}
name! {
    /// The owner of requests, which is also charged for them.
    TenantName
}

/// Position of a replica in one view: dense, so that per-replica state is an array look-up.
///
/// A slot means nothing outside the view it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReplicaSlot(pub u32);

impl ReplicaSlot {
    /// Returns the slot as an array index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
