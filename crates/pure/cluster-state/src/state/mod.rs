//! The state and how entries change it.

mod admits;
mod apply;
mod audit;
mod clock;
mod cluster_clock;
mod digest;
mod dry_run;
mod ledger;
mod moment;
mod requests;
mod snapshot;
mod table;
mod turn;
#[cfg(test)]
mod version_test;

use spillway_prefix::HotTrie;
use spillway_rate_limit::{AgreedLimits, Shares};
use spillway_types::{NodeName, RegionName};

use crate::limits::CLOCK_DRIFT_MS;
use crate::records::lookup;
use crate::rules::{agreed_limits, members};
use crate::{ClusterId, CommandError, DiskId, Entry, Node, NodeId, Record, RecordKey, Records};

pub use admits::admits;
pub use audit::{AuditRecord, AuditRing};
pub use digest::Digest;
pub use dry_run::dry_run;
#[cfg(any(test, fuzzing))]
pub(crate) use snapshot::Layout;
pub use snapshot::SnapshotError;
pub use table::{Row, Table};

pub(crate) use audit::Audit;
pub(crate) use clock::RegionClock;
pub(crate) use cluster_clock::ClusterClock;
pub(crate) use ledger::Ledger;
pub(crate) use requests::Requests;
pub(crate) use turn::{Done, Turn, proposing_node};

/// The state that all nodes agree on. Cheap to read; a clone takes a few milliseconds at 10,000
/// records.
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
    /// Returns the state before the first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all records.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Returns the record with this key and its version; None if it does not exist.
    #[must_use]
    pub fn record(&self, key: &RecordKey) -> Option<Record> {
        self.records.record(key)
    }

    /// Returns the cluster's id; None until the cluster is formed.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        self.ledger.cluster
    }

    /// Returns the index of the last applied entry; 0 before the first.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.ledger.applied
    }

    /// Returns the time of the last entry that was carried out, by the cluster's clock,
    /// milliseconds since 1970; 0 before the first entry. Among several nodes, no single node's
    /// clock moves it by more than 2 minutes.
    #[must_use]
    pub fn stamp_ms(&self) -> u64 {
        self.ledger.stamp_ms
    }

    /// Returns true if the node `name`, whose wall clock shows `now_ms`, should propose something
    /// so that the cluster's clock advances: no node did for a while, or the clock is wrong. The
    /// wait is 20 to 39 s, depending on the node, so that not all nodes propose at once.
    #[must_use]
    pub fn is_time_due(&self, name: &NodeName, now_ms: u64) -> bool {
        let Some((id, _)) = self.node(name) else { return false };
        let patience_ms = CLOCK_DRIFT_MS + id.0 % 20 * 1_000;
        if self.clock.confirmed_ms().abs_diff(now_ms) < patience_ms {
            return false;
        }
        // A node that has just stamped an entry waits for other members to confirm the time.
        let is_alone = self.records.nodes.len() == 1;
        let said_ms = self.clock.said_ms(id);
        is_alone || said_ms.is_none_or(|said_ms| said_ms.abs_diff(now_ms) >= patience_ms)
    }

    /// Returns the region's own time in milliseconds, by which leases and transitions are measured;
    /// None for an unknown region. It moves only by the stamps of the region's nodes, at most 5 s
    /// an entry and never back. So clocks of two regions are never compared, and a clock that jumps
    /// ends no lease that is kept.
    #[must_use]
    pub fn region_clock_ms(&self, region: &RegionName) -> Option<u64> {
        self.ledger.clocks.get(region).map(|clock| clock.now_ms())
    }

    /// Returns the node of this name; None if no member has it.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<(NodeId, &Node)> {
        lookup::node_named(&self.records, name)
    }

    /// Returns true if `disk` was a removed node's. Such a disk never belongs to a member again.
    #[must_use]
    pub fn is_retired(&self, disk: DiskId) -> bool {
        self.ledger.is_retired(disk)
    }

    /// Returns true if membership is enforced, from [`crate::Command::EnforceMembership`] on: only
    /// members may propose, and only members with the right operators' orders.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.ledger.is_enforced
    }

    /// Returns true if the node may propose operators' orders. Until membership is enforced, every
    /// node may.
    #[must_use]
    pub fn may_order(&self, name: &NodeName) -> bool {
        !self.ledger.is_enforced || members::is_operator(&self.records, name)
    }

    /// Returns true if the node has declared itself an edge node and may not propose operators'
    /// orders.
    #[must_use]
    pub fn is_edge(&self, node: NodeId) -> bool {
        let right = self.records.node_rights.get(&node);
        right.is_some_and(|right| right.is_edge && !right.is_operator)
    }

    /// Checks that the entry's proposer may propose the entry, and nothing else about the entry.
    ///
    /// # Errors
    /// Returns [`crate::RefusalCode::NotPermitted`]; the remedy names nodes that may give
    /// operators' orders.
    pub fn check_proposer(&self, entry: &Entry) -> Result<(), CommandError> {
        members::admit(&self.records, &self.ledger, entry)
    }

    /// Returns true if there is a decision, for or against, on operators' orders from the node.
    #[must_use]
    pub fn is_decided(&self, node: NodeId) -> bool {
        self.records.node_rights.get(&node).is_some()
    }

    /// Returns true if a node of this name was removed and is no member again.
    #[must_use]
    pub fn is_removed(&self, name: &NodeName) -> bool {
        self.records.removed_nodes.get(name).is_some() && self.node(name).is_none()
    }

    /// Returns the audit records of operators, oldest first.
    #[must_use]
    pub fn operator_audit(&self) -> &AuditRing {
        &self.audit.operators
    }

    /// Returns the audit records of nodes, oldest first.
    #[must_use]
    pub fn system_audit(&self) -> &AuditRing {
        &self.audit.system
    }

    /// Returns the trie of hot blocks of prompts, by region.
    #[must_use]
    pub fn hot(&self) -> &HotTrie {
        &self.hot
    }

    /// Returns the leases of processes on shares of limits.
    #[must_use]
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Returns the terms of all limits and the nodes that share them, for a node of `region`.
    #[must_use]
    pub fn agreed_limits(&self, region: &RegionName) -> AgreedLimits {
        agreed_limits(&self.records, region)
    }

    /// Returns the number of the key for hashing prompts, the setting [`crate::KEY_EPOCH`].
    #[must_use]
    pub fn key_epoch(&self) -> u64 {
        lookup::key_epoch(&self.records)
    }

    /// Returns the value of a setting, or its default if no operator has set one; None if there is
    /// no such setting.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&str> {
        lookup::setting(&self.records, name)
    }

    /// Returns the lowest of all nodes' newest wire versions; this program's if there are no nodes.
    #[must_use]
    pub fn wire_oldest(&self) -> u16 {
        lookup::wire_oldest(&self.records)
    }
}
