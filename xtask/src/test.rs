//! `cargo xtask test`: sets up what the tests need and runs them.

use std::path::Path;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::command::{self, command, first_line};
use crate::metadata::Metadata;
use crate::report::{Outcome, Report};
use crate::venv::Venv;

/// Builds what follows of it. The whole workspace, and one test of it at least, are named for the sake of
/// features: with others, cargo would build all crates a second time beside those of the Rust tests.
const BUILD: &str = "cargo build --locked --workspace";
/// Begins an example in a doc comment, as a regular expression.
const EXAMPLE: &str = "^[[:space:]]*//[/!].*```";

/// A choice of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Everything below.
    All,
    /// Rust tests and doctests.
    Unit,
    /// Real Python clients and a real model server against the built binary.
    Clients,
}

/// Runs the tests of `suite`; true when all passed.
pub(crate) fn run(root: &Path, suite: Suite, json: bool) -> Result<bool> {
    let mut report = Report::default();
    if suite != Suite::Clients {
        rust_tests(&mut report, root);
    }
    if suite != Suite::Unit {
        client_tests(&mut report, root);
    }
    report.finish(json)
}

/// Puts real nodes on trial over an emulated network, in short; true when all held. Needs root.
pub(crate) fn chaos(root: &Path, json: bool) -> Result<bool> {
    let mut report = Report::default();
    let tools = report.step("tools for trials", || {
        need_tool(root, "cc --version", "gcc")?;
        Ok(Outcome::Passed)
    });
    // The dev profile: it is there already after the tests, and the trials' bounds leave room for it.
    let built = report.step("build spillway and spillway-chaos", || {
        let line = format!("{BUILD} --bin spillway --bin spillway-chaos --test trial");
        command::run(&mut command(root, &line)).map(|()| Outcome::Passed)
    });
    if tools && built {
        // One after the other: a bound is for a cluster that has the processor for itself.
        report.step("trials", || {
            let line = "cargo test --locked --workspace --test trial -- \
                        --ignored --nocapture --test-threads 1";
            let mut trials = command(root, line);
            trials
                .env("SPILLWAY_BIN", Metadata::load(root)?.target_directory.join("debug/spillway"));
            command::run(&mut trials).map(|()| Outcome::Passed)
        });
    }
    report.finish(json)
}

fn rust_tests(report: &mut Report, root: &Path) {
    report.step("rust tests", || {
        let nextest = first_line(&mut command(root, "cargo nextest --version")).is_some();
        let which = "--locked --workspace --lib --bins --tests --no-fail-fast";
        let line = if nextest {
            // Most of them wait most of the time: for a timer, a lease, an election.
            let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
            format!("cargo nextest run {which} --test-threads {threads}")
        } else {
            eprintln!("note: cargo-nextest is not installed; using cargo test");
            format!("cargo test {which}")
        };
        command::run(&mut command(root, &line)).map(|()| Outcome::Passed)
    });
    report.step("doctests", || doctests(root));
}

/// Runs the examples in doc comments, if there are any: rustdoc would compile every crate to find none.
fn doctests(root: &Path) -> Result<Outcome> {
    let mut search = command(root, &format!("git grep --untracked --quiet -E {EXAMPLE} -- *.rs"));
    if search.status().is_ok_and(|status| status.code() == Some(1)) {
        return Ok(Outcome::Skipped("no doc comment has an example".to_owned()));
    }
    command::run(&mut command(root, "cargo test --locked --workspace --doc"))?;
    Ok(Outcome::Passed)
}

fn client_tests(report: &mut Report, root: &Path) {
    let venv = Venv::new(root.join("tests/clients"));
    let tools = report.step("tools for clients", || {
        need_tool(root, "curl --version", "curl")?;
        venv.need_python()?;
        Ok(Outcome::Passed)
    });
    // The dev profile: it shares its dependencies with the tests above, and these tests
    // compare behaviour, not speed.
    let built = report.step("build spillway", || {
        let line = format!("{BUILD} --bin spillway --test demo");
        command::run(&mut command(root, &line)).map(|()| Outcome::Passed)
    });
    if !tools || !built || !report.step("python packages", || venv.prepare()) {
        return;
    }
    report.step("real clients", || {
        let mut pytest = venv.python();
        pytest.args(["-m", "pytest"]).current_dir(root.join("tests/clients"));
        pytest.env("SPILLWAY_BIN", Metadata::load(root)?.target_directory.join("debug/spillway"));
        command::run(&mut pytest).map(|()| Outcome::Passed)
    });
}

fn need_tool(root: &Path, line: &str, package: &str) -> Result<()> {
    match first_line(&mut command(root, line)) {
        Some(version) => eprintln!("{version}"),
        None => bail!("{package} is missing: install it (Debian: apt-get install {package})"),
    }
    Ok(())
}
