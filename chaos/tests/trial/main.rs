//! The control plane of real nodes on trial, in short. `spillway-chaos control` does the same for
//! longer, and measures it.
//!
//! The `spillway` program is the one that `SPILLWAY_BIN` names. Without it cargo builds it here, in
//! the folder of this test: another package's program is no dependency that cargo knows.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "what surrounds tests fails as they do; what did not run must say so"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use spillway_chaos::trial::{Check, Part, Plan, Report, Wan, run};

/// How many times an aim a single trial may take here: other tests run beside it, and aims are for
/// 95 of 100 trials on a machine of their own.
const SLACK: f64 = 4.0;

/// What depends on how busy the machine is: a leader that gets no processor for a lease is replaced.
const TIMELY: [&str; 2] = ["term unchanged", "writes go on"];

fn programs() -> Option<(PathBuf, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "these tests need root, and CI must run them");
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    let launcher = PathBuf::from(env!("CARGO_BIN_EXE_spillway-chaos"));
    let binary = std::env::var_os("SPILLWAY_BIN").map(PathBuf::from);
    Some((binary.unwrap_or_else(|| build(launcher.parent().unwrap())), launcher))
}

/// Builds `spillway` into cargo's folder `profile`. Of several tests that do, one works and the
/// others wait for it.
fn build(profile: &Path) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--package", "spillway"]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.env("CARGO_TARGET_DIR", profile.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "spillway can't be built");
    profile.join("spillway")
}

fn tried(part: Part, wan: Wan, trials: usize) -> Option<Report> {
    let (binary, launcher) = programs()?;
    // One cluster at a time, so that its nodes have the processor when their timers are due.
    let turn = File::create(launcher.with_file_name("trial.lock")).unwrap();
    turn.lock().unwrap();
    let progress = |line: &str| eprintln!("{line}");
    let plan = Plan { part, wan, trials, binary, launcher, seed: 7, keep: false, progress };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(run(&plan)).unwrap();
    eprintln!("{}", report.table());
    Some(report)
}

fn check(part: Part, wan: Wan, trials: usize) {
    let Some(report) = tried(part, wan, trials) else { return };
    assert!(!report.checks.is_empty());
    let is_timely = |check: &&Check| TIMELY.iter().any(|start| check.what.starts_with(start));
    for check in report.checks.iter().filter(|check| !is_timely(check)) {
        assert!(Check::holds(check), "{check:?}");
    }
    for figure in &report.figures {
        assert!(!figure.values.is_empty(), "{figure:?}");
        let aim = figure.aim.unwrap_or(f64::INFINITY);
        assert!(figure.quantile(1.0) <= aim * SLACK, "{figure:?}");
    }
}
#[test]
#[ignore = "needs a machine with nothing else to do and two minutes: docs/chaos.md has the command"]
fn a_simultaneous_first_boot_behind_address_translation_forms_one_cluster() {
    check(Part::Boot, Wan::Nat, 2);
}
#[test]
#[ignore = "needs a machine with nothing else to do and two minutes: docs/chaos.md has the command"]
fn a_lost_leader_is_replaced() {
    check(Part::Failover, Wan::Three, 1);
}

#[test]
#[ignore = "needs a machine with nothing else to do and two minutes: docs/chaos.md has the command"]
fn what_clients_see_over_kills_and_cuts_is_linearizable() {
    check(Part::Linear, Wan::Three, 3);
}

#[test]
#[ignore = "needs a machine with nothing else to do and two minutes: docs/chaos.md has the command"]
fn a_kill_of_all_nodes_loses_nothing_that_was_acknowledged() {
    check(Part::Crash, Wan::Three, 2);
}
