//! Judgement of the clocks of nodes: which of them differ from most others.

use super::super::problem::{Problem, ProblemKind, Urgency};
use super::duration::duration;

/// Difference in milliseconds from which on a clock is wrong. Synchronised clocks differ by some
/// milliseconds, and asking over a slow path errs by half a second; certificates and days of budgets
/// notice minutes.
const WRONG_MS: u64 = 30_000;

/// Returns the clocks that are wrong by those of most nodes, or that two nodes differ. `clocks_ms` has
/// each node with the time in milliseconds by which its clock is ahead of this node's.
pub(super) fn clocks(clocks_ms: &[(String, i64)]) -> Vec<Problem> {
    let mut sorted: Vec<i64> = clocks_ms.iter().map(|(_, ahead_ms)| *ahead_ms).collect();
    sorted.sort_unstable();
    let Some(median) = sorted.get(sorted.len() / 2).copied() else { return Vec::new() };
    let differs = |ahead_ms: &i64| ahead_ms.abs_diff(median) >= WRONG_MS;
    let agreeing = sorted.iter().filter(|ahead_ms| !differs(ahead_ms)).count();
    if agreeing * 2 > sorted.len() {
        let wrong = clocks_ms.iter().filter(|(_, ahead_ms)| differs(ahead_ms));
        return wrong.map(|(node, ahead_ms)| wrong_clock(node, ahead_ms - median)).collect();
    }
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let names: Vec<&str> = clocks_ms.iter().map(|(node, _)| node.as_str()).collect();
    let by = rounded(first.abs_diff(*last));
    vec![problem(&format!("The clocks of {} differ by {by}", names.join(", ")))]
}

fn wrong_clock(node: &str, ahead_ms: i64) -> Problem {
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    let by = rounded(ahead_ms.unsigned_abs());
    problem(&format!("The clock of node {node} is {by} {side} those of most nodes"))
}

/// Returns a difference to the nearest second: asking errs by some milliseconds.
fn rounded(ms: u64) -> String {
    duration(ms.saturating_add(500) / 1_000 * 1_000)
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

    fn found(clocks_ms: &[(&str, i64)]) -> Vec<String> {
        let clock = |(node, ahead_ms): &(&str, i64)| ((*node).to_owned(), *ahead_ms);
        let clocks_ms: Vec<_> = clocks_ms.iter().map(clock).collect();
        clocks(&clocks_ms).into_iter().map(|problem| problem.title).collect()
    }

    #[test]
    fn clocks_that_differ_by_moments_are_right() {
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&[("us", 0)]), [""; 0]);
        assert_eq!(found(&[("us", 0), ("eu", -700), ("ap", 29_000)]), [""; 0]);
    }

    #[test]
    fn the_clock_that_differs_from_most_is_wrong() {
        let others = [("us", 0), ("eu", 12), ("ap", 40 * DAY_MS)];
        let wrong = "The clock of node ap is 40 d ahead of those of most nodes";
        assert_eq!(found(&others), [wrong]);
        // The node that looks is the wrong one.
        let own = [("us", 0), ("eu", 3_600_000), ("ap", 3_600_100)];
        let wrong = "The clock of node us is 60 min behind those of most nodes";
        assert_eq!(found(&own), [wrong]);
    }

    #[test]
    fn where_no_majority_agrees_no_node_is_blamed() {
        let two = [("us", 0), ("eu", -DAY_MS)];
        assert_eq!(found(&two), ["The clocks of us, eu differ by 24 h"]);
        let four = [("a", 0), ("b", 0), ("c", 90_000), ("d", 90_000)];
        assert_eq!(found(&four), ["The clocks of a, b, c, d differ by 90 s"]);
    }
}
