//! Text tables of a comparison, one for each scenario.

use std::fmt;

use spillway_harness::{Grid, figure};

use crate::{
    report::{ScenarioReport, Subject, SubjectReport, Summary},
    scenario::{BenchTarget, CpuUnit},
};

/// Text form of a report.
#[derive(Debug)]
pub(crate) struct TextTable<'a>(pub(crate) &'a ScenarioReport);

/// Title of a column and the function that formats its cells.
type Column = (&'static str, fn(&Summary) -> String);

const REQUEST_COLUMNS: [Column; 6] = [
    ("requests/s", |summary| figure(summary.requests_per_s, 0)),
    ("p50 us", |summary| figure(summary.latency_p50_us, 0)),
    ("p99 us", |summary| figure(summary.latency_p99_us, 0)),
    ("added p50", |summary| figure(summary.added_p50_us, 0)),
    ("added p99", |summary| figure(summary.added_p99_us, 0)),
    ("MiB", |summary| range(summary.resident_mib)),
];

const STREAM_COLUMNS: [Column; 7] = [
    ("tokens/s", |summary| figure(summary.tokens_per_s, 0)),
    ("first us", |summary| figure(summary.first_token_p50_us, 0)),
    ("added p50", |summary| figure(summary.first_token_added_p50_us, 0)),
    ("added p99", |summary| figure(summary.first_token_added_p99_us, 0)),
    ("gap p50", |summary| figure(summary.gap_p50_us, 0)),
    ("gap p99", |summary| figure(summary.gap_p99_us, 0)),
    ("MiB", |summary| range(summary.resident_mib)),
];

impl fmt::Display for TextTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let columns: &[Column] = match report.cpu_unit {
            CpuUnit::Requests10k => &REQUEST_COLUMNS,
            CpuUnit::Tokens1M => &STREAM_COLUMNS,
        };
        let scenario = report.scenario;
        let rounds = report.subjects.first().map_or(0, |subject| subject.samples.len());
        writeln!(f, "{} ({rounds} rounds, medians)", scenario.description())?;
        let titles = columns.iter().map(|(title, _)| *title);
        let first = ["", report.cpu_unit.title(), "ratio", "target"];
        let mut grid = Grid::new(first.into_iter().chain(titles).chain(["MiB at start", "errors"]));
        for subject in &report.subjects {
            grid.push(row(subject, report.target, columns));
        }
        f.write_str(&grid.text())
    }
}

fn row(report: &SubjectReport, target: Option<BenchTarget>, columns: &[Column]) -> Vec<String> {
    let summary = &report.summary;
    let verdict = match (report.subject, target) {
        (Subject::Spillway, Some(target)) => verdict(target, report.is_target_met),
        _ => String::new(),
    };
    let mut cells = vec![
        report.subject.to_string(),
        figure(summary.cpu_s_per_unit, 3),
        figure(summary.cpu_ratio, 2),
        verdict,
    ];
    cells.extend(columns.iter().map(|(_, cell)| cell(summary)));
    cells.push(figure(report.start_mib, 0));
    cells.push(summary.errors.to_string());
    cells
}

fn verdict(target: BenchTarget, is_met: Option<bool>) -> String {
    let aim = match target {
        BenchTarget::CpuRatioMax(max) => format!("<= {max:.1}"),
        BenchTarget::AddedP50UsMax(max) => format!("+{max:.0} us"),
    };
    match is_met {
        Some(true) => format!("{aim} ok"),
        Some(false) => format!("{aim} MISSED"),
        None => aim,
    }
}

fn range(values: Option<(f64, f64)>) -> String {
    values.map_or_else(|| "-".to_owned(), |(first, last)| format!("{first:.0}->{last:.0}"))
}
