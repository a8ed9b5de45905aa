//! Tables and texts that fit the terminal.

use std::io::{IsTerminal, stdout};

use crate::output;

/// Width in characters of a terminal that does not report its own.
const USUAL_WIDTH: usize = 80;
/// Number of characters below which no cell is cut: shorter ones would be useless.
const CELL_MIN: usize = 12;

/// Returns the characters that a line may have: the terminal's width, or the environment variable
/// `COLUMNS`; without a limit if the output goes elsewhere.
pub(crate) fn width() -> usize {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    if let Some(columns) = said.filter(|columns| *columns > 0) {
        return columns;
    }
    if !stdout().is_terminal() {
        return usize::MAX;
    }
    terminal_size::terminal_size().map_or(USUAL_WIDTH, |(width, _)| usize::from(width.0))
}

/// A table with aligned columns.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The headings, then the cells of each row. All have as many.
    rows: Vec<Vec<String>>,
    /// Columns in the order in which they are left out of a narrow table.
    droppable: Vec<usize>,
}

impl Table {
    /// Makes a table of a row of headings and rows of cells, all of the same length.
    pub(crate) fn new(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
        let rows = std::iter::once(headings).chain(rows).map(cells).collect();
        Self { rows, droppable: Vec::new() }
    }

    /// Names the columns that a narrow table is shown without, the least important first.
    pub(crate) fn dropping(mut self, headings: &[&str]) -> Self {
        let place = |heading: &&str| self.rows[0].iter().position(|it| it == heading);
        self.droppable = headings.iter().filter_map(place).collect();
        self
    }

    /// Formats the table in lines of at most `width` characters: first without the columns that
    /// matter least, then with cells cut.
    pub(crate) fn text(&self, width: usize) -> String {
        let mut dropped = 0;
        loop {
            let shown = self.without(&self.droppable[..dropped]);
            let widths = widths(&shown);
            let is_last = dropped == self.droppable.len();
            if total(&widths) <= width {
                return lines(&shown, &widths);
            }
            if is_last {
                return lines(&shown, &cut(widths, width));
            }
            dropped += 1;
        }
    }

    fn without(&self, dropped: &[usize]) -> Vec<Vec<&str>> {
        let kept = |row: &'_ [String]| -> Vec<usize> {
            (0..row.len()).filter(|column| !dropped.contains(column)).collect()
        };
        let kept = self.rows.first().map(|row| kept(row)).unwrap_or_default();
        let cells = self.rows.iter().map(|row| kept.iter().map(|at| row[*at].as_str()).collect());
        cells.collect()
    }
}

/// Returns the cells of a row as they are shown.
pub(crate) fn cells(row: Vec<String>) -> Vec<String> {
    row.into_iter().map(|cell| output::cell(&cell).into_owned()).collect()
}

fn widths(rows: &[Vec<&str>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    (0..columns).map(|column| width(column).unwrap_or(0)).collect()
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// Narrows the widest columns until a line fits, or no column can be narrowed.
fn cut(mut widths: Vec<usize>, width: usize) -> Vec<usize> {
    while total(&widths) > width {
        let Some(widest) = widths.iter_mut().filter(|it| **it > CELL_MIN).max() else { break };
        *widest -= 1;
    }
    widths
}

fn lines(rows: &[Vec<&str>], widths: &[usize]) -> String {
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| fitted(cell, *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a cell with exactly `width` characters: filled up, or cut.
pub(crate) fn fitted(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return format!("{cell:<width$}");
    }
    let begin: String = cell.chars().take(width.saturating_sub(1)).collect();
    format!("{begin}…")
}

/// Breaks a text between words into lines of at most `width` characters. A longer word has a line of
/// its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let length = lines.last().map_or(0, |line| line.chars().count());
        if length > 0 && length.saturating_add(1 + word.chars().count()) > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// Returns a duration in the usual form, e.g. `12 s`, `3 h 5 min`.
pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |cells: &[&str]| cells.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let rows = [row(&["gpu-a", "http://10.0.0.1:8000", "serving", "llama-3.1-8b"])];
        Table::new(&["name", "address", "state", "models"], rows).dropping(&["models", "address"])
    }

    #[test]
    fn a_wide_terminal_shows_everything_and_a_narrow_one_what_matters() {
        let all = table().text(usize::MAX);
        assert_eq!(
            all,
            "name   address               state    models\n\
             gpu-a  http://10.0.0.1:8000  serving  llama-3.1-8b"
        );
        assert_eq!(table().text(50), all);
        assert!(!table().text(40).contains("llama") && table().text(40).contains("10.0.0.1"));
        assert_eq!(table().text(20), "name   state\ngpu-a  serving");
    }

    #[test]
    fn what_can_not_be_dropped_is_cut() {
        let cells = vec!["a-very-long-name-of-a-replica".to_owned(), "serving".to_owned()];
        let text = Table::new(&["name", "state"], [cells]).text(30);
        assert_eq!(text.lines().nth(1), Some("a-very-long-name-of-…  serving"));
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
    }

    #[test]
    fn no_cell_makes_up_rows() {
        let cells = vec!["a\nb  serving".to_owned(), "\u{202e}down".to_owned()];
        let text = Table::new(&["name", "state"], [cells]).text(usize::MAX);
        assert_eq!(text, "name               state\na\\u000ab  serving  \\u202edown");
    }

    #[test]
    fn a_text_is_broken_between_words() {
        let text = "degraded: serves 2 of 3 replicas";
        assert_eq!(wrapped(text, 20), ["degraded: serves 2", "of 3 replicas"]);
        assert_eq!(wrapped(text, usize::MAX), [text]);
        assert_eq!(wrapped("", 10), [""]);
        assert_eq!(wrapped("unbreakable a", 4), ["unbreakable", "a"]);
    }

    #[test]
    fn a_duration_is_said_in_two_units_at_most() {
        for (seconds, text) in
            [(5, "5 s"), (125, "2 min"), (11_100, "3 h 5 min"), (180_000, "2 d 2 h")]
        {
            assert_eq!(duration(seconds), text);
        }
    }
}
