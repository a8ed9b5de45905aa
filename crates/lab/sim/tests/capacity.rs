//! The plan of docs/guides/capacity.md is the one that the command makes, and holds in the
//! simulator.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]

use std::process::{Command, Output};

const PAGE: &str = include_str!("../../../../docs/guides/capacity.md");

fn capacity(more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillway-sim"))
        .args(["capacity", "--good-ms", "1500"])
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn the_page_has_the_figures_of_the_command_and_the_plan_holds() {
    let done = capacity(&[]);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    let (_, rest) = PAGE.split_once("<!-- begin capacity -->").unwrap();
    let (written, _) = rest.split_once("<!-- end capacity -->").unwrap();
    let made = String::from_utf8_lossy(&done.stdout);
    assert_eq!(written.trim(), made.trim(), "make the page anew by the command that it names");
}

#[test]
fn a_plan_that_misses_its_objective_is_told() {
    // Replicas that are assumed to be twice as fast as they are.
    let done = capacity(&["--replica-per-s", "11"]);
    assert!(!done.status.success());
    let errors = String::from_utf8_lossy(&done.stderr);
    // Progress comes first, on a slow machine.
    let last = errors.lines().last().unwrap();
    assert!(last.starts_with("the plan is too small: "), "{errors}");
    let errors = String::from_utf8_lossy(&capacity(&["--peaks", "1,2"]).stderr).into_owned();
    assert!(errors.contains("one number for each of 3 regions"), "{errors}");
}
