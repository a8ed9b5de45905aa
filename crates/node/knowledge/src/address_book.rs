//! Replicas by their identity on the data path, by name, and by their number on the wire.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_gossip::NameId;
use spillway_prefix::FineIndex;
use spillway_route::Candidate;
use spillway_types::{Holder, ReplicaName};
use spillway_view::Replica;

/// Time after which a replica that is in no config, discovery or registration is forgotten. Longer
/// than a rolling update takes to bring it back under its name.
const ABSENT_MAX: Duration = Duration::from_secs(600);

/// Replica that was seen lately.
#[derive(Clone, Debug)]
pub(super) struct KnownAddress {
    pub(super) name: ReplicaName,
    pub(super) id: NameId,
    /// Number in the index; `None` if the index has none left.
    pub(super) holder: Option<Holder>,
    /// Time since when the replica is in none of the lists; `None` while it is in one.
    absent_since: Option<Instant>,
}

/// All replicas that were seen lately.
#[derive(Debug, Default)]
pub(super) struct AddressBook {
    by_identity: BTreeMap<u64, KnownAddress>,
    identities: BTreeMap<NameId, u64>,
}

impl AddressBook {
    /// Takes over the list of all replicas, and gives each its number in the index. Returns the
    /// replicas that are forgotten.
    pub(super) fn reconcile(
        &mut self,
        replicas: &[Arc<Replica>],
        index: &mut FineIndex,
        now: Instant,
    ) -> Vec<KnownAddress> {
        // All are taken for absent until the list below names them.
        for known in self.by_identity.values_mut() {
            known.absent_since = known.absent_since.or(Some(now));
        }
        for replica in replicas {
            let name = &replica.spec().name;
            let identity = Candidate::identity_of(name);
            let known = self.by_identity.entry(identity).or_insert_with(|| KnownAddress {
                name: name.clone(),
                id: NameId::of_replica(name),
                holder: index.holder(identity),
                absent_since: None,
            });
            known.absent_since = None;
            self.identities.insert(known.id, identity);
            replica.set_holder(known.holder);
        }
        self.forget(now)
    }

    /// Forgets replicas that were absent for too long, and returns them.
    pub(super) fn forget(&mut self, now: Instant) -> Vec<KnownAddress> {
        let is_gone = |known: &KnownAddress| {
            known.absent_since.is_some_and(|at| now.saturating_duration_since(at) >= ABSENT_MAX)
        };
        let gone: Vec<KnownAddress> =
            self.by_identity.extract_if(.., |_, known| is_gone(known)).map(|(_, it)| it).collect();
        for known in &gone {
            self.identities.remove(&known.id);
        }
        gone
    }

    /// Returns the replica of an identity on the data path.
    pub(super) fn of_identity(&self, identity: u64) -> Option<&KnownAddress> {
        self.by_identity.get(&identity)
    }

    /// Returns the replica of a number from another node.
    pub(super) fn of_id(&self, id: NameId) -> Option<&KnownAddress> {
        self.by_identity.get(self.identities.get(&id)?)
    }

    /// Returns the names of all replicas.
    pub(super) fn names(&self) -> impl Iterator<Item = &ReplicaName> {
        self.by_identity.values().map(|known| &known.name)
    }

    /// Returns the replica of that name.
    pub(super) fn of_name(&self, name: &ReplicaName) -> Option<&KnownAddress> {
        self.by_identity.get(&Candidate::identity_of(name))
    }
}
