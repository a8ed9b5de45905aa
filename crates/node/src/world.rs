//! From the config's replicas and routes to a view, keeping what did not change.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_proxy::{Replica, ReplicaTlsError, View, ViewParts};
use spillway_types::ReplicaName;

use crate::config::WorldConfig;

/// Builds a view. A replica of `current` whose spec is unchanged lives on with its connections and
/// counts; requests under way at one that is gone finish undisturbed.
///
/// # Errors
/// If a replica's TLS settings do not work.
pub(crate) fn build_view(
    world: &WorldConfig,
    current: Option<&View>,
    workers: usize,
    first_turn: u64,
) -> Result<View, ReplicaTlsError> {
    let mut known: BTreeMap<&ReplicaName, &Arc<Replica>> = current
        .into_iter()
        .flat_map(View::replicas)
        .map(|replica| (&replica.spec().name, replica))
        .collect();
    let mut replicas = Vec::with_capacity(world.replicas.len());
    for spec in &world.replicas {
        let kept = known.remove(&spec.name).filter(|replica| replica.spec() == spec);
        replicas.push(match kept {
            Some(replica) => Arc::clone(replica),
            None => Arc::new(Replica::new(spec.clone(), workers)?),
        });
    }
    Ok(View::new(ViewParts {
        routes: world.routes.clone(),
        replicas,
        aliases: world.aliases.clone(),
        standings: &BTreeMap::new(),
        previous: current,
        first_turn,
    }))
}
