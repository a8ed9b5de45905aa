//! Configuration of a node's log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use spillway_tasks::TaskWatch;
use spillway_types::{DiskId, NodeId, NodeName, RegionName};
use tokio::sync::watch;

use crate::disk::DiskClock;
use crate::rules::budget::BudgetConfig;
use crate::rules::timing::Timing;
use crate::wire::WireVersion;

/// Configuration of a node's log, fixed when it starts.
#[derive(Clone, Debug)]
pub struct RaftConfig {
    /// Number of this node. Seeds take theirs from [`crate::seed_ids`]; the cluster gives every
    /// other node its number when the node joins.
    pub node: NodeId,
    /// Name of this node, which is also the name of its link.
    pub name: NodeName,
    /// Region of this node.
    pub region: RegionName,
    /// Folder of the log and the snapshots. Choose a disk that keeps what it has confirmed, and a
    /// folder that nothing else uses. It needs about three times [`Compaction::bytes`], and as much
    /// memory.
    pub folder: PathBuf,
    /// Disk by which the cluster knows this node; an empty folder takes this id. `None` takes the
    /// folder's own id, or a new one if the folder is empty.
    pub disk: Option<DiskId>,
    /// Timers at the start: [`Timing::for_rtt`] of the longest round trip between voters. A leader
    /// then measures the round trips, and its followers use its timers.
    pub timing: Timing,
    /// Time for which another voter's commits have to be faster before the lead moves there. Timers
    /// change after a third of this time. Choose a time that is longer than a path is slow now and
    /// then.
    pub steering_patience: Duration,
    /// Limits at which the log is shortened.
    pub compaction: Compaction,
    /// Rate limit of the entries that a node writes by itself.
    pub budget: BudgetConfig,
    /// Time limit for sending a snapshot to a follower: at least its size over the slowest path. 64
    /// MiB at 20 Mbit/s take 27 s.
    pub snapshot_limit: Duration,
    /// Newest version of messages that this node uses. A version older than the program's newest
    /// lets the node go back to a program of that version, until all nodes are upgraded.
    pub wire_newest: WireVersion,
    /// Channel that gets the index after the last applied entry, on each change. A log that is opened
    /// again after a fault continues the channel of the one before.
    pub applied: watch::Sender<u64>,
    /// Record of lost tasks, for the log's own.
    pub watch: TaskWatch,
    /// Clock of the disk, which a log that is opened again goes on with.
    pub disk_clock: Arc<DiskClock>,
}

impl RaftConfig {
    /// Returns the configuration of a node with default limits.
    #[must_use]
    pub fn new(node: NodeId, name: NodeName, region: RegionName, folder: PathBuf) -> Self {
        Self {
            node,
            name,
            region,
            folder,
            disk: None,
            timing: Timing::for_rtt(Duration::from_millis(220)),
            steering_patience: Duration::from_secs(30),
            compaction: Compaction::default(),
            budget: BudgetConfig::default(),
            snapshot_limit: Duration::from_secs(60),
            wire_newest: WireVersion::default(),
            applied: watch::Sender::new(0),
            watch: TaskWatch::default(),
            disk_clock: Arc::default(),
        }
    }
}

/// Limits at which the log is shortened; the first one that is reached counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Entries after which a snapshot is made. At ten entries a second, 5,000 are eight minutes.
    pub entries: u64,
    /// Bytes of entries after which a snapshot is made.
    pub bytes: usize,
    /// Entries kept in the log although the newest snapshot holds them, so that a follower that is
    /// a little behind needs no snapshot.
    pub entries_kept: u64,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { entries: 5_000, bytes: 16 << 20, entries_kept: 1_000 }
    }
}
