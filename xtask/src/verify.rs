//! `cargo xtask verify`: runs all checks that a change must pass. Writes nothing that git sees.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::command::{self, command, first_line, succeeds_within};
use crate::report::{CheckOutcome, Report};
use crate::tidy;

/// Release of cargo-deny that CI uses; a later one may have more checks.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Time limit for a shallow clone of the advisory database. It takes seconds; more means no
/// network.
const ADVISORIES_LIMIT: Duration = Duration::from_secs(60);

/// Runs every check, the cheap ones first, also after one has failed.
pub(crate) fn run(root: &Path, json: bool) -> Result<bool> {
    let mut report = Report::default();
    report.step("tidy", || tidy::check_and_print(root));
    cargo_step(&mut report, root, "fmt", "cargo fmt --all --check");
    cargo_step(
        &mut report,
        root,
        "clippy",
        "cargo clippy --locked --workspace --all-targets -- -D warnings",
    );
    report.step("doc", || doc(root));
    if report.step("cargo-deny installed", || install_cargo_deny(root)) {
        cargo_step(
            &mut report,
            root,
            "deny",
            // Without the advisories, which need the network and have a step of their own.
            "cargo deny --offline --locked check bans licenses sources",
        );
        report.step("advisories", || advisories(root));
    }
    report.finish(json)
}

fn cargo_step(report: &mut Report, root: &Path, name: &'static str, line: &str) {
    report.step(name, || command::run(&mut command(root, line)).map(|()| CheckOutcome::Passed));
}

fn doc(root: &Path) -> Result<CheckOutcome> {
    let mut doc = command(root, "cargo doc --locked --workspace --no-deps");
    command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(CheckOutcome::Passed)
}

fn install_cargo_deny(root: &Path) -> Result<CheckOutcome> {
    match first_line(&mut command(root, "cargo deny --version")) {
        Some(line) if line.ends_with(CARGO_DENY_VERSION) => {}
        Some(line) => eprintln!("note: {line} is installed; CI uses {CARGO_DENY_VERSION}"),
        None => {
            eprintln!("cargo-deny is missing; building it takes some minutes, once");
            // Not optimised: that takes half the time to build, and the checks take seconds either way.
            let line = format!(
                "cargo install --debug --locked cargo-deny --no-default-features --version {CARGO_DENY_VERSION}"
            );
            let mut install = command(root, &line);
            command::run(install.env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
        }
    }
    Ok(CheckOutcome::Passed)
}

/// Checks for known security advisories where their database can be fetched.
fn advisories(root: &Path) -> Result<CheckOutcome> {
    // An unreachable database is no evidence about this project, so it must not look like a
    // finding.
    if !succeeds_within(&mut command(root, "cargo deny fetch db"), ADVISORIES_LIMIT)? {
        let reason =
            "NOT CHECKED for known vulnerabilities: the advisory database cannot be fetched here";
        eprintln!("warning: {reason}");
        return Ok(CheckOutcome::Skipped(reason.to_owned()));
    }
    command::run(&mut command(root, "cargo deny --locked check advisories"))?;
    Ok(CheckOutcome::Passed)
}
