//! Applies the agreed state to this node's replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spillway_cluster_state::registrable;
use spillway_config::{Concurrency, ReplicaConfig};
use spillway_health::{DrainReason, Order, PeerReports};
use spillway_knowledge::KnowledgeEvent;
use spillway_types::ReplicaName;
use spillway_view::ReplicaSpec;

use super::Keeper;
use crate::fold::{AgreedWorld, Registered, Use};

/// Time limit for a replica that the cluster drains to finish its requests.
const DRAIN_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The agreed state, and what the keeper has done about it.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    pub(super) world: AgreedWorld,
    pub(super) registered: Registered,
    /// Replicas that were drained because the cluster says so.
    drained: BTreeSet<ReplicaName>,
}

impl Agreed {
    /// Returns true if the replica is drained by the cluster.
    pub(super) fn drains(&self, name: &ReplicaName) -> bool {
        self.drained.contains(name)
    }
}

impl Keeper {
    /// Applies the agreed state. At the start of a node, the replicas in it are presumed ready, as
    /// those of its config are.
    pub(super) async fn take_agreed(&mut self, world: AgreedWorld) {
        if self.agreed.world == world {
            return;
        }
        let before = std::mem::replace(&mut self.agreed.world, world);
        self.lapsed.note(&before, &self.agreed.world, Instant::now());
        let renewed = self.renewed(&before);
        self.fleet.forget(&renewed);
        for name in &renewed {
            // The connections lead to a server that no longer exists.
            self.replicas.remove(name);
            self.agreed.drained.remove(name);
            self.knowledge.tell(KnowledgeEvent::Emptied(name.clone()));
            self.identities.identify_again(name);
        }
        if let Err(error) = self.take_world(self.is_starting).await {
            tracing::error!(%error, "the cluster's records can't be used");
        }
    }

    /// Takes in reports of the region's other nodes about its replicas.
    pub(super) fn take_peer_reports(&mut self, said: &BTreeMap<ReplicaName, PeerReports>) {
        self.fleet.handle_peer_reports(Instant::now(), said);
    }

    /// Returns the replicas of this node's config or discoveries, for the report to the cluster.
    pub(super) fn own_replicas(&self) -> Vec<ReplicaSpec> {
        let is_own = |name: &ReplicaName| !self.agreed.registered.is_used(name);
        let told = |config: &ReplicaConfig| {
            let mut spec = config.spec.clone();
            if config.needs_models() {
                spec.models = registrable(spec.models).into_iter().collect();
            }
            match config.care.concurrency {
                Concurrency::Fixed => spec,
                // No limit is configured: other nodes have to find one out as well.
                Concurrency::Adaptive | Concurrency::Unlimited => {
                    ReplicaSpec { in_flight_max: u32::MAX, ..spec }
                }
            }
        };
        let own = self.folded.replicas.iter().filter(|config| is_own(&config.spec.name));
        // A replica whose models are yet to be found out is reported once they are known.
        own.map(told).filter(|spec| !spec.models.is_empty()).collect()
    }

    /// Drains and resumes replicas as the cluster says, each once: in between, an operator of this
    /// node or a notice may have ordered otherwise.
    pub(super) fn follow_orders(&mut self) {
        let Self { fleet, agreed, .. } = self;
        // A replica that left and came back is another one, without orders yet.
        agreed.drained.retain(|name| fleet.contains(name));
        let known = agreed.world.replicas.iter().filter(|(name, _)| fleet.contains(name));
        let wanted: BTreeSet<ReplicaName> =
            known.filter(|(_, it)| !it.is_active).map(|(name, _)| name.clone()).collect();
        let drain = Order::Drain { limit: DRAIN_LIMIT, why: DrainReason::Operator };
        let new = wanted.difference(&agreed.drained).map(|name| (name.clone(), drain));
        let old = agreed.drained.difference(&wanted).map(|name| (name.clone(), Order::Resume));
        let orders: Vec<(ReplicaName, Order)> = new.chain(old).collect();
        agreed.drained = wanted;
        for (name, order) in orders {
            if let Err(unknown) = self.order(&name, order) {
                tracing::debug!(%unknown, "the cluster orders a replica that left");
            }
        }
    }

    /// Logs each new note on the use of agreed items.
    pub(super) fn tell_notes(&self, before: &crate::fold::Notes) {
        for (kind, name, note) in self.folded.notes.news(before) {
            let (kind, why) = (kind.as_str(), note.text.as_str());
            match note.outcome {
                Use::Unusable => {
                    tracing::warn!(name, why, "the cluster's {kind} can't be used here");
                }
                Use::InPart => tracing::warn!(name, why, "the cluster's {kind} is used in part"),
                Use::Hides => {
                    tracing::info!(name, "the cluster's {kind} takes the place of the config's");
                }
                Use::Used => {}
            }
        }
        self.figures.note_agreed(self.folded.notes.counts());
    }

    /// Returns the replicas that were registered again since `before`.
    fn renewed(&self, before: &AgreedWorld) -> BTreeSet<ReplicaName> {
        let is_renewed = |name: &ReplicaName, epoch: u64| {
            before.replicas.get(name).is_some_and(|known| known.epoch != epoch)
        };
        let registered =
            self.agreed.world.replicas.iter().filter(|(_, it)| it.registered.is_some());
        registered
            .filter(|(name, it)| is_renewed(name, it.epoch))
            .map(|(name, _)| name.clone())
            .collect()
    }
}
