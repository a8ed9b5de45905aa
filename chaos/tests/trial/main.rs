//! Short trials of the control plane with real nodes, as CI runs them. `spillway-chaos control`
//! runs longer ones and measures.
//!
//! `cargo xtask chaos` builds both programs and runs these tests one after the other. By hand it is
//! `cargo test -p spillway-chaos --test trial -- --ignored --test-threads 1`; then the `spillway`
//! program is the one that `SPILLWAY_BIN` names, or cargo builds it here, in the folder of this test.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "what surrounds tests fails as they do; what did not run must say so"
)]

mod built;
mod loads;
mod parts;

use std::fs::File;
use std::path::PathBuf;

use spillway_chaos::plan::{TrialPlan, Wan};
use spillway_chaos::trial::{TrialPart, TrialReport, run};

/// Checks, by the start of their name, that a busy machine can break: a leader without processor
/// time for a lease is replaced. These must hold in most trials, all other checks always.
const TIMELY: [&str; 2] = ["term unchanged when", "writes go on when"];
/// Figure with an aim that is set by timers and leaves no room for a busy processor. The aim is for
/// a release build on a machine of its own; the next constant is the factor allowed here. A write
/// that waits for a quorum takes several times as long.
const TIGHT: &str = "control writes are refused at once";
const BUSY: f64 = 1.5;

fn programs() -> Option<(PathBuf, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "these tests need root, and CI must run them");
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    let launcher = PathBuf::from(env!("CARGO_BIN_EXE_spillway-chaos"));
    Some((built::spillway(), launcher))
}

fn tried(part: TrialPart, wan: Wan, trials: usize) -> Option<TrialReport> {
    let (binary, launcher) = programs()?;
    // One cluster at a time, so that its nodes have the processor when their timers are due.
    let turn = File::create(launcher.with_file_name("trial.lock")).unwrap();
    turn.lock().unwrap();
    let progress = |line: &str| eprintln!("{line}");
    let (is_short, seed, keep) = (false, 7, false);
    let plan = TrialPlan { trials, is_short, binary, launcher, seed, keep, progress };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(run(part, wan, &plan)).unwrap();
    eprintln!("{}", report.table());
    Some(report)
}

fn check(part: TrialPart, wan: Wan, trials: usize) {
    let Some(report) = tried(part, wan, trials) else { return };
    assert!(!report.checks.is_empty());
    for check in &report.checks {
        let is_timely = TIMELY.iter().any(|start| check.what.starts_with(start));
        let holds = if is_timely { 2 * check.wrong <= check.of } else { check.holds() };
        assert!(check.of > 0 && holds, "{check:?}");
    }
    for figure in &report.figures {
        assert!(!figure.values.is_empty(), "{figure:?}");
        let allowance = if figure.what.starts_with(TIGHT) { BUSY } else { 1.0 };
        // With fewer than 20 trials all of them count.
        let holds = figure.aim.is_none_or(|aim| figure.quantile(0.95) <= aim * allowance);
        assert!(holds, "{figure:?}");
    }
}
