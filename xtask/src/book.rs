//! `cargo xtask book`: makes a book of the pages of `docs/` that reads and searches offline.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::command;
use crate::metadata::Metadata;
use crate::report::{CheckOutcome, Report};
use crate::venv::Venv;

/// Builds the book in `target/book` from scratch. Returns true if no page had a warning, such as a
/// broken link.
pub(crate) fn run(root: &Path, json: bool) -> Result<bool> {
    let mut report = Report::default();
    if make(&mut report, root) {
        eprintln!("open {}", folder(root)?.join("index.html").display());
    }
    report.finish(json)
}

/// Builds the book from scratch. Returns true if that worked.
pub(crate) fn make(report: &mut Report, root: &Path) -> bool {
    let venv = Venv::new(root.join("docs/book"));
    let prepared = report.step("packages for the book", || {
        venv.need_python()?;
        venv.prepare()
    });
    prepared && report.step("book", || write(root, &venv))
}

/// Returns the folder of the book.
pub(crate) fn folder(root: &Path) -> Result<PathBuf> {
    Ok(Metadata::load(root)?.target_directory.join("book"))
}

fn write(root: &Path, venv: &Venv) -> Result<CheckOutcome> {
    let book = folder(root)?;
    // Pages that were moved away would stay, and be found by the search.
    if book.exists() {
        fs::remove_dir_all(&book).with_context(|| format!("cannot empty {}", book.display()))?;
    }
    let mut sphinx = venv.python();
    sphinx
        .args(["-m", "sphinx", "--builder", "html", "--fail-on-warning", "--quiet", "--conf-dir"])
        .arg(root.join("docs/book"))
        .arg(root.join("docs"))
        .arg(&book);
    command::run(&mut sphinx)?;
    Ok(CheckOutcome::Passed)
}
