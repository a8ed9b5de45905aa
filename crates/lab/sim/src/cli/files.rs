//! Files that are named by arguments.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Reads a file.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))
}

/// Writes a file.
pub(super) fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{} can't be written", file.display()))
}
