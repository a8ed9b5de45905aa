//! Hand-made results, for tests of reports.

use super::{super::latency::Latency, *};

/// Returns results without runs.
pub(crate) fn nothing() -> Results {
    let origin = Origin {
        command: "spillway-bench faults".to_owned(),
        overrides: Vec::new(),
        date: "2026-01-01".to_owned(),
        machine: "2 cores".to_owned(),
        version: "spillway 0.1.0".to_owned(),
    };
    Results {
        origin,
        seed: 1,
        rate_per_s: 120.0,
        seconds: (20, 60),
        jobs: 4,
        health: None,
        matrix: Vec::new(),
        mixed: Vec::new(),
        slow: Vec::new(),
        herd: Vec::new(),
    }
}

/// Returns a cell with this account, of a valid run unless `spoilt` has reasons.
pub(crate) fn cell(account: Account, spoilt: &[&str]) -> Cell {
    Cell {
        before: Latency { total_p99_ms: Some(100.0), ..Latency::default() },
        transition: Latency::default(),
        during: Latency { total_p99_ms: Some(250.0), ..Latency::default() },
        after: Latency::default(),
        account,
        share_before: Some(0.25),
        share_fault: Some(0.1),
        share_during: Some(0.0),
        out_s: Some(1.5),
        last_s: Some(2.5),
        back_s: None,
        retries: Some(3),
        conditions: conditions(spoilt),
    }
}

/// Returns a row of the slow part with this ratio.
pub(crate) fn slow_row(policy: &str, ratio: f64, spoilt: &[&str]) -> ResultRow<(), Slow> {
    let outcome = ResultOutcome::Measured(Slow {
        healthy: Latency { total_p99_ms: Some(100.0), ..Latency::default() },
        transition: Latency::default(),
        slowed: Latency { total_p99_ms: Some(100.0 * ratio), ..Latency::default() },
        ratio: Some(ratio),
        first_byte_ratio: None,
        shares: (Some(0.25), Some(0.03)),
        account: Account::default(),
        conditions: conditions(spoilt),
    });
    ResultRow { policy: policy.to_owned(), about: (), outcome }
}

/// Returns a row of the herd part with this ratio.
pub(crate) fn herd_row(about: SlowStart, ratio: f64) -> ResultRow<SlowStart, Herd> {
    let outcome = ResultOutcome::Measured(Herd {
        before: Latency::default(),
        joined: Latency::default(),
        later: Latency::default(),
        ratio: Some(ratio),
        first_byte_ratio: None,
        cold_share: 0.8,
        p99_by_second: vec![(-1, 100.0), (0, 100.0 * ratio)],
        account: Account::default(),
        conditions: conditions(&[]),
    });
    ResultRow { policy: "power_of_two".to_owned(), about, outcome }
}

fn conditions(spoilt: &[&str]) -> Conditions {
    let spoilt = spoilt.iter().map(|why| (*why).to_owned()).collect();
    Conditions { spoilt, ..Conditions::default() }
}

#[test]
fn every_measured_run_has_a_name_and_every_broken_one_a_reason() {
    let row = |about, outcome| ResultRow { policy: "random".to_owned(), about, outcome };
    let measured = ResultOutcome::Measured(cell(Account::default(), &[]));
    let mut results = nothing();
    results.matrix = vec![
        row(Fault::Hung, measured),
        row(Fault::Cut, ResultOutcome::Broken("it ended".to_owned())),
    ];
    results.slow = vec![slow_row("power_of_two", 1.0, &[])];
    results.herd = vec![herd_row(SlowStart::On, 1.0)];
    let runs = results.runs();
    let names: Vec<&str> = runs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["random × hung", "power_of_two × slow", "power_of_two × herd"]);
    assert_eq!(results.broken(), ["random: it ended"]);
}
