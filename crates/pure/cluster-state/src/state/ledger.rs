//! Facts about the log and the cluster that are no records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spillway_types::RegionName;

use crate::limits::RETIRED_DISKS_MAX;
use crate::state::clock::RegionClock;
use crate::{ClusterId, DiskId, Entry, NodeId};

/// Facts about the log and the cluster that are no records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    /// Index of the last applied entry.
    pub(crate) applied: u64,
    /// Time of the last entry that was carried out, milliseconds since 1970.
    pub(crate) stamp_ms: u64,
    /// Id of the cluster; None until it is formed.
    pub(crate) cluster: Option<ClusterId>,
    /// Highest id that a node ever got.
    last_node: u64,
    /// Highest wire version that an applied command needed.
    pub(crate) wire_used: u16,
    /// Clock of each region.
    pub(crate) clocks: BTreeMap<RegionName, RegionClock>,
    /// Disks of removed nodes by a running number, oldest first.
    retired: BTreeMap<u64, DiskId>,
    /// True if only members may propose, and only members with the right operators' orders.
    pub(crate) is_enforced: bool,
}

impl Ledger {
    /// Moves the clock of the proposer's region by the entry's stamp.
    pub(crate) fn advance_region(&mut self, entry: &Entry) {
        if let Some(clock) = self.clocks.get_mut(&entry.proposer.region) {
            clock.advance(entry.stamp_ms);
        }
    }

    /// Returns an id that no node ever had.
    pub(crate) fn next_node(&mut self) -> NodeId {
        self.last_node += 1;
        NodeId(self.last_node)
    }

    /// Remembers the disk of a removed node; forgets the oldest if there are too many.
    pub(crate) fn retire(&mut self, disk: DiskId) {
        // Counted on from the newest: the oldest ones may be gone, so the length is no free number.
        let number = self.retired.last_key_value().map_or(0, |(last, _)| last + 1);
        self.retired.insert(number, disk);
        if self.retired.len() > RETIRED_DISKS_MAX {
            self.retired.pop_first();
        }
    }

    pub(crate) fn is_retired(&self, disk: DiskId) -> bool {
        self.retired.values().any(|retired| *retired == disk)
    }
}
