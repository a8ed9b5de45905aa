//! Table of figures, for the terminal, a page and JSON.

use std::io::{self, Write as _};

use serde_json::{Map, Value};
use spillway_harness::{Grid, figure};

/// Title of a column of numbers with its unit, and the decimals to show.
pub(super) type Column = (&'static str, usize);

/// Rows of figures under their columns.
#[derive(Clone, Debug)]
pub(super) struct ScaleFigures {
    /// Title of the labels.
    label: &'static str,
    columns: &'static [Column],
    rows: Vec<(String, Vec<Option<f64>>)>,
}

impl ScaleFigures {
    /// Returns a table without rows.
    pub(super) fn new(label: &'static str, columns: &'static [Column]) -> Self {
        Self { label, columns, rows: Vec::new() }
    }

    /// Appends a row with a value for each column; a value that is not finite is unknown.
    pub(super) fn push(&mut self, label: impl Into<String>, values: &[f64]) {
        let values = values.iter().map(|value| value.is_finite().then_some(*value));
        self.rows.push((label.into(), values.collect()));
    }

    /// Returns the table as text cells.
    pub(super) fn grid(&self) -> Grid {
        let titles = self.columns.iter().map(|(title, _)| *title);
        let mut grid = Grid::new([self.label].into_iter().chain(titles));
        for (label, values) in &self.rows {
            let cells = values.iter().zip(self.columns);
            let cells = cells.map(|(value, (_, decimals))| figure(*value, *decimals));
            grid.push([label.clone()].into_iter().chain(cells).collect());
        }
        grid
    }

    /// Returns an object for each row, with the titles as keys and all decimals.
    pub(super) fn json(&self) -> Value {
        let object = |(label, values): &(String, Vec<Option<f64>>)| {
            let mut object = Map::new();
            object.insert(self.label.to_owned(), label.as_str().into());
            for (value, (title, _)) in values.iter().zip(self.columns) {
                object.insert((*title).to_owned(), (*value).into());
            }
            Value::Object(object)
        };
        self.rows.iter().map(object).collect()
    }
}

/// Shows how far a run is. A closed stderr must not end it.
pub(super) fn progress(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_shown_rounded_and_kept_whole() {
        let mut figures = ScaleFigures::new("what", &[("MiB", 1), ("ms", 0)]);
        figures.push("a node", &[41.26, f64::NAN]);
        assert_eq!(figures.grid().text(), "what     MiB  ms\na node  41.3   –\n");
        let expected = serde_json::json!([{ "what": "a node", "MiB": 41.26, "ms": null }]);
        assert_eq!(figures.json(), expected);
    }
}
