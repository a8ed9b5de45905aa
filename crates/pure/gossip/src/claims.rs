//! All claims of one node.

use std::collections::BTreeMap;
use std::time::Instant;

use spillway_types::ReplicaName;

use crate::claim::{Claim, Rival};
use crate::entry::ClaimEntry;
use crate::name_id::NameId;
use crate::own_load::ReplicaLoad;

/// The claims of this node, one for each replica that has a limit.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claims: BTreeMap<NameId, Claim>,
}

impl Claims {
    /// Takes over the load of this node. Replicas that are gone lose their claims.
    pub(crate) fn set<'a>(
        &mut self,
        replicas: impl Iterator<Item = (&'a ReplicaName, &'a ReplicaLoad)>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.claims);
        for (name, load) in replicas {
            if let Some(limit) = load.limit {
                let id = NameId::of_replica(name);
                let mut claim = before.remove(&id).unwrap_or_else(Claim::new);
                claim.set(limit, load.in_flight, load.wanted, now);
                self.claims.insert(id, claim);
            }
        }
    }

    /// Goes on with every claim. Returns true if the number of usable requests changed. `rivals`
    /// returns what other nodes hold of a replica, and `slot` is this node's slot among their
    /// names.
    pub(crate) fn settle(
        &mut self,
        place: usize,
        now: Instant,
        rivals: impl Fn(NameId) -> Vec<Rival>,
    ) -> bool {
        self.change(|id, claim| claim.settle(&rivals(id), place, now))
    }

    /// Gives all claims up for now. Returns true if the number of usable requests changed.
    pub(crate) fn suspend(&mut self) -> bool {
        self.change(|_, claim| claim.suspend())
    }

    /// Notes that the report has contained `entry` since `version`, or before.
    pub(crate) fn sent(&mut self, id: NameId, entry: ClaimEntry, version: u64) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.sent(entry, version);
        }
    }

    /// Returns how many requests may be in flight; `None` without a limit.
    pub(crate) fn usable(&self, id: NameId) -> Option<u32> {
        self.claims.get(&id).map(Claim::usable)
    }

    /// Returns all claims in the form used in reports.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (NameId, ClaimEntry)> {
        self.claims.iter().map(|(id, claim)| (*id, claim.entry()))
    }

    fn change(&mut self, mut change: impl FnMut(NameId, &mut Claim)) -> bool {
        let mut changed = false;
        for (id, claim) in &mut self.claims {
            let before = claim.usable();
            change(*id, claim);
            changed |= claim.usable() != before;
        }
        changed
    }
}
