//! What comes from beyond this node: the word of the region's others, and replicas made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use spillway_types::ReplicaName;

use super::Fleet;
use crate::Witnesses;

impl Fleet {
    /// Takes in what the region's other nodes say about its replicas. It holds until the next call;
    /// of a replica that is left out nobody says anything.
    pub fn handle_witnesses(&mut self, now: Instant, said: &BTreeMap<ReplicaName, Witnesses>) {
        let names: Vec<ReplicaName> = self.members.keys().cloned().collect();
        for name in names {
            let others = said.get(&name).copied().unwrap_or_default();
            self.feed(now, &name, |member, _, _| member.on_witnesses(others));
        }
    }

    /// Forgets all that is known of these: they are others of the same names, and begin as such
    /// with the next [`Self::reconcile`].
    pub fn forget(&mut self, names: &BTreeSet<ReplicaName>) {
        let before = self.members.len();
        self.members.retain(|name, _| !names.contains(name));
        self.version += u64::from(self.members.len() != before);
    }
}
