//! Configuration of a node's part in the control plane.

use std::path::PathBuf;
use std::time::Duration;

use spillway_cluster_state::Fingerprint;
use spillway_raft::{Compaction, Seed};
use spillway_tasks::TaskWatch;
use spillway_types::{NodeName, RegionName};

/// Configuration of a node's part in the control plane.
#[derive(Clone, Debug)]
pub struct ControlPlaneConfig {
    /// Name of this node.
    pub name: NodeName,
    /// Region of this node.
    pub region: RegionName,
    /// Address at which other nodes reach this node, `host:port`.
    pub advertise: String,
    /// Fingerprint of this node's certificate.
    pub fingerprint: Fingerprint,
    /// Folder of log and snapshots.
    pub folder: PathBuf,
    /// Nodes that form the cluster, this one included: equal on all of them.
    pub seeds: Vec<Seed>,
    /// File with the join token of a node that is to join a running cluster. With it, a node whose
    /// folder is empty asks its peers to take it in, and forms no cluster.
    pub join_token: Option<PathBuf>,
    /// True if this node may propose operators' orders until an operator decides otherwise. False
    /// suits a node without replicas, an edge node: attackers reach such nodes first.
    pub is_operator: bool,
    /// Longest round-trip time between voters, as assumed before it is measured.
    pub rtt_max: Duration,
    /// Record of lost tasks, for those of the control plane and its log.
    pub watch: TaskWatch,
}

/// Returns the rule for shortening the log. Tests shorten early, so that nodes in them start from
/// snapshots.
pub(crate) fn compaction() -> Compaction {
    if cfg!(test) {
        Compaction { entries: 100, entries_kept: 20, ..Compaction::default() }
    } else {
        Compaction::default()
    }
}
