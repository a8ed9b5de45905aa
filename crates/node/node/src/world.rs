//! Builds views from replicas, routes and their state, and keeps what did not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_config::ReplicaConfig;
use spillway_resolver::Resolver;
use spillway_types::{ModelName, ReplicaName, Standing};
use spillway_upstream::ReplicaTlsError;
use spillway_view::{KnownModels, ModelCards, Replica, RouteSpec, View, ViewParts};

use crate::fold::Folded;

/// Returns the replicas of these configs. A replica that is `known` and is still the same server
/// lives on with its connections and counts; requests in flight at one that is gone finish
/// undisturbed.
///
/// # Errors
/// Returns an error if a replica's TLS settings do not work.
pub(crate) fn gather_replicas(
    configs: &[ReplicaConfig],
    known: &BTreeMap<ReplicaName, Arc<Replica>>,
    units: usize,
    resolver: &Resolver,
) -> Result<Vec<Arc<Replica>>, ReplicaTlsError> {
    let replica = |config: &ReplicaConfig| {
        let known = known.get(&config.spec.name);
        if let Some(kept) = known.filter(|known| *known.spec() == config.spec) {
            return Ok(Arc::clone(kept));
        }
        // A server that is still the same keeps its connections under other settings.
        match known.and_then(|known| known.with_spec(&config.spec)) {
            Some(changed) => Ok(Arc::new(changed)),
            None => Ok(Arc::new(Replica::new(config.spec.clone(), units, resolver)?)),
        }
    };
    configs.iter().map(replica).collect()
}

/// Facts about models beyond the replicas' configs.
pub(crate) struct SaidOfModels<'a> {
    /// Models that other regions serve.
    pub(crate) elsewhere: BTreeSet<ModelName>,
    /// Models that are configured somewhere.
    pub(crate) known: KnownModels,
    /// Model cards from the replicas' own pages.
    pub(crate) cards: Arc<ModelCards>,
    /// Replicas whose models are still unknown.
    pub(crate) unread: BTreeSet<ReplicaName>,
    /// Models that replicas say they do not have.
    pub(crate) denied: &'a BTreeMap<ReplicaName, BTreeSet<ModelName>>,
    /// Replicas whose own pages list several models.
    pub(crate) several: &'a BTreeSet<ReplicaName>,
}

/// Builds the view of these replicas with their standings, which replaces `previous`. Prompts are
/// cut into blocks of `block_bytes`.
pub(crate) fn build_view(
    folded: &Folded,
    replicas: Vec<Arc<Replica>>,
    standings: &BTreeMap<ReplicaName, Standing>,
    models: SaidOfModels<'_>,
    (previous, first_turn, block_bytes): (&View, u64, u32),
) -> View {
    View::new(ViewParts {
        routes: folded.routes.iter().map(|route| with_blocks(route, block_bytes)).collect(),
        replicas,
        names: Arc::clone(&folded.names),
        elsewhere: models.elsewhere,
        known: models.known,
        cards: models.cards,
        unread: models.unread,
        denied: models.denied,
        several: models.several,
        standings,
        weights: &folded.weights,
        previous: Some(previous),
        first_turn,
    })
}

/// Sets the block size of a route to the one that prompts are really cut into, which stays as it
/// was when the node started.
fn with_blocks(route: &RouteSpec, block_bytes: u32) -> RouteSpec {
    let mut route = route.clone();
    route.tuning.predicted.block_bytes = block_bytes;
    route
}
