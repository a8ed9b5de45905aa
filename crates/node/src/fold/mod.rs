//! What the cluster agreed on and what this node's config says become what requests are served by.
//!
//! Pure: [`fold`] takes both and gives routes, names and replicas, and what there is to tell about
//! them. The cluster wins where both name the same thing: all nodes agreed on it, and a file is one
//! node's. What can't be used here is left out by itself, and the config's stands in its place.

mod agreed_world;
mod names;
mod notes;
mod registered;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_proxy::{NameSpec, RouteSpec};
use spillway_types::{ModelName, ReplicaName};

pub(crate) use agreed_world::{AgreedReplica, AgreedWorld, is_registered};
pub(crate) use notes::{Kind, NoteCounts, Notes, Use};
pub(crate) use registered::Registered;

use crate::config::{DiscoveryConfig, WorldConfig};
use crate::keeper::ReplicaConfig;

/// What requests are served by, besides how replicas are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    /// Every route, those of the cluster first.
    pub(crate) routes: Vec<RouteSpec>,
    /// What clients may ask for beyond the models that replicas serve.
    pub(crate) names: Arc<NameSpec>,
    /// Every replica: of the config, found, and registered.
    pub(crate) replicas: Vec<ReplicaConfig>,
    /// Weights that operators gave replicas.
    pub(crate) weights: BTreeMap<ReplicaName, u32>,
    /// Models that this region is to serve, as far as its replicas do not say so themselves.
    pub(crate) models: BTreeSet<ModelName>,
    /// Models of replicas of other regions, by the cluster's records.
    pub(crate) models_agreed: BTreeSet<ModelName>,
    /// What became of each thing of the cluster.
    pub(crate) notes: Notes,
}

/// Puts the config's world, what discoveries found and what the cluster agreed on together.
/// `registered` remembers what was made of registrations.
pub(crate) fn fold(
    world: &WorldConfig,
    found: impl Iterator<Item = ReplicaConfig>,
    agreed: &AgreedWorld,
    registered: &mut Registered,
) -> Folded {
    let mut notes = Notes::default();
    let local = unique(world.replicas.iter().cloned().chain(found));
    let names: BTreeSet<&ReplicaName> = local.iter().map(|config| &config.spec.name).collect();
    let joined = registered.configs(agreed, &names, &world.defaults, &mut notes);
    let replicas: Vec<ReplicaConfig> = local.into_iter().chain(joined).collect();
    let expected = world.discoveries.iter().flat_map(DiscoveryConfig::pools);
    let present = replicas.iter().map(|config| config.spec.pool.as_str());
    let pools = expected.chain(present).collect();
    let weights = agreed.replicas.iter().filter_map(|(name, replica)| {
        let weight = replica.weight?;
        Some((name.clone(), weight))
    });
    Folded {
        routes: routes::fold(world, agreed, &pools, &mut notes),
        names: Arc::new(names::fold(&world.names, agreed, &mut notes)),
        weights: weights.collect(),
        models: world.discoveries.iter().flat_map(DiscoveryConfig::models_expected).collect(),
        models_agreed: agreed.models_served.clone(),
        replicas,
        notes,
    }
}

/// The first of each name.
fn unique(configs: impl Iterator<Item = ReplicaConfig>) -> Vec<ReplicaConfig> {
    let mut names = BTreeSet::new();
    let mut configs: Vec<_> = configs.collect();
    configs.retain(|config| {
        let is_first = names.insert(config.spec.name.clone());
        if !is_first {
            tracing::warn!(replica = %config.spec.name, "left out: the name is taken");
        }
        is_first
    });
    configs
}

#[cfg(test)]
#[path = "fold_test.rs"]
mod fold_test;
