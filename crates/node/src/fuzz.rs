//! Fuzz targets of input from other nodes and from watched files.

use std::path::Path;

use crate::cluster::fuzz::{model_list, residency_header};
use crate::config::fuzz::read_replicas;

/// Fuzz target: the name of the folder of its inputs, and the function that runs one of them.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    ("residency_header", residency_header),
    ("peer_model_list", model_list),
    ("replica_file", replica_file),
];

/// Checks that a file of replicas is refused with a reason, or lists replicas with names of their
/// own.
fn replica_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match read_replicas(text, Path::new("replicas.toml")) {
        Ok(count) => assert!(count <= input.len() / 4, "{count} replicas"),
        Err(reason) => assert!(!reason.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
