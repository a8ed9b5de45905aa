//! Short trials of the data path.

use std::fs::File;

use spillway_chaos::load::{LoadTrial, run};
use spillway_chaos::plan::TrialPlan;

use super::programs;

/// Part of the name of rates of requests that are not urgent; the next constant is the percentage
/// points that a busy machine may cost them. On a busy machine the node predicts that some are
/// late, and refuses those that find no other region.
const NOT_URGENT: &str = "others served";
const BUSY_POINTS: f64 = 3.0;

/// Runs a trial once and checks the results that do not depend on how busy the machine is: checks
/// and shares. Times need a release build and a machine of its own.
fn check(trial: LoadTrial) {
    let Some((binary, launcher)) = programs() else { return };
    let turn = File::create(launcher.with_file_name("trial.lock")).unwrap();
    turn.lock().unwrap();
    let progress = |line: &str| eprintln!("{line}");
    let (trials, is_short, seed, keep) = (1, true, 7, false);
    let plan = TrialPlan { trials, is_short, binary, launcher, seed, keep, progress };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(run(trial, &plan)).unwrap();
    eprintln!("{}", report.table());
    assert!(!report.checks.is_empty() || !report.figures.is_empty());
    for check in &report.checks {
        assert!(check.holds(), "{check:?}");
    }
    for figure in report.figures.iter().filter(|figure| figure.unit == "%") {
        let measured = figure.quantile(0.95);
        let spare = if figure.what.contains(NOT_URGENT) { BUSY_POINTS } else { 0.0 };
        let holds = figure.aim.is_none_or(|aim| {
            if figure.is_rate { measured >= aim - spare } else { measured <= aim }
        });
        assert!(holds, "{figure:?}");
    }
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn five_times_the_load_takes_nothing_from_what_is_served() {
    check(LoadTrial::Overload);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn killed_replicas_fail_no_request_and_no_stream() {
    check(LoadTrial::Kill);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_killed_region_is_gone_for_a_second_at_most() {
    check(LoadTrial::Region);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn all_nodes_are_restarted_under_load_and_nobody_notices() {
    check(LoadTrial::Rolling);
}
