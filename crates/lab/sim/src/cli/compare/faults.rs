//! Table of the cells in which something breaks.

use spillway_sim::{Entry, Fates, FaultScore, Standing};

use super::tables::{percent, table};
use crate::cli::tables::{NO_NUMBER, Table};

/// Explanation of the table.
pub(super) const FAULTS_TEXT: &str = "\
Something breaks for 60 s, after 60 s that count. `answered`, `shed` and `failed` are shares of the requests in percent: those
that came during the fault, and those that came later. Shed requests were told when to come again, after the patience of their
clients. `again` is the share of the clients that were turned away, came again when they had been told to, and were served then.
`recovered s` counts from the end of the fault until goodput is at least 95 % of its mean before the fault for the rest of the
run, in steps of 10 s. Broken replies are not continued here. Means over the seeds.";

/// Returns the table of the figures of faults.
pub(super) fn faults(entries: &[Entry]) -> Table {
    let standings = Standing::all(entries);
    let lines = standings.iter().flat_map(|standing| {
        standing.rows.iter().filter_map(|row| {
            let first = [standing.cell.clone(), row.contender.clone()];
            Some(first.into_iter().chain(figures(&row.mean.faults?)).collect())
        })
    });
    let head = [
        "cell",
        "router",
        "answered %",
        "shed %",
        "failed %",
        "later: answered %",
        "shed %",
        "failed %",
        "again %",
        "recovered s",
    ];
    table("Faults", &head, lines.collect())
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
