//! Table of the cells in which something breaks.

use spillway_sim::{Entry, Fates, FaultScore, Standing};

use super::tables::{percent, table};
use crate::cli::tables::{NO_NUMBER, Table};

/// Returns the table of the figures of faults.
pub(super) fn faults(entries: &[Entry]) -> Table {
    let standings = Standing::all(entries);
    let lines = standings.iter().flat_map(|standing| {
        standing.rows.iter().filter_map(|row| {
            let first = [standing.cell.clone(), row.contender.clone()];
            Some(first.into_iter().chain(figures(&row.mean.faults?)).collect())
        })
    });
    let head = "cell | router | answered % | shed % | failed % | later: answered % | shed % | \
        failed % | again % | recovered s";
    table("Faults", head, lines.collect())
}

/// Formats the figures of faults, in the order of [`faults`].
fn figures(score: &FaultScore) -> Vec<String> {
    let fates = |fates: &Fates| [fates.answered, fates.shed, fates.failed].map(percent);
    let mut line = Vec::from(fates(&score.during));
    line.extend(fates(&score.after));
    line.push(score.served_again.map_or_else(|| NO_NUMBER.to_owned(), percent));
    line.push(score.recovered_s.map_or_else(|| "never".to_owned(), |s| format!("{s:.0}")));
    line
}
