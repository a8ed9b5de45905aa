//! Command line of contests: names, tables of scores that were written before, and one run.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use spillway_sim::{Conditions, Entry, Role, Score};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_spillway-sim")).args(arguments).output().unwrap()
}

/// Returns the output of a command, which has to succeed.
fn print(arguments: &[&str]) -> String {
    let done = sim(arguments);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Returns the complaint of a command, which has to fail.
fn complain(arguments: &[&str]) -> String {
    let done = sim(arguments);
    assert!(!done.status.success());
    String::from_utf8(done.stderr).unwrap()
}

/// Returns a path in a directory for the files of one test.
fn file(test: &str, name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

fn entries(contender: &str, role: Role, goodput_per_s: f64, p95_ms: f64) -> Vec<Entry> {
    let entry = |seed: u64| Entry {
        cell: "chat-50".to_owned(),
        conditions: Conditions::default(),
        contender: contender.to_owned(),
        role,
        seed,
        // One seed is better than the other.
        score: Score {
            goodput_per_s: goodput_per_s * (1.0 + seed as f64 / 10.0),
            p95_ms,
            gpus: 12.0,
            ..Score::default()
        },
    };
    (0..2).map(entry).collect()
}

/// Returns the scores of three contenders.
fn contest() -> Vec<Entry> {
    [
        entries("spillway", Role::Spillway, 9.9, 210.0),
        entries("sglang-central", Role::Baseline, 10.0, 400.0),
        entries("lmetric-local", Role::Baseline, 9.0, 200.0),
    ]
    .concat()
}

/// Returns the scores of the same contenders with so many GPUs. With 12, two of them serve more.
fn with_gpus(gpus: usize) -> Vec<Entry> {
    let mut all = contest();
    for entry in &mut all {
        entry.conditions.replicas = Some(vec![gpus / 3; 3]);
        entry.score.gpus = gpus as f64;
        entry.score.goodput_per_s *= match (gpus, entry.contender.as_str()) {
            (12, "lmetric-local") => 10.0 / 9.0,
            (12, "spillway") => 10.1 / 9.9,
            _ => 1.0,
        };
    }
    all
}

/// Returns the scores of a trial of five baselines, of which all but `gke` are among the best.
fn trial() -> Vec<Entry> {
    let entry = |(contender, goodput_per_s, p95_ms)| {
        let [first, _] =
            entries(contender, Role::Baseline, goodput_per_s, p95_ms).try_into().unwrap();
        Entry { seed: 11, ..first }
    };
    [
        ("sglang-central", 10.0, 400.0),
        ("lmetric-local", 9.0, 200.0),
        ("dynamo-central", 8.0, 250.0),
        ("skywalker-8", 1.0, 900.0),
        ("gke", 0.0, 1_000.0),
    ]
    .map(entry)
    .to_vec()
}

/// Writes scores as `--json` does, and returns the file.
fn scores(test: &str) -> String {
    let slow = |entry: &Entry| Entry {
        conditions: Conditions { nodes: 4, ..Conditions::default() },
        score: Score { goodput_per_s: 5.25, p95_ms: 400.0, ..Score::default() },
        ..entry.clone()
    };
    let gpus = [with_gpus(9), with_gpus(12)].concat();
    let nodes: Vec<Entry> = contest()[..2].iter().map(slow).collect();
    let parts = serde_json::json!([
        { "experiment": "main", "entries": contest() },
        { "experiment": "gpus", "entries": gpus },
        { "experiment": "nodes", "entries": nodes },
        { "experiment": "trial", "entries": trial() },
    ]);
    let file = file(test, "scores.json");
    fs::write(&file, parts.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn written_scores_make_the_tables() {
    let text = print(&["compare", "--read", &scores("tables")]);
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let line = |first: &str| lines.iter().find(|line| line.first() == Some(&first)).unwrap();
    assert_eq!(line("spillway")[..5], ["spillway", "10.39", "0.99", "210", "1.05"]);
    assert_eq!(line("lmetric-local")[..5], ["lmetric-local", "9.45", "0.90", "200", "1.00"]);
    let summary = lines.iter().rfind(|line| line.first() == Some(&"chat-50")).unwrap();
    assert_eq!(summary[1..5], ["sglang-central", "10.50", "lmetric-local", "200"]);
    assert!(
        text.ends_with(
            "spillway: goodput >= 0.98 in 1 of 1 cells, p95 <= 1.10 in 1, both in 1; >= 1.00 and \
             <= 1.05 in 0\n"
        ),
        "{text}"
    );
}

#[test]
fn a_router_with_other_settings_stands_beside_the_first_where_it_differs() {
    let table = |factor: f64| {
        let name = "spillway:knowledge=events".to_owned();
        let other = |entry: &Entry| {
            let goodput_per_s = entry.score.goodput_per_s * factor;
            let score = Score { goodput_per_s, ..entry.score.clone() };
            Entry { contender: name.clone(), score, ..entry.clone() }
        };
        // The better one comes first in a standing, and yet second in the table.
        let others: Vec<Entry> = contest()[..2].iter().map(other).collect();
        let entries = [others, contest()].concat();
        let parts = serde_json::json!([{ "experiment": "main", "entries": entries }]);
        let scores = file(&format!("beside-{factor}"), "scores.json");
        fs::write(&scores, parts.to_string()).unwrap();
        let page = scores.with_file_name("routing.md");
        let [scores, page] = [&scores, &page].map(|path| path.to_str().unwrap());
        print(&["compare", "--page", "--read", scores, "--markdown", page]);
        fs::read_to_string(page).unwrap()
    };
    let (same, better) = (table(1.0), table(2.0));
    assert!(
        same.contains("forwarded % | goodput × best, knowledge=events | p95 × best, knowledge")
    );
    let row = |text: &str| {
        let start = "| chat-50 | sglang-central 10.50 | lmetric-local 200 | 0.99 ± ";
        text.lines().find(|line| line.starts_with(start)).unwrap().to_owned()
    };
    assert!(row(&same).ends_with("| = | = |"), "{same}");
    assert!(row(&better).contains(" | 1.98 ± "), "{better}");
}

#[test]
fn written_scores_make_the_page_and_its_plot() {
    let page = file("page", "routing.md");
    let arguments = ["compare", "--page", "--read", &scores("page"), "--markdown"];
    print(&[&arguments[..], &[page.to_str().unwrap()]].concat());
    let text = fs::read_to_string(&page).unwrap();
    assert!(
        text.contains("| chat-50 | sglang-central 10.50 | lmetric-local 200 | 0.99 ± "),
        "{text}"
    );
    for line in [
        "| `lmetric-local` | ",
        "Seeds: 0, 1.",
        // Part of the trial alone.
        "| `gke` | own region",
        "| `lmetric-local` | 1 | 0.90 / 1.00 | 0.90 / 1.00 |",
        "| `gke` | 0 | 0.01 / 5.00 | 0.01 / 5.00 |",
        "| 9 | 9.45 | 10.50 | 10.39 |",
        "| chat-50 | spillway | 0.99 / 1.05 | 0.50 / 2.00 |",
    ] {
        assert!(text.contains(line), "{line} is not on the page: {text}");
    }
    // Baselines that did not take part are not listed.
    assert!(!text.contains("`skywalker-2`"));
    let plot = fs::read_to_string(page.with_file_name("routing.svg")).unwrap();
    assert!(plot.contains(">chat-50<") && plot.matches("<circle").count() == 2, "{plot}");
}

#[test]
fn wrong_names_are_answered_with_those_that_there_are() {
    let error = complain(&["compare", "--cells", "chat-5"]);
    assert!(error.contains("no cell is called chat-5; there are chat-50, "), "{error}");
    let error = complain(&["compare", "--cells", "chat-50", "--routers", "spillway:kapa=1"]);
    assert!(error.contains("kapa") && error.contains("predicted.kappa"), "{error}");
    let error = complain(&["compare", "--cells", "chat-50", "--baselines", "best"]);
    assert!(error.contains("no router is called best") && error.contains("gke"), "{error}");
    let error = complain(&["compare", "--cells", "mooncake-1", "--baselines", "none"]);
    assert!(error.contains("--traces") && error.contains("mooncake_conversation"), "{error}");
    let error = complain(&["compare", "--cells", "chat-50", "--region-replicas", "4,4"]);
    assert!(error.contains("3 regions"), "{error}");
    let error = complain(&["compare", "--cells", "chat-50", "--trial", "trial.json"]);
    assert!(error.contains("--page"), "{error}");
    let list = print(&["compare", "--list"]);
    assert!(list.contains("skew-120-40-40") && list.contains("skywalker-ch"), "{list}");
}

#[test]
fn one_run_has_equal_figures_in_each_report() {
    let records = file("run", "records.csv");
    let run = ["run", "--cell", "no-reuse", "--seed", "3", "--records", records.to_str().unwrap()];
    let table = print(&run);
    let figures: serde_json::Value =
        serde_json::from_str(&print(&[&run[..], &["--json"]].concat())).unwrap();
    let requests = figures["world"]["requests"].as_f64().unwrap();
    assert!(requests > 1_000.0);
    let regions = figures["regions"].as_array().unwrap();
    let sum: f64 = regions.iter().map(|region| region["requests"].as_f64().unwrap()).sum();
    assert_eq!((regions.len(), sum), (3, requests));
    let world = table.lines().find(|line| line.starts_with("world")).unwrap();
    assert_eq!(world.split_whitespace().nth(2), Some(format!("{requests}").as_str()));
    let lines = fs::read_to_string(&records).unwrap().lines().count();
    assert_eq!(lines as f64, requests + 1.0);
}
