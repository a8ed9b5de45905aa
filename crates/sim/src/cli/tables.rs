//! Tables of rows.

use std::fmt::Write;

use super::Command;
use super::batch::Row;

/// Table with a title, a head and lines; text columns are aligned to the left.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: &'static str,
    head: Vec<&'static str>,
    lines: Vec<Vec<String>>,
}

/// Column of a table: its head, and a function that makes a cell.
type Column = (&'static str, fn(&Row, f64) -> String);

const WORKLOAD: Column = ("workload", |row, _| row.workload.clone());
const SETUP: Column = ("routing", |row, _| row.setup.clone());
const NODES: Column = ("nodes a region", |row, _| row.nodes.to_string());

const FIGURES: [Column; 13] = [
    ("good/s", |row, good_ms| format!("{:.1}", row.figures.goodput_per_s(good_ms))),
    ("p50 ms", |row, _| format!("{:.0}", row.figures.first_token_ms.p50)),
    ("p90 ms", |row, _| format!("{:.0}", row.figures.first_token_ms.p90)),
    ("p99 ms", |row, _| format!("{:.0}", row.figures.first_token_ms.p99)),
    ("reply p50 ms", |row, _| format!("{:.0}", row.figures.reply_ms.p50)),
    ("cached %", |row, _| format!("{:.1}", row.figures.cached_share * 100.0)),
    ("work skew", |row, _| format!("{:.2}", row.figures.work_skew())),
    ("request skew", |row, _| format!("{:.2}", row.figures.request_skew())),
    ("KV held %", |row, _| format!("{:.0}", row.figures.kv_share() * 100.0)),
    ("elsewhere %", |row, _| format!("{:.1}", row.figures.forwarded_share * 100.0)),
    ("waited %", |row, _| format!("{:.1}", row.figures.waited_share * 100.0)),
    ("failed", |row, _| row.figures.failed.to_string()),
    ("error p50 %", |row, _| format!("{:.0}", row.figures.prediction_error.p50 * 100.0)),
];

/// Returns the table of a command.
pub(super) fn table(command: &Command, rows: &[Row], good_ms: f64) -> Table {
    let (title, first): (_, Vec<Column>) = match command {
        Command::Compare { .. } => ("Policies", vec![WORKLOAD, SETUP]),
        Command::Locality => ("Nodes in a region", vec![NODES, SETUP]),
        Command::Hot => ("One hot prefix", vec![SETUP]),
        Command::Ablate { .. } => ("What each part is worth", vec![WORKLOAD, SETUP]),
        Command::Trace { .. } | Command::Page | Command::Capacity(_) => ("A trace", vec![SETUP]),
    };
    let columns: Vec<Column> = first.into_iter().chain(FIGURES).collect();
    let line = |row: &Row| columns.iter().map(|(_, cell)| cell(row, good_ms)).collect();
    Table {
        title,
        head: columns.iter().map(|(name, _)| *name).collect(),
        lines: rows.iter().map(line).collect(),
    }
}

/// Formats a table for a terminal.
pub(super) fn plain(table: &Table) -> String {
    let width = |column: usize| {
        let cells = table.lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0).max(table.head[column].chars().count())
    };
    let mut text = String::new();
    let head: Vec<String> = table.head.iter().map(|name| (*name).to_owned()).collect();
    for line in [&head].into_iter().chain(&table.lines) {
        for (column, cell) in line.iter().enumerate() {
            let width = width(column);
            // A column is of text if any of its cells is: names may look like numbers.
            let is_text = table.lines.iter().any(|line| line[column].parse::<f64>().is_err());
            let _infallible = if is_text {
                write!(text, "{cell:<width$}  ")
            } else {
                write!(text, "{cell:>width$}  ")
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Formats a table as Markdown.
pub(super) fn markdown(table: &Table) -> String {
    let is_text =
        |column: usize| table.lines.iter().any(|line| line[column].parse::<f64>().is_err());
    let rule: Vec<String> = (0..table.head.len())
        .map(|column| if is_text(column) { "---" } else { "--:" }.to_owned())
        .collect();
    let mut text = format!("| {} |\n|{}|\n", table.head.join(" | "), rule.join("|"));
    for line in &table.lines {
        let _infallible = writeln!(text, "| {} |", line.join(" | "));
    }
    text
}
