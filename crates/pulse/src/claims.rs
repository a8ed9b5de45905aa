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
    /// Takes over what this node has to do now. Replicas that are gone lose their claims.
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
                claim.set(limit, (load.in_flight, load.wanted), now);
                self.claims.insert(id, claim);
            }
        }
    }

    /// Goes on with all of them; whether what may be used changed. `rivals` says what the others
    /// hold of a replica, and `place` where this node's name comes among theirs.
    pub(crate) fn settle(
        &mut self,
        (place, now): (usize, Instant),
        rivals: impl Fn(NameId) -> Vec<Rival>,
    ) -> bool {
        self.change(|id, claim| claim.settle(&rivals(id), place, now))
    }

    /// Claims nothing any more, for now.
    pub(crate) fn suspend(&mut self) -> bool {
        self.change(|_, claim| claim.suspend())
    }

    /// The report tells what stands in `entry` since `version`, or before.
    pub(crate) fn told(&mut self, id: NameId, entry: ClaimEntry, version: u64) {
        if let Some(claim) = self.claims.get_mut(&id) {
            claim.told(entry, version);
        }
    }

    /// How many requests may be in flight; `None` without a limit.
    pub(crate) fn usable(&self, id: NameId) -> Option<u32> {
        self.claims.get(&id).map(Claim::usable)
    }

    /// All of them as they are told.
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
