//! What the cluster agreed on, carried out at this node's replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use spillway_control::registrable;
use spillway_health::{DrainReason, Order, Witnesses};
use spillway_proxy::ReplicaSpec;
use spillway_types::ReplicaName;

use super::{Concurrency, Keeper, ReplicaConfig};
use crate::fold::{AgreedWorld, Registered, Use};
use crate::knowledge::Event;

/// How long a replica that the cluster drains may take to finish what it has.
const DRAIN_LIMIT: Duration = Duration::from_secs(30 * 60);

/// What the cluster said, and what was done about it.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    pub(super) world: AgreedWorld,
    pub(super) registered: Registered,
    /// Replicas that were drained because the cluster says so.
    drained: BTreeSet<ReplicaName>,
}

impl Agreed {
    /// Whether the cluster says that a replica is to get nothing more.
    pub(super) fn drains(&self, name: &ReplicaName) -> bool {
        self.drained.contains(name)
    }
}

impl Keeper {
    /// Goes by what the cluster agreed on. At the start of a node, replicas that it knows from there
    /// are presumed ready as those of its config are.
    pub(super) async fn take_agreed(&mut self, world: AgreedWorld) {
        if self.agreed.world == world {
            return;
        }
        let before = std::mem::replace(&mut self.agreed.world, world);
        self.lapsed.note(&before, &self.agreed.world, Instant::now());
        let renewed = self.renewed(&before);
        self.fleet.forget(&renewed);
        for name in &renewed {
            // Its connections lead to a server that is no more.
            self.replicas.remove(name);
            self.agreed.drained.remove(name);
            self.knowledge.tell(Event::Emptied(name.clone()));
            self.identities.identify_again(name);
        }
        if let Err(error) = self.take_world(self.is_starting).await {
            tracing::error!(%error, "what the cluster agreed on can't be used");
        }
    }

    /// Takes in what the region's other nodes say of its replicas.
    pub(super) fn take_witnesses(&mut self, said: &BTreeMap<ReplicaName, Witnesses>) {
        self.fleet.handle_witnesses(Instant::now(), said);
    }

    /// The replicas that this node's config or discoveries have, which the cluster is told of.
    pub(super) fn own_replicas(&self) -> Vec<ReplicaSpec> {
        let is_own = |name: &ReplicaName| !self.agreed.registered.is_used(name);
        let told = |config: &ReplicaConfig| {
            let mut spec = config.spec.clone();
            if config.settings.needs_models {
                spec.models = registrable(spec.models).into_iter().collect();
            }
            match config.care.concurrency {
                Concurrency::Fixed => spec,
                // Nobody said how many: others are to find it out as well.
                Concurrency::Adaptive | Concurrency::Unlimited => {
                    ReplicaSpec { in_flight_max: u32::MAX, ..spec }
                }
            }
        };
        let own = self.folded.replicas.iter().filter(|config| is_own(&config.spec.name));
        // What is yet to be found out is told once it is known.
        own.map(told).filter(|spec| !spec.models.is_empty()).collect()
    }

    /// Drains and resumes what the cluster says, each once: in between the node's own operator, or
    /// a notice, may have said otherwise.
    pub(super) fn follow_orders(&mut self) {
        let Self { fleet, agreed, .. } = self;
        // One that left and came back is another, of which nothing was ordered yet.
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

    /// Tells what became of what the cluster agreed on, once each.
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
        self.feedback.note_agreed(self.folded.notes.counts());
    }

    /// Registered replicas that were registered anew since `before`.
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
