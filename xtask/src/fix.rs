//! `cargo xtask fix`: repairs everything that the tools can repair on their own.

use std::path::Path;

use anyhow::Result;

use crate::command::{self, command};
use crate::report::{CheckOutcome, Report};

/// Applies clippy's suggestions, then formats. Returns true if both tools succeeded.
pub(crate) fn run(root: &Path, json: bool) -> Result<bool> {
    let clippy = "cargo clippy --fix --allow-dirty --allow-staged --workspace --all-targets";
    let mut report = Report::default();
    for (name, line) in [("clippy --fix", clippy), ("fmt", "cargo fmt --all")] {
        report.step(name, || command::run(&mut command(root, line)).map(|()| CheckOutcome::Passed));
    }
    report.finish(json)
}
