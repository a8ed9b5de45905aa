//! Lists of replicas, which stand in the config or in a file of their own.

use std::collections::BTreeSet;

use spillway_upstream::replica::Replica;

use crate::care_section::CareDefaults;
use crate::error::{ConfigError, Source};
use crate::replica::ReplicaConfig;
use crate::replica_section::ReplicaSection;

/// Checks the replicas of a config, or of a file that lists more of them.
///
/// # Errors
/// Returns the first fault, with its line.
pub(crate) fn lower_replicas(
    source: &Source,
    sections: Vec<ReplicaSection>,
    defaults: &CareDefaults,
) -> Result<Vec<ReplicaConfig>, ConfigError> {
    let mut names = BTreeSet::new();
    let mut replicas = Vec::new();
    for section in sections {
        if !names.insert(section.name.get_ref().clone()) {
            let message = format!("a second replica is called {:?}", section.name.get_ref());
            return Err(source.fault(section.name.span(), message, "give each its own name"));
        }
        replicas.push(lower_replica(source, section, defaults)?);
    }
    Ok(replicas)
}

fn lower_replica(
    source: &Source,
    section: ReplicaSection,
    defaults: &CareDefaults,
) -> Result<ReplicaConfig, ConfigError> {
    let span = section.url.span();
    let config = section.lower(defaults, source)?;
    // Created once here, so that a fault shows now and not at the first request.
    Replica::new(config.spec.clone(), 1).map_err(|error| {
        source.fault(span, error.to_string(), "correct the replica's tls section")
    })?;
    Ok(config)
}
