//! Lists of replicas, in the config or in a file of their own.

use std::collections::BTreeMap;

use spillway_resolver::Resolver;
use spillway_view::Replica;

use crate::care_section::CareDefaults;
use crate::error::ConfigErrors;
use crate::replica::ReplicaConfig;
use crate::replica_section::ReplicaSection;
use crate::source::Source;

/// Checks the replicas of a config, or of a file that lists more of them.
///
/// # Errors
/// Returns all faults, with their lines.
pub(crate) fn lower_replicas(
    source: &Source,
    sections: Vec<ReplicaSection>,
    defaults: &CareDefaults,
) -> Result<Vec<ReplicaConfig>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut places = BTreeMap::new();
    let mut replicas = Vec::new();
    for section in sections {
        let (name, at) = (section.name.get_ref().clone(), section.name.span());
        // An empty name is reported by the section itself.
        if let Some(earlier) = places.insert(name.clone(), at.clone())
            && !name.is_empty()
        {
            let message = format!("a second replica is called {name:?}");
            errors.add(source.collision(at, earlier, message, "give each its own name"));
        }
        replicas.extend(errors.keep(lower_replica(source, section, defaults)));
    }
    errors.or(replicas)
}

fn lower_replica(
    source: &Source,
    section: ReplicaSection,
    defaults: &CareDefaults,
) -> Result<ReplicaConfig, ConfigErrors> {
    let span = section.url.span();
    let config = section.lower(defaults, source)?;
    // Created once here, so that a fault shows now and not at the first request.
    Replica::new(config.spec.clone(), 1, &Resolver::default()).map_err(|error| {
        source.fault(span, error.to_string(), "correct the replica's tls section")
    })?;
    Ok(config)
}
