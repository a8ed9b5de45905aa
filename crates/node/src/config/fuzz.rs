//! What fuzz targets need of the config.

use std::collections::BTreeMap;
use std::path::Path;

use super::CareDefaults;

/// How many replicas a file lists, or why it can't be read.
pub(crate) fn read_replicas(text: &str, path: &Path) -> Result<usize, String> {
    let (health, standby) = Default::default();
    let defaults = CareDefaults::new(health, standby, BTreeMap::new(), BTreeMap::new());
    let read = super::read_replicas(text, path, &defaults);
    read.map(|replicas| replicas.len()).map_err(|error| error.to_string())
}
