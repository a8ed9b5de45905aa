//! Kept inputs: seeds, and every input that once made a target fail.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder of a target's kept inputs, one in each file, as raw bytes.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs").join(target)
}

/// Reads the kept inputs of a target in the order of their names; none if the target has no folder.
#[must_use]
pub fn read_inputs(target: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder(target)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).collect()
}
