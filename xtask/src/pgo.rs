//! `cargo xtask pgo`: counts what runs, so that `cargo xtask dist` can lay code out by it
//! (profile-guided optimisation).
//!
//! An instrumented binary gets the loads of `spillway-bench`. Its counts go into the repository,
//! since a build must give equal bytes on all machines. Functions that changed since are built
//! without counts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::command::{self, command, first_line};
use crate::dist::build::{self, Counts};
use crate::dist::release;
use crate::metadata::Metadata;
use crate::report::{CheckOutcome, Report};

/// Loads of `spillway-bench` that are counted; the binary's path follows. A binary that counts is
/// slow, so `compare` must not hold it against the aims.
const LOADS: [&str; 2] =
    ["compare --rounds 1 --window-s 2 --earlier", "forward --rounds 1 --window-s 2 --spillway"];

/// Counts and writes the file. Returns true if that worked.
pub(crate) fn run(root: &Path, json: bool) -> Result<bool> {
    let metadata = Metadata::load(root)?;
    let release = release(root, &metadata, "dist", 1)?;
    if !build::has_counts(&release) {
        bail!("counts are kept for x86_64 alone, not for {}", release.machine());
    }
    let raw = metadata.target_directory.join("pgo/raw");
    let (mut report, mut binary) = (Report::default(), PathBuf::new());
    let built = report.step("binary that counts", || {
        merger(root)?;
        if raw.exists() {
            fs::remove_dir_all(&raw)?;
        }
        binary = build::static_binary(root, &release, &Counts::Make(raw.clone()), None)?;
        let line = "cargo build --locked --release --package spillway-bench";
        command::run(&mut command(root, line))?;
        Ok(CheckOutcome::Passed)
    });
    if built {
        let bench = metadata.target_directory.join("release/spillway-bench");
        let counted = LOADS.iter().all(|load| {
            report.step(*load, || {
                let line = format!("{} {load}", bench.display());
                command::run(command(root, &line).arg(&binary))?;
                Ok(CheckOutcome::Passed)
            })
        });
        if counted {
            report.step("counts", || merge(root, &raw));
        }
    }
    report.finish(json)
}

/// Writes the sums of all counts in `raw` for the next build.
fn merge(root: &Path, raw: &Path) -> Result<CheckOutcome> {
    let mut merge = command(root, &merger(root)?);
    // Functions that never ran are left out: they may be common outside of the bench.
    merge.args(["merge", "--sparse", "--output"]).arg(build::counts_path(root)).arg(raw);
    command::run(&mut merge)?;
    Ok(CheckOutcome::Passed)
}

/// Returns the program that reads what binaries of this compiler count.
fn merger(root: &Path) -> Result<String> {
    let about = command::output(&mut command(root, "rustc --version --verbose"))?;
    let about = String::from_utf8(about)?;
    let version = about.lines().find_map(|line| line.strip_prefix("LLVM version: "));
    let major = version.and_then(|version| version.split('.').next());
    let major = major.context("rustc does not say which LLVM it has")?;
    let name = format!("llvm-profdata-{major}");
    if first_line(&mut command(root, &format!("{name} --version"))).is_none() {
        bail!("{name} is missing: install it (Debian: apt-get install llvm-{major})");
    }
    Ok(name)
}
