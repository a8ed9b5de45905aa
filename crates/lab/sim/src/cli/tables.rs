//! Tables of rows.

use std::fmt::Write;

/// Table with a title, a head and lines; text columns are aligned to the left.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) title: String,
    pub(super) head: Vec<String>,
    pub(super) lines: Vec<Vec<String>>,
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

/// Text instead of a number that is not known.
pub(super) const NO_NUMBER: &str = "–";
