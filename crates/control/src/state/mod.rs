//! The state and how entries change it.

mod apply;
mod audit;
mod beside;
mod clock;
mod cluster_clock;
mod digest;
mod dry_run;
mod ledger;
mod moment;
mod requests;
mod residences;
mod snapshot;
mod table;
mod turn;

use spillway_prefix::HotTrie;
use spillway_quota::{Book, Shares};
use spillway_types::{NodeName, RegionName};

use crate::limits::CLOCK_DRIFT_MS;
use crate::rules::{book, members};
use crate::wire::{WIRE_HOT, WIRE_MEMBERS, WIRE_RESIDENCY, WIRE_SHARES};
use crate::{
    ClusterId, DiskId, Entry, KEY_EPOCH, Node, NodeId, Record, RecordKey, Records, Refusal,
    Setting, SettingRule, WIRE,
};

pub use audit::{AuditRecord, AuditRing};
pub use digest::Digest;
pub use dry_run::dry_run;
#[cfg(any(test, fuzzing))]
pub(crate) use snapshot::Layout;
pub use snapshot::SnapshotError;
pub use table::{Row, Table};

pub(crate) use audit::Audit;
pub(crate) use beside::Beside;
pub(crate) use clock::RegionClock;
pub(crate) use cluster_clock::ClusterClock;
pub(crate) use ledger::Ledger;
pub(crate) use requests::Requests;
pub(crate) use residences::Residences;
pub(crate) use table::Valued;
pub(crate) use turn::{Done, Turn, proposing_node};

/// All that the nodes agree on. Cheap to read, a few milliseconds to clone at 10,000 records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    records: Records,
    ledger: Ledger,
    requests: Requests,
    audit: Audit,
    hot: HotTrie,
    shares: Shares,
    clock: ClusterClock,
}

impl State {
    /// The state before the first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All records.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The record of that name, with its version.
    #[must_use]
    pub fn record(&self, key: &RecordKey) -> Option<Record> {
        self.records.record(key)
    }

    /// The cluster's id, once it is formed.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.ledger.cluster
    }

    /// Index of the last entry that was applied; 0 before the first.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.ledger.applied
    }

    /// The time of the last entry that was carried out, by the cluster's clock, milliseconds since
    /// 1970; 0 before the first entry. No single node's clock moves it by more than 2 minutes.
    #[must_use]
    pub fn stamp_ms(&self) -> u64 {
        self.ledger.stamp_ms
    }

    /// Whether the node of that name, whose wall clock says `now_ms`, should propose something so
    /// that the cluster's clock goes on: nobody else did for a while, or the clock is wrong. Nodes
    /// have different patience, so that not all of them do it at once.
    #[must_use]
    pub fn is_time_due(&self, name: &NodeName, now_ms: u64) -> bool {
        let Some((id, _)) = self.node(name).filter(|_| self.is_guarded()) else { return false };
        let patience_ms = CLOCK_DRIFT_MS + id.0 % 20 * 1_000;
        if self.clock.confirmed_ms().abs_diff(now_ms) < patience_ms {
            return false;
        }
        let is_alone = self.records.nodes.len() == 1;
        let said_ms = self.clock.said_ms(id);
        is_alone || said_ms.is_none_or(|said_ms| said_ms.abs_diff(now_ms) >= patience_ms)
    }

    /// The region's own time, by which leases and transitions are measured. It moves only by the
    /// stamps of entries of the region's nodes, at most 5 s an entry and never back, so no two
    /// regions' clocks are compared, and a clock that jumps ends no lease that is kept.
    #[must_use]
    pub fn region_clock_ms(&self, region: &RegionName) -> Option<u64> {
        self.ledger.clocks.get(region).map(|clock| clock.now_ms())
    }

    /// The node of that name.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<(NodeId, &Node)> {
        node_named(&self.records, name)
    }

    /// Whether that disk was one of a node that was removed: it never belongs to a member again.
    #[must_use]
    pub fn is_retired(&self, disk: DiskId) -> bool {
        self.ledger.is_retired(disk)
    }

    /// Whether only members may propose anything, and only nodes with that right operators' orders.
    /// So it is from [`crate::Command::EnforceMembership`] on.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.ledger.is_enforced
    }

    /// Whether a node may propose operators' orders.
    #[must_use]
    pub fn may_order(&self, name: &NodeName) -> bool {
        !self.ledger.is_enforced || members::is_operator(&self.records, name)
    }

    /// Whether a node has said that it is an edge node, and no operator trusts it with more.
    #[must_use]
    pub fn is_edge(&self, node: NodeId) -> bool {
        let right = self.records.node_rights.get(&node);
        right.is_some_and(|right| right.is_edge && !right.is_operator)
    }

    /// Whether the entry's proposer may propose it, whatever else is wrong with it.
    ///
    /// # Errors
    /// [`crate::RefusalCode::NotPermitted`], with the nodes that may.
    pub fn check_proposer(&self, entry: &Entry) -> Result<(), Refusal> {
        members::admit(&self.records, &self.ledger, entry)
    }

    /// Whether it is decided whether operators' orders may come from a node.
    #[must_use]
    pub fn is_decided(&self, node: NodeId) -> bool {
        self.records.node_rights.get(&node).is_some()
    }

    /// Whether a node of that name was removed, and none was taken in since.
    #[must_use]
    pub fn is_removed(&self, name: &NodeName) -> bool {
        self.records.removed_nodes.get(name).is_some() && self.node(name).is_none()
    }

    /// What operators did, oldest first.
    #[must_use]
    pub fn operator_audit(&self) -> &AuditRing {
        &self.audit.operators
    }

    /// What nodes did by themselves, oldest first.
    #[must_use]
    pub fn system_audit(&self) -> &AuditRing {
        &self.audit.system
    }

    /// Which blocks of prompts are hot in which region.
    #[must_use]
    pub fn hot(&self) -> &HotTrie {
        &self.hot
    }

    /// Who holds what of limits.
    #[must_use]
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// How limits should be divided, for a node of `region`.
    #[must_use]
    pub fn limit_book(&self, region: &RegionName) -> Book {
        book(&self.records, region)
    }

    /// Which key prompts are hashed with: the number of the setting [`KEY_EPOCH`].
    #[must_use]
    pub fn key_epoch(&self) -> u64 {
        key_epoch(&self.records)
    }

    /// The value of a setting: what an operator put, or its default. None if there is no such
    /// setting.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&str> {
        setting(&self.records, name)
    }

    /// The oldest program's wire version among all nodes; this program's if there is none.
    #[must_use]
    pub fn wire_oldest(&self) -> u16 {
        wire_oldest(&self.records)
    }

    /// Whether nodes of wire version 1 can hold all that is in it: nothing newer took part.
    fn is_wire_1(&self) -> bool {
        self.ledger.wire_used < WIRE_HOT && self.hot.is_empty() && self.shares.is_empty()
    }

    /// The same for wire version 2.
    fn is_wire_2(&self) -> bool {
        self.ledger.wire_used < WIRE_SHARES && self.shares.is_empty()
    }

    /// The same for wire version 3.
    fn is_wire_3(&self) -> bool {
        self.ledger.wire_used < WIRE_RESIDENCY
    }

    /// The same for wire version 4.
    fn is_wire_4(&self) -> bool {
        self.ledger.wire_used < WIRE_MEMBERS
    }
}

pub(crate) fn node_named<'a>(records: &'a Records, name: &NodeName) -> Option<(NodeId, &'a Node)> {
    let mut nodes = records.nodes.iter();
    nodes.find(|(_, node)| node.spec.name == *name).map(|(id, node)| (*id, node))
}

/// See [`State::wire_oldest`].
pub(crate) fn wire_oldest(records: &Records) -> u16 {
    let versions = records.nodes.iter().map(|(_, node)| node.spec.wire_newest);
    versions.min().unwrap_or(WIRE)
}

/// A setting is a number within its bounds; its rule has seen to that.
pub(crate) fn key_epoch(records: &Records) -> u64 {
    setting(records, KEY_EPOCH).and_then(|value| value.parse().ok()).unwrap_or(0)
}

pub(crate) fn setting<'a>(records: &'a Records, name: &str) -> Option<&'a str> {
    let set = records.settings.get_by(name).map(|Setting(value)| value.as_str());
    set.or_else(|| SettingRule::find(name).map(|rule| rule.default))
}
