//! `cargo xtask pages`: writes the files that the program makes of its own declarations.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::command::{self, command};
use crate::report::{CheckOutcome, Report};

/// Files, each with the arguments for which `spillway` prints it. For each of them a test compares
/// the file with the declarations.
const PAGES: [(&str, &str); 6] = [
    ("docs/reference/settings.md", "config reference"),
    ("docs/reference/commands.md", "reference commands"),
    ("docs/reference/metrics.md", "reference metrics"),
    ("docs/reference/errors.md", "reference errors"),
    ("docs/reference/access-log.md", "reference access-log"),
    ("deploy/observability/dashboard.json", "reference dashboard"),
];

/// Writes all pages. Returns true if the program could be built and printed all of them.
pub(crate) fn run(root: &Path, json: bool) -> Result<bool> {
    let mut report = Report::default();
    for (path, arguments) in PAGES {
        report.step(path, || write(root, path, arguments));
    }
    report.finish(json)
}

fn write(root: &Path, path: &str, arguments: &str) -> Result<CheckOutcome> {
    // As a whole: `cargo run > FILE` would empty the file of a program that does not build.
    let page = command::output(&mut command(root, &format!("cargo run --quiet -- {arguments}")))?;
    fs::write(root.join(path), page).with_context(|| format!("cannot write {path}"))?;
    Ok(CheckOutcome::Passed)
}
