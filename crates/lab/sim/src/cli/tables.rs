//! Tables of rows.

use std::fmt::Write;

use super::Study;
use super::batch::Row;

/// Table with a title, a head and lines; text columns are aligned to the left.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) head: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
}

/// Column of a table: its head, and a function that makes a cell.
type Column = (&'static str, fn(&Row, f64) -> String);

const WORKLOAD: Column = ("workload", |row, _| row.workload.clone());
const SETUP: Column = ("routing", |row, _| row.setup.clone());

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

/// Returns the table of a study.
pub(super) fn table(study: &Study, rows: &[Row], good_ms: f64) -> Table {
    let (title, first): (_, Vec<Column>) = match study {
        Study::Policies { .. } => ("Policies", vec![WORKLOAD, SETUP]),
        Study::Trace { .. } => ("A trace", vec![SETUP]),
    };
    let columns: Vec<Column> = first.into_iter().chain(FIGURES).collect();
    let line = |row: &Row| columns.iter().map(|(_, cell)| cell(row, good_ms)).collect();
    Table {
        title: title.to_owned(),
        head: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
        lines: rows.iter().map(line).collect(),
    }
}

impl Table {
    /// Formats the table for a terminal.
    pub(super) fn plain(&self) -> String {
        let mut text = String::new();
        for line in [&self.head].into_iter().chain(&self.lines) {
            for (column, cell) in line.iter().enumerate() {
                let width = self.width(column);
                let _infallible = if self.is_text(column) {
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

    /// Formats the table as Markdown.
    pub(super) fn markdown(&self) -> String {
        let rule = |column| if self.is_text(column) { "---" } else { "--:" };
        let rules: Vec<&str> = (0..self.head.len()).map(rule).collect();
        let mut text = format!("| {} |\n|{}|\n", self.head.join(" | "), rules.join("|"));
        for line in &self.lines {
            let _infallible = writeln!(text, "| {} |", line.join(" | "));
        }
        text
    }

    /// Returns true if a column is of text: if any of its cells is, since names may look like
    /// numbers.
    fn is_text(&self, column: usize) -> bool {
        let is_number = |cell: &str| NO_NUMBER == cell || cell.parse::<f64>().is_ok();
        self.lines.iter().any(|line| !is_number(&line[column]))
    }

    fn width(&self, column: usize) -> usize {
        let cells = [&self.head].into_iter().chain(&self.lines);
        cells.map(|line| line[column].chars().count()).max().unwrap_or(0)
    }
}

/// Text in place of a number that is not known.
pub(super) const NO_NUMBER: &str = "–";
