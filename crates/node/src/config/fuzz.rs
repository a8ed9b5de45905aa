//! Entry points of the config for fuzz targets.

use std::collections::BTreeMap;
use std::path::Path;

use super::CareDefaults;

/// Returns the number of replicas that a file lists, or the message of the fault.
pub(crate) fn read_replicas(text: &str, path: &Path) -> Result<usize, String> {
    let (health, standby) = Default::default();
    let defaults = CareDefaults::new(health, standby, BTreeMap::new(), BTreeMap::new());
    let read = super::read_replicas(text, path, &defaults);
    read.map(|replicas| replicas.len()).map_err(|error| error.to_string())
}
