//! Tests of the page.

use super::*;
use crate::{
    peers::Peer,
    report::ReportSample,
    tally::{Measurement, Percentiles},
};

fn sample(cpu_s: Option<f64>, p50_us: f64, errors: u64) -> ReportSample {
    let latency = Percentiles { p50_us, p90_us: p50_us, p99_us: p50_us, max_us: p50_us };
    let measurement = Measurement {
        seconds: 1.0,
        requests: 10_000,
        errors,
        first_error: None,
        tokens: 0,
        latency,
        first_token: None,
        gap: None,
    };
    ReportSample { measurement, cpu_s, resident_mib: cpu_s }
}

fn report(scenario: Scenario) -> ScenarioReport {
    let subjects = [
        (Subject::Direct, sample(None, 100.0, 0)),
        (Subject::Nginx, sample(Some(0.25), 150.0, 0)),
        (Subject::Peer(Peer::Litellm), sample(Some(165.0), 900.0, 3)),
        (Subject::Spillway(Layout::PerCore), sample(Some(0.3), 160.0, 0)),
    ];
    let mut report = ScenarioReport::new(scenario, subjects.iter().map(|(subject, _)| *subject));
    for (index, (_, sample)) in subjects.into_iter().enumerate() {
        report.add(index, sample);
    }
    report.subjects[3].start_mib = Some(41.4);
    report.summarize();
    report
}

#[test]
fn a_subject_is_a_row_and_a_scenario_that_was_left_out_a_dash() {
    let text = ratio_table(&[report(Scenario::Rps1k)]).markdown();
    let rows: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(rows[0], "| nginx | 1.00 | – | – | – | – | – | – |");
    assert_eq!(rows[1], "| LiteLLM | 660 | – | – | – | – | – | – |");
    assert_eq!(rows[2], "| **Spillway** | 1.20 | – | – | – | – | – | 41 |");
    assert!(rows[3].ends_with(" | 0.250 | – | – | – | – | – |  |"), "{}", rows[3]);
}

#[test]
fn latency_is_that_of_open_load_and_failures_are_those_of_all_scenarios() {
    let reports = [report(Scenario::Rps1k), report(Scenario::Open500)];
    let text = figure_table(&reports).markdown();
    let rows: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(rows[0], "| no proxy | 0 | – | 10000 | – | 0 |");
    assert_eq!(rows[2], "| LiteLLM | 800 | – | 10000 | – | 6 |");
}
