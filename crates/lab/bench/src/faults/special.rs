//! Tables of the parts other than the matrix.

use spillway_harness::{Grid, figure, percent};

use super::{
    fault::Fault,
    latency::Latency,
    results::{ResultOutcome, Results, SlowStart},
    slow::is_load_aware,
    tables::{Section, cpu, kinds, pair, retries, why},
};

/// Most inexcusable errors to show of one run.
const LISTED_MAX: usize = 3;

/// Returns the tables that have rows.
pub(crate) fn sections(results: &Results) -> Vec<Section> {
    let mut sections = Vec::new();
    if !results.mixed.is_empty() {
        sections.extend([mixed(results), places(results)]);
    }
    if !results.slow.is_empty() {
        sections.push(slow(results));
    }
    if !results.herd.is_empty() {
        sections.push(herd(results));
    }
    if results.runs().iter().any(|(_, run)| run.account().inexcusable > 0) {
        sections.push(without_excuse(results));
    }
    sections
}

fn mixed(results: &Results) -> Section {
    let mut grid = Grid::new([
        "policy",
        "requests",
        "errors",
        "no excuse",
        "lost",
        "doubled",
        "retries",
        "total p50/p99",
        "CPU",
        "by kind",
    ]);
    for row in &results.mixed {
        let name = row.policy.clone();
        let ResultOutcome::Measured(seen) = &row.outcome else {
            grid.push(vec![name, why(&row.outcome)]);
            continue;
        };
        let account = &seen.account;
        let clear = account.excused + account.inexcusable;
        let mut cells = vec![name];
        cells.extend(
            [account.sent, clear, account.inexcusable, account.lost, account.doubled]
                .map(|count| count.to_string()),
        );
        cells.extend([
            retries(seen.retries),
            pair(seen.latency.total_p50_ms, seen.latency.total_p99_ms),
            cpu(&seen.conditions),
            kinds(account),
        ]);
        grid.push(cells);
    }
    Section {
        title: "Mixed faults in random order".to_owned(),
        note: "Five replicas and a sixth that comes and goes; at most two in trouble at a time. \
               An error is excused if the request was on a replica that was broken at the time \
               and could not be sent again: the replica is the one that the reply names, else \
               the ones whose accounts list the request.",
        grid,
    }
}

fn places(results: &Results) -> Section {
    let mut grid = Grid::new(["policy", "replica", "trouble", "since s", "error", "count"]);
    for row in &results.mixed {
        let seen = row.outcome.measured();
        for place in seen.iter().flat_map(|seen| &seen.account.places) {
            grid.push(vec![
                row.policy.clone(),
                place.replica.map_or_else(|| "none".to_owned(), |replica| replica.to_string()),
                place.fault.map_or_else(|| "none".to_owned(), Fault::name),
                figure(place.since_s, 1),
                place.error.clone(),
                place.count.to_string(),
            ]);
        }
    }
    Section {
        title: "Mixed faults: where errors happened".to_owned(),
        note: "Replica `none`: no replica had received the request. Trouble `none`: the replica \
               was healthy.",
        grid,
    }
}

fn without_excuse(results: &Results) -> Section {
    let mut grid = Grid::new(["run", "request", "sent at s", "replica", "error", "why"]);
    for (name, run) in results.runs() {
        for error in run.account().listed.iter().take(LISTED_MAX) {
            grid.push(vec![
                name.clone(),
                error.id.clone(),
                figure(Some(error.sent_s), 2),
                error.replica.map_or_else(|| "none".to_owned(), |replica| replica.to_string()),
                error.error.clone(),
                error.why.to_string(),
            ]);
        }
    }
    Section {
        title: "Errors without excuse".to_owned(),
        note: "The first three of each run; the JSON has more.",
        grid,
    }
}

fn slow(results: &Results) -> Section {
    let mut grid = Grid::new([
        "policy",
        "limit",
        "p99 healthy ms",
        "transition",
        "slowed",
        "ratio",
        "first byte ratio",
        "victim's share",
        "errors",
        "lost",
        "CPU",
    ]);
    for row in &results.slow {
        let name = row.policy.clone();
        let limit = if is_load_aware(&row.policy) { "1.5" } else { "contrast" };
        let ResultOutcome::Measured(seen) = &row.outcome else {
            grid.push(vec![name, limit.to_owned(), why(&row.outcome)]);
            continue;
        };
        let p99 = |latency: &Latency| figure(latency.total_p99_ms, 0);
        grid.push(vec![
            name,
            limit.to_owned(),
            p99(&seen.healthy),
            p99(&seen.transition),
            p99(&seen.slowed),
            figure(seen.ratio, 2),
            figure(seen.first_byte_ratio, 2),
            format!("{} → {}", percent(seen.shares.0), percent(seen.shares.1)),
            seen.account.failed().to_string(),
            seen.account.lost.to_string(),
            cpu(&seen.conditions),
        ]);
    }
    Section {
        title: "One of four replicas ten times slower".to_owned(),
        note: "p99 of the whole reply; a request that failed counts as one of ten seconds. Ratio: \
               slowed over healthy in the same run, after three seconds to settle.",
        grid,
    }
}

fn herd(results: &Results) -> Section {
    let mut grid = Grid::new([
        "policy",
        "slow start",
        "p99 before ms",
        "8 s after joining",
        "next 8 s",
        "ratio",
        "first byte ratio",
        "share of the cold",
        "errors",
        "lost",
        "CPU",
    ]);
    for row in &results.herd {
        let start = if row.about == SlowStart::On { "10 s" } else { "off" };
        let ResultOutcome::Measured(seen) = &row.outcome else {
            grid.push(vec![row.policy.clone(), start.to_owned(), why(&row.outcome)]);
            continue;
        };
        let p99 = |latency: &Latency| figure(latency.total_p99_ms, 0);
        grid.push(vec![
            row.policy.clone(),
            start.to_owned(),
            p99(&seen.before),
            p99(&seen.joined),
            p99(&seen.later),
            figure(seen.ratio, 2),
            figure(seen.first_byte_ratio, 2),
            percent(Some(seen.cold_share)),
            seen.account.failed().to_string(),
            seen.account.lost.to_string(),
            cpu(&seen.conditions),
        ]);
    }
    Section {
        title: "Ten cold replicas join two warm ones".to_owned(),
        note: "Sixteen prompts of 2,000 tokens are shared by all requests; the warm replicas hold \
               them, the cold ones must compute each once. p99 of the whole reply; a request that \
               failed counts as one of ten seconds. The limit of 2 is for slow start on.",
        grid,
    }
}
