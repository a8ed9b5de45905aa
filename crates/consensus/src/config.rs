//! What a node's log is told when it starts.

use std::path::PathBuf;
use std::time::Duration;

use spillway_types::{NodeName, RegionName};

use crate::ids::{DiskId, NodeId};
use crate::rules::budget::BudgetConfig;
use crate::rules::timing::Timing;
use crate::wire::WireVersion;

/// What a node's log is told when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of this node. Seeds take theirs from [`crate::seed_ids`], others are given one by
    /// the cluster when they join.
    pub node: NodeId,
    /// Its name, which is that of its link.
    pub name: NodeName,
    /// Its region.
    pub region: RegionName,
    /// Where log and snapshots are. On a disk that keeps what it has confirmed, and in nobody
    /// else's use. About three times the compaction's bytes are needed, and as much memory.
    pub folder: PathBuf,
    /// The disk that the cluster knows this node by; an empty folder becomes it. `None` takes what
    /// the folder says, and a new one if it is empty.
    pub disk: Option<DiskId>,
    /// The timers to begin with: [`Timing::for_rtt`] of the longest round trip between voters. A
    /// leader measures, and all who follow go by its timers.
    pub timing: Timing,
    /// How long another voter's commits have to be quicker before the lead moves there; a third of
    /// it, how long round trips have to be other than the timers are made for. Longer than a path
    /// is slow now and then.
    pub steering_patience: Duration,
    /// When the log is shortened.
    pub compaction: Compaction,
    /// How much a node may write by itself.
    pub budget: BudgetConfig,
    /// How long a snapshot may take to a follower. At least its size over the narrowest path: 64
    /// MiB at 20 Mbit/s take 27 s.
    pub snapshot_limit: Duration,
    /// The newest version of messages that this node speaks. An older one than the program knows
    /// lets the program be taken back to one that knows no more, until all nodes are upgraded.
    pub wire_newest: WireVersion,
}

impl Config {
    /// A node with default limits.
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
        }
    }
}

/// When the log is shortened: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Entries after which a snapshot is made. At ten entries a second, 5,000 are eight minutes.
    pub entries: u64,
    /// Bytes of entries after which one is made.
    pub bytes: usize,
    /// Entries kept that the newest snapshot holds, for followers that are a little behind: they
    /// need no snapshot then.
    pub entries_kept: u64,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { entries: 5_000, bytes: 16 << 20, entries_kept: 1_000 }
    }
}
