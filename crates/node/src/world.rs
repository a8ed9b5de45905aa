//! From replicas, routes and what is known of them to a view, keeping what did not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_proxy::{Replica, ReplicaTlsError, View, ViewParts};
use spillway_types::{ModelName, ReplicaName, Standing};

use crate::fold::Folded;
use crate::keeper::ReplicaConfig;

/// The replicas of these configs. One that is `known` and whose spec is unchanged lives on with its
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
        let kept = known.get(&config.spec.name).filter(|kept| *kept.spec() == config.spec);
        match kept {
            Some(kept) => Ok(Arc::clone(kept)),
            None => Ok(Arc::new(Replica::new(config.spec.clone(), units)?)),
        }
    };
    configs.iter().map(replica).collect()
}

/// A view of these replicas as they stand, which replaces `previous`.
pub(crate) fn build_view(
    folded: &Folded,
    replicas: Vec<Arc<Replica>>,
    standings: &BTreeMap<ReplicaName, Standing>,
    elsewhere: BTreeSet<ModelName>,
    (previous, first_turn): (&View, u64),
) -> View {
    View::new(ViewParts {
        routes: folded.routes.clone(),
        replicas,
        names: Arc::clone(&folded.names),
        elsewhere,
        standings,
        weights: &folded.weights,
        previous: Some(previous),
        first_turn,
    })
}
