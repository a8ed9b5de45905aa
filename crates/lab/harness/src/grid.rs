//! Table of text, for the terminal and for a page.

/// Rows under a header, all of the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Returns a grid without rows.
    #[must_use]
    pub fn new(header: impl IntoIterator<Item: Into<String>>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Appends a row. Missing cells are empty.
    pub fn push(&mut self, mut row: Vec<String>) {
        row.resize(self.header.len(), String::new());
        self.rows.push(row);
    }

    /// Returns true without rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Formats aligned columns: the first one to the left, the others to the right.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = self.width(column);
                let padding = " ".repeat(width - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                match column {
                    0 => line.extend([cell, padding.as_str()]),
                    _ => line.extend([gap, padding.as_str(), cell]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Formats a Markdown table.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |row: &[String]| {
            // A bar would end the cell.
            let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = line(&self.header);
        text.push_str("|---");
        text.push_str(&"|--:".repeat(self.header.len().saturating_sub(1)));
        text.push_str("|\n");
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let rows = std::iter::once(&self.header).chain(&self.rows);
        rows.map(|row| row[column].chars().count()).max().unwrap_or_default()
    }
}

/// Formats a figure with so many decimals; a dash for `None`.
#[must_use]
pub fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Formats a share in percent; a dash for `None`.
#[must_use]
pub fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{:.0} %", value * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_short_rows_are_filled() {
        let mut grid = Grid::new(["policy", "p99", "x"]);
        grid.push(vec!["random".to_owned(), "1,234".to_owned(), "–".to_owned()]);
        grid.push(vec!["a|b".to_owned()]);
        assert_eq!(grid.text(), "policy    p99  x\nrandom  1,234  –\na|b\n");
        let expected =
            "| policy | p99 | x |\n|---|--:|--:|\n| random | 1,234 | – |\n| a\\|b |  |  |\n";
        assert_eq!(grid.markdown(), expected);
    }
}
