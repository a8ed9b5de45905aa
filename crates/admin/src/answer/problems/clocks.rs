//! Judgement of the clocks of nodes: which of them differ from most others.

use super::super::overview::NodeRow;
use super::super::problem::{Problem, ProblemKind, Urgency};


/// Difference in milliseconds from which on a clock is wrong. Synchronised clocks differ by some
/// milliseconds, and asking over a slow path errs by half a second; certificates and days of budgets
/// notice minutes.
const WRONG_MS: u64 = 30_000;

/// Returns the clocks that are wrong by those of most nodes, or that two nodes differ.
pub(super) fn clocks(nodes: &[NodeRow]) -> Vec<Problem> {
    let known: Vec<(&NodeRow, i64)> =
        nodes.iter().filter_map(|row| Some((row, row.clock_ahead_ms?))).collect();
    let mut sorted: Vec<i64> = known.iter().map(|(_, ahead_ms)| *ahead_ms).collect();
    sorted.sort_unstable();
    let Some(median) = sorted.get(sorted.len() / 2).copied() else { return Vec::new() };
    let differs = |ahead_ms: &i64| ahead_ms.abs_diff(median) >= WRONG_MS;
    let agreeing = sorted.iter().filter(|ahead_ms| !differs(ahead_ms)).count();
    let wrong = || known.iter().filter(|(_, ahead_ms)| differs(ahead_ms));
    if agreeing * 2 > sorted.len() {
        return wrong().map(|(row, ahead_ms)| wrong_clock(row, ahead_ms - median)).collect();
    }
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let names: Vec<&str> = known.iter().map(|(row, _)| row.name.as_str()).collect();
    let title =
        format!("The clocks of {} differ by {}", names.join(", "), rounded(first.abs_diff(*last)));
    vec![problem(&title)]
}

fn wrong_clock(row: &NodeRow, ahead_ms: i64) -> Problem {
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let by = rounded(ahead_ms.unsigned_abs());
    problem(&format!("The clock of node {} is {by} {side} those of most nodes", row.name))
}

/// Returns a difference to the nearest second: asking errs by some milliseconds.
fn rounded(ms: u64) -> String {
    super::duration(ms.saturating_add(500) / 1_000 * 1_000)
}

fn problem(title: &str) -> Problem {
    let cause = "Certificates, keys that expire, days of budgets and dates in logs go by this clock. \
                 Routing and rate limits don't.";
    let remedy = "See whether time synchronisation runs on that machine: timedatectl.";
    Problem::new(ProblemKind::ClockWrong, Urgency::Ticket, title, [cause, remedy])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn found(clocks_ms: &[(&str, Option<i64>)]) -> Vec<String> {
        let row = |(name, clock_ahead_ms): &(&str, Option<i64>)| NodeRow {
            name: (*name).to_owned(),
            clock_ahead_ms: *clock_ahead_ms,
            ..NodeRow::default()
        };
        let nodes: Vec<NodeRow> = clocks_ms.iter().map(row).collect();
        clocks(&nodes).into_iter().map(|problem| problem.title).collect()
    }

    #[test]
    fn clocks_that_differ_by_moments_are_right() {
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&[("us", Some(0))]), [""; 0]);
        assert_eq!(found(&[("us", Some(0)), ("eu", None)]), [""; 0]);
        assert_eq!(found(&[("us", Some(0)), ("eu", Some(-700)), ("ap", Some(29_000))]), [""; 0]);
    }

    #[test]
    fn the_clock_that_differs_from_most_is_wrong() {
        let others = [("us", Some(0)), ("eu", Some(12)), ("ap", Some(40 * DAY_MS))];
        let wrong = "The clock of node ap is 40 d ahead of those of most nodes";
        assert_eq!(found(&others), [wrong]);
        // The node that looks is the wrong one.
        let own = [("us", Some(0)), ("eu", Some(3_600_000)), ("ap", Some(3_600_100))];
        let wrong = "The clock of node us is 60 min behind those of most nodes";
        assert_eq!(found(&own), [wrong]);
    }

    #[test]
    fn where_no_majority_agrees_no_node_is_blamed() {
        let two = [("us", Some(0)), ("eu", Some(-DAY_MS)), ("ap", None)];
        assert_eq!(found(&two), ["The clocks of us, eu differ by 24 h"]);
        let four = [("a", Some(0)), ("b", Some(0)), ("c", Some(90_000)), ("d", Some(90_000))];
        assert_eq!(found(&four), ["The clocks of a, b, c, d differ by 90 s"]);
    }
}
