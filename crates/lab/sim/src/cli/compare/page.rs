//! Page of all experiments.

use std::fmt::Write;

use spillway_sim::{Baseline, Cell, Contender, Standing};

use super::arguments::every_cell;
use super::experiments::{FAULTS, LOSS, MAIN, NODES, Part, RTT, SIGNALS, SPEEDS};
use super::faults::faults;
use super::tables::{side_by_side, table, verdicts};
use super::topics::{
    Varied, crowd, crowds, entries, goodput_by_gpus, overload, recovery, seeds, skywalker, varied,
};
use super::trial::TRIAL;
use super::trial_tables::everybody;
use crate::cli::tables::Table;

/// Experiments with varied conditions: name, title, text and the condition.
const VARIED: [(&str, &str, &str, Varied); 5] = [
    (
        NODES,
        "Gateway nodes in each region",
        "Columns: nodes in each region. Nodes of one region hear of each other's requests late.",
        |conditions| conditions.nodes as f64,
    ),
    (
        SIGNALS,
        "Late signals",
        "Columns: milliseconds between two looks at a replica.",
        |conditions| conditions.signals_ms,
    ),
    (
        LOSS,
        "Lost news",
        "Columns: share of the news between nodes and between regions that is lost.",
        |conditions| conditions.lost,
    ),
    (
        RTT,
        "Wrong round-trip times",
        "Columns: error of the round-trip times that nodes believe. With 0.3 each pair of regions is \
         off by a factor between 1/1.3 and 1.3.",
        |conditions| conditions.rtt_error,
    ),
    (
        SPEEDS,
        "Wrong speeds",
        "Columns: error of the speeds of replicas that nodes learn. With 0.3 each node is wrong about \
         each replica by a factor between 1/1.3 and 1.3.",
        |conditions| conditions.speed_error,
    ),
];

/// Returns the page as Markdown.
pub(super) fn page(parts: &[Part], standings: &[Standing]) -> String {
    let mut text = format!("{}\n", words("head"));
    let seeds = seeds(parts);
    let _infallible = writeln!(text, "\nSeeds: {seeds}.\n\n## Cells\n\n{}", cells().markdown());
    let _infallible = write!(text, "## Baselines\n\n{}", baselines(parts).markdown());
    section(&mut text, &everybody(parts), words("everybody"));
    section(
        &mut text,
        &side_by_side("Against the best baseline of each cell", standings),
        words("summary"),
    );
    let _infallible = write!(text, "\n```text\n{}```\n\n", verdicts(standings));
    text.push_str("![Ratios by cell](routing.svg)\n");
    section(&mut text, &side_by_side("Crowds and agents", &crowds(parts)), words("crowds"));
    section(&mut text, &crowd(parts), words("crowd"));
    section(&mut text, &skywalker(parts), words("skywalker"));
    section(&mut text, &goodput_by_gpus(parts), words("gpus"));
    for (name, title, about, of) in VARIED {
        let about = format!("{about} {}", words("varied"));
        section(&mut text, &varied(parts, name, title, of), &about);
    }
    section(&mut text, &overload(parts), words("overload"));
    section(&mut text, &recovery(parts), words("recovery"));
    section(&mut text, &faults(entries(parts, FAULTS)), words("faults"));
    text
}

/// Returns the text of the page under this key.
fn words(key: &str) -> &'static str {
    let parts = include_str!("page.md").split("\n@");
    let text = parts.filter_map(|part| part.strip_prefix(key)?.strip_prefix('\n')).next();
    text.unwrap_or_default().trim_end()
}

/// Adds a table under its title; one without lines is left out.
fn section(text: &mut String, table: &Table, about: &str) {
    if !table.lines.is_empty() {
        let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
        let _infallible = write!(text, "\n## {}\n\n{about}{}", table.title, table.markdown());
    }
}

fn cells() -> Table {
    let line = |cell: &Cell| vec![format!("`{}`", cell.name()), cell.about().to_owned()];
    table("Cells", "cell | what it is", every_cell().map(line).collect())
}

/// Returns the table of the baselines that took part, if only in the trial.
fn baselines(parts: &[Part]) -> Table {
    let entries = [TRIAL, MAIN].map(|name| entries(parts, name));
    let took_part = |one: &&Baseline| {
        let mut all = entries.iter().flat_map(|entries| entries.iter());
        all.any(|entry| Contender::baseline_of(&entry.contender) == one.name)
    };
    let line = |baseline: &Baseline| {
        vec![
            format!("`{}`", baseline.name),
            baseline.about.to_string(),
            baseline.source.to_string(),
        ]
    };
    let lines = Baseline::all().iter().filter(took_part).map(line).collect();
    table("Baselines", "baseline | what it is | source", lines)
}
