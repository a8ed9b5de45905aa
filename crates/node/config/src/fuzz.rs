//! Fuzz targets of files that people write.

use std::path::Path;

use crate::{CareDefaults, Config, read_replicas};

/// Fuzz target: the name of the folder of its inputs, and the function that runs one of them.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("config_file", config_file), ("replica_file", replica_file)];

/// Checks that a config is refused with positions that can be shown, or is right.
fn config_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let told = match Config::parse(text, Path::new("spillway.toml"), []) {
        Ok(config) => config.warnings,
        Err(errors) => {
            assert!(errors.iter().next().is_some(), "refused without a reason");
            errors
        }
    };
    for error in told.iter() {
        let marks = error.place.mark.iter().chain(error.place.earlier.iter().map(|(mark, _)| mark));
        for mark in marks {
            assert!(error.place.shown.0.get(mark.span.clone()).is_some(), "{error}: {mark:?}");
        }
    }
}

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
