//! Page with a table of all scenarios of a comparison: a row for each subject.

use std::{path::Path, process::Command};

use spillway_harness::{Grid, figure};

use crate::{
    compare::CompareSpec,
    marks,
    origin::Origin,
    peers,
    proxy::Layout,
    report::{ScenarioReport, Subject, SubjectReport, Summary},
    scenario::Scenario,
};

/// Maker of the table, as the marks of its part name it; the rest of the page is written by hand.
const MAKER: &str = "compare --markdown";

/// Columns of CPU time over nginx's.
const RATIOS: [(Scenario, &str); 6] = [
    (Scenario::Rps1k, "1 KB, 64 connections"),
    (Scenario::Rps16k, "16 KB"),
    (Scenario::Rps128k, "128 KB"),
    (Scenario::Open500, "1 KB, 500 requests/s"),
    (Scenario::SsePaced, "a token each 5 ms"),
    (Scenario::SseSaturated, "tokens, saturated"),
];

/// Column of one figure from one scenario, with the function that picks it.
type Column = (Scenario, &'static str, fn(&Summary) -> Option<f64>);

/// Columns of latency and throughput.
const FIGURES: [Column; 4] = [
    (Scenario::Open500, "added at p50, 500 requests/s, µs", |summary| summary.added_p50_us),
    (Scenario::SsePaced, "added to the first token at p50, paced, µs", |summary| {
        summary.first_token_added_p50_us
    }),
    (Scenario::Rps1k, "requests/s, 1 KB", |summary| summary.requests_per_s),
    (Scenario::SseSaturated, "tokens/s, saturated", |summary| summary.tokens_per_s),
];

/// Returns the text of a page about the origin of its figures.
pub(crate) fn origin(spec: &CompareSpec, spillway: &Path) -> String {
    let here = Origin::here(spillway);
    let peers = match spec.peers.as_slice() {
        [] => String::new(),
        _ => format!(", {}", peers::versions(&spec.peers_folder)),
    };
    format!(
        "```sh\n{}\n```\n\n{}, on {}. {}, {}{peers}. {} interleaved rounds of {} s, medians.\n",
        here.command,
        here.date,
        here.machine,
        here.version,
        nginx_version(&spec.nginx),
        spec.rounds,
        spec.window.as_secs_f64(),
    )
}

/// Checks that the page `file` can be read and has the marks: a run takes too long to find that out
/// at its end.
///
/// # Errors
/// Returns an error that names the missing part.
pub(crate) fn check(file: &Path) -> anyhow::Result<()> {
    marks::check(file, MAKER)
}

/// Writes `origin` and the tables of `reports` between the marks of the page `file`.
///
/// # Errors
/// Returns an error if the page has no such marks, or cannot be read or written.
pub(crate) fn write(reports: &[ScenarioReport], origin: &str, file: &Path) -> anyhow::Result<()> {
    marks::write(file, MAKER, &format!("\n{origin}\n{}", tables(reports)))
}

fn tables(reports: &[ScenarioReport]) -> String {
    format!("{}\n{}", ratio_table(reports).markdown(), figure_table(reports).markdown())
}

/// Returns CPU time over nginx's and memory; nginx's own CPU time is in the last row.
fn ratio_table(reports: &[ScenarioReport]) -> Grid {
    let titles = RATIOS.iter().map(|(_, title)| *title);
    let mut grid =
        Grid::new(["CPU over nginx's"].into_iter().chain(titles).chain(["MiB at start"]));
    for subject in subjects(reports).into_iter().filter(|subject| *subject != Subject::Direct) {
        let start_mib = of(reports, subject).find_map(|report| report.start_mib);
        let ratio = |scenario| in_scenario(reports, scenario, subject)?.summary.cpu_ratio;
        let cells = RATIOS.iter().map(|(scenario, _)| multiple(ratio(*scenario)));
        grid.push(row(subject_title(subject), cells, figure(start_mib, 0)));
    }
    let cpu_s = |scenario| in_scenario(reports, scenario, Subject::Nginx)?.summary.cpu_s_per_unit;
    let cells = RATIOS.iter().map(|(scenario, _)| figure(cpu_s(*scenario), 3));
    let title = "nginx, CPU s per 10,000 requests or 1,000,000 tokens".to_owned();
    grid.push(row(title, cells, String::new()));
    grid
}

/// Returns latency, throughput and failed requests.
fn figure_table(reports: &[ScenarioReport]) -> Grid {
    let titles = FIGURES.iter().map(|(_, title, _)| *title);
    let mut grid = Grid::new([""].into_iter().chain(titles).chain(["failed requests"]));
    for subject in subjects(reports) {
        let cells = FIGURES.iter().map(|(scenario, _, pick)| {
            let report = in_scenario(reports, *scenario, subject);
            figure(report.and_then(|report| pick(&report.summary)), 0)
        });
        let errors: u64 = of(reports, subject).map(|report| report.summary.errors).sum();
        grid.push(row(subject_title(subject), cells, errors.to_string()));
    }
    grid
}

fn row(title: String, cells: impl Iterator<Item = String>, last: String) -> Vec<String> {
    [title].into_iter().chain(cells).chain([last]).collect()
}

/// Lists the subjects, each once. Not every scenario has all of them.
fn subjects(reports: &[ScenarioReport]) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for report in reports.iter().flat_map(|report| &report.subjects) {
        if !subjects.contains(&report.subject) {
            subjects.push(report.subject);
        }
    }
    subjects
}

fn of(reports: &[ScenarioReport], subject: Subject) -> impl Iterator<Item = &SubjectReport> {
    let all = reports.iter().flat_map(|report| &report.subjects);
    all.filter(move |report| report.subject == subject)
}

fn in_scenario(
    reports: &[ScenarioReport],
    scenario: Scenario,
    subject: Subject,
) -> Option<&SubjectReport> {
    let report = reports.iter().find(|report| report.scenario == scenario)?;
    report.subjects.iter().find(|report| report.subject == subject)
}

fn subject_title(subject: Subject) -> String {
    let layout = |layout| match layout {
        Layout::PerCore => "",
        Layout::Shared => ", `shared`",
    };
    match subject {
        Subject::Direct => "no proxy".to_owned(),
        Subject::Nginx => "nginx".to_owned(),
        Subject::NginxCopy => "nginx again (A/A)".to_owned(),
        Subject::Peer(peer) => peer.title().to_owned(),
        Subject::Spillway(at) => format!("**Spillway**{}", layout(at)),
        Subject::Earlier(at) => format!("Spillway, earlier build{}", layout(at)),
        Subject::With(at) => format!("Spillway with more{}", layout(at)),
    }
}

/// Formats a ratio with the digits that noise leaves; a dash for `None`.
fn multiple(ratio: Option<f64>) -> String {
    figure(ratio, if ratio.is_some_and(|ratio| ratio >= 100.0) { 0 } else { 2 })
}

/// Returns the version that nginx prints, such as `nginx/1.22.1`; its bare name if it prints none.
fn nginx_version(program: &Path) -> String {
    let output = Command::new(program).arg("-v").output();
    // nginx prints it to stderr.
    let text = output.map(|output| output.stderr).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let version = text.trim().rsplit_once("nginx/").map(|(_, version)| version);
    version.map_or_else(|| "nginx".to_owned(), |version| format!("nginx {version}"))
}

#[cfg(test)]
#[path = "page_test.rs"]
mod tests;
