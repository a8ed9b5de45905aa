//! Merges the agreed state with this node's config into the routes, names and replicas that
//! requests are served by.
//!
//! Pure: [`fold`] takes both and returns routes, names and replicas, and notes about them. The
//! cluster wins where both name one thing: all nodes agreed on it, while a file belongs to one
//! node. Only the item that can't be used here is left out, and the config's item replaces it.

mod agreed_world;
mod names;
mod notes;
mod registered;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_config::{DiscoveryConfig, ReplicaConfig, WorldConfig};
use spillway_types::{ModelName, ReplicaName};
use spillway_view::{NameSpec, RouteSpec};

pub(crate) use agreed_world::{AgreedReplica, AgreedWorld, is_registered};
pub(crate) use notes::{Kind, NoteCounts, Notes, Use};
pub(crate) use registered::Registered;

/// Routes, names and replicas that requests are served by, without the health of replicas.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folded {
    /// All routes, those of the cluster first.
    pub(crate) routes: Vec<RouteSpec>,
    /// Names that clients may ask for beyond the models that replicas serve.
    pub(crate) names: Arc<NameSpec>,
    /// All replicas: of the config, discovered, and registered.
    pub(crate) replicas: Vec<ReplicaConfig>,
    /// Weights that operators gave replicas.
    pub(crate) weights: BTreeMap<ReplicaName, u32>,
    /// Models that this region is to serve, in addition to those of its replicas.
    pub(crate) models: BTreeSet<ModelName>,
    /// Models of replicas of other regions, by the agreed state.
    pub(crate) models_agreed: BTreeSet<ModelName>,
    /// Uses of each agreed item.
    pub(crate) notes: Notes,
}

/// Merges the config, the discovered replicas and the agreed state. `registered` caches the configs
/// made of registrations.
pub(crate) fn fold(
    world: &WorldConfig,
    found: impl Iterator<Item = ReplicaConfig>,
    agreed: &AgreedWorld,
    registered: &mut Registered,
) -> Folded {
    let mut notes = Notes::default();
    // The config comes first: of two replicas with one name, the config's stays.
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

/// Keeps the first replica of each name.
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
