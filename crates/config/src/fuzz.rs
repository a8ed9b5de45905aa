//! Fuzz targets of files that are watched.

use std::path::Path;

use crate::{CareDefaults, read_replicas};

/// Fuzz target: the name of the folder of its inputs, and the function that runs one of them.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("replica_file", replica_file)];

/// Checks that a file of replicas is refused with a reason, or lists replicas with names of their
/// own.
fn replica_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match read_replicas(text, Path::new("replicas.toml"), &CareDefaults::default()) {
        Ok(replicas) => assert!(replicas.len() <= input.len() / 4, "{} replicas", replicas.len()),
        Err(fault) => assert!(!fault.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
