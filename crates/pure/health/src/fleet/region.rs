//! Inputs of the fleet from beyond this node: votes of the region's other nodes, and replicas that
//! were registered again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use spillway_types::ReplicaName;

use super::Fleet;
use crate::PeerReports;

impl Fleet {
    /// Takes in the votes of the region's other nodes about its replicas. They hold until the next
    /// call; a replica missing from `said` has no votes.
    pub fn handle_peer_reports(&mut self, now: Instant, said: &BTreeMap<ReplicaName, PeerReports>) {
        let names: Vec<ReplicaName> = self.members.keys().cloned().collect();
        for name in names {
            let others = said.get(&name).copied().unwrap_or_default();
            self.feed(now, &name, |member, _, _| member.on_peer_reports(others));
        }
    }

    /// Forgets the replicas `names`: others of the same names replace them and start new with the
    /// next [`Self::reconcile`].
    pub fn forget(&mut self, names: &BTreeSet<ReplicaName>) {
        let before = self.members.len();
        self.members.retain(|name, _| !names.contains(name));
        self.version += u64::from(self.members.len() != before);
    }
}
