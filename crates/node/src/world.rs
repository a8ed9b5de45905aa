//! From replicas, routes and what is known of them to a view, keeping what did not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_proxy::{
    KnownModels, ModelCards, Replica, ReplicaTlsError, RouteSpec, View, ViewParts,
};
use spillway_types::{ModelName, ReplicaName, Standing};

use crate::fold::Folded;
use crate::keeper::ReplicaConfig;

/// The replicas of these configs. One that is `known` and is still the same server lives on with its
/// connections and counts; requests under way at one that is gone finish undisturbed.
///
/// # Errors
/// If a replica's TLS settings do not work.
pub(crate) fn gather_replicas(
    configs: &[ReplicaConfig],
    known: &BTreeMap<ReplicaName, Arc<Replica>>,
    units: usize,
) -> Result<Vec<Arc<Replica>>, ReplicaTlsError> {
    let replica = |config: &ReplicaConfig| {
        let known = known.get(&config.spec.name);
        if let Some(kept) = known.filter(|known| *known.spec() == config.spec) {
            return Ok(Arc::clone(kept));
        }
        match known.and_then(|known| known.with_spec(&config.spec)) {
            Some(changed) => Ok(Arc::new(changed)),
            None => Ok(Arc::new(Replica::new(config.spec.clone(), units)?)),
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
    /// What replicas tell of models.
    pub(crate) cards: Arc<ModelCards>,
    /// Replicas of which nobody knows yet which models they serve.
    pub(crate) unread: BTreeSet<ReplicaName>,
    /// Models that replicas say they do not have.
    pub(crate) denied: &'a BTreeMap<ReplicaName, BTreeSet<ModelName>>,
}

/// A view of these replicas as they stand, which replaces `previous`. Prompts are cut into blocks of
/// `block_bytes`.
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
        standings,
        weights: &folded.weights,
        previous: Some(previous),
        first_turn,
    })
}

/// The route, by what its prompts are really cut into: that stays as it was when the node started.
fn with_blocks(route: &RouteSpec, block_bytes: u32) -> RouteSpec {
    let mut route = route.clone();
    route.tuning.predicted.block_bytes = block_bytes;
    route
}
