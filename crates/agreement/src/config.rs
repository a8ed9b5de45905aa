//! What a node's part in the cluster is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

use spillway_consensus::{Compaction, Seed};
use spillway_control::Fingerprint;
use spillway_types::{NodeName, RegionName};

/// What a node's part in the cluster is told when it starts.
#[derive(Clone, Debug)]
pub struct AgreementConfig {
    /// This node.
    pub name: NodeName,
    /// Its region.
    pub region: RegionName,
    /// Where other nodes reach it, `host:port`.
    pub advertise: String,
    /// Of its certificate.
    pub fingerprint: Fingerprint,
    /// Where log and snapshots are kept.
    pub folder: PathBuf,
    /// The nodes that form the cluster, this one included: the same on all of them.
    pub seeds: Vec<Seed>,
    /// The file with the join token of a node that is to come into a cluster that runs already:
    /// with it, a node whose folder is empty asks its peers to be taken in and forms nothing.
    pub join_token: Option<PathBuf>,
    /// Whether operators' orders are to come from this node as long as nobody decides otherwise. A
    /// node without replicas, an edge node, should not: it stands where attackers come first.
    pub is_operator: bool,
    /// The longest round trip between voters, as far as known before it is measured.
    pub rtt_max: Duration,
}

/// When the log is shortened. Soon in tests, so that they see nodes start from snapshots.
pub(crate) fn compaction() -> Compaction {
    if cfg!(test) {
        Compaction { entries: 100, entries_kept: 20, ..Compaction::default() }
    } else {
        Compaction::default()
    }
}
