//! Tables of the page that are about one topic each.

use std::collections::BTreeSet;

use spillway_sim::{Cell, Conditions, Entry, Role, Row, Standing};

use super::experiments::{BESIDES, GPUS, MAIN, Part};
use super::tables::{number, percent, ratio, routers, spillways, table};
use super::trial::{LOCAL, SKYWALKER, TRIAL};
use crate::cli::tables::{NO_NUMBER, Table};

/// Group of the cells with more load than can be served.
const OVERLOAD: &str = "overload";
/// Groups of the cells in which many want the same, or long contexts grow.
const CROWDS: [&str; 2] = ["crowd", "agents"];
/// Returns the entries of an experiment.
pub(super) fn entries<'a>(parts: &'a [Part], experiment: &str) -> &'a [Entry] {
    let part = parts.iter().find(|part| part.experiment == experiment);
    part.map_or(&[], |part| &part.entries)
}

/// Returns the seeds of all experiments but the trial, as text.
pub(super) fn seeds(parts: &[Part]) -> String {
    let report = parts.iter().filter(|part| part.experiment != TRIAL);
    let all = report.flat_map(|part| &part.entries).map(|entry| entry.seed);
    let seeds: Vec<String> = all.collect::<BTreeSet<_>>().iter().map(u64::to_string).collect();
    seeds.join(", ")
}

/// Returns the table of Spillway against SkyWalker's variants.
pub(super) fn skywalker(parts: &[Part]) -> Table {
    let kept =
        |entry: &&Entry| entry.role != Role::Baseline || entry.contender.starts_with(SKYWALKER);
    let kept: Vec<Entry> = entries(parts, MAIN).iter().filter(kept).cloned().collect();
    let standings = Standing::all(&kept);
    let first = routers(&standings).first().copied().unwrap_or_default();
    let lines = standings.iter().filter_map(|standing| {
        let row = standing.row(first)?;
        let best = standing.best_goodput.clone().unwrap_or_default();
        Some(vec![standing.cell.clone(), best, ratio(row.goodput), ratio(row.p95)])
    });
    let head = "cell | best SkyWalker | goodput × best | p95 × best";
    table("Against SkyWalker", head, lines.collect())
}

/// Returns the table of goodput by number of GPUs.
pub(super) fn goodput_by_gpus(parts: &[Part]) -> Table {
    let standings = by_gpus(parts);
    let lines = standings.iter().map(|standing| {
        let figure = |row: Option<&Row>| {
            row.map_or_else(|| NO_NUMBER.to_owned(), |row| format!("{:.2}", row.mean.goodput_per_s))
        };
        let mut line = vec![format!("{:.0}", gpus(standing)), figure(best_local(standing))];
        line.push(figure(standing.best_goodput.as_deref().and_then(|name| standing.row(name))));
        line.extend(routers(&standings).iter().map(|name| figure(standing.row(name))));
        line
    });
    let routers = routers(&standings);
    let mut head = vec!["GPUs", "best within regions", "best baseline"];
    head.extend(routers);
    table("Goodput by number of GPUs", &head.join(" | "), lines.collect())
}

/// Returns the standings of the experiment with more and fewer GPUs, from fewest to most.
pub(super) fn by_gpus(parts: &[Part]) -> Vec<Standing> {
    let mut standings = Standing::all(entries(parts, GPUS));
    standings.sort_by(|a, b| gpus(a).total_cmp(&gpus(b)));
    standings
}

fn gpus(standing: &Standing) -> f64 {
    standing.rows.first().map_or(0.0, |row| row.mean.gpus)
}

/// Returns the rows of the baselines that never leave a region, by falling goodput.
pub(super) fn locals(standing: &Standing) -> impl Iterator<Item = &Row> {
    let is_local = |row: &&Row| row.role == Role::Baseline && row.contender.ends_with(LOCAL);
    standing.rows.iter().filter(is_local)
}

fn best_local(standing: &Standing) -> Option<&Row> {
    locals(standing).next()
}

/// Returns the table of an experiment in which conditions vary: goodput and 95th percentile of each
/// of Spillway's routers as parts of those of the best baseline of the cell as it is.
pub(super) fn varied(parts: &[Part], experiment: &str, title: &str, of: Varied) -> Table {
    let main = entries(parts, MAIN);
    let entries = entries(parts, experiment);
    let mut values: Vec<f64> = entries.iter().map(|entry| of(&entry.conditions)).collect();
    values.push(of(&Conditions::default()));
    values.sort_unstable_by(f64::total_cmp);
    values.dedup();
    let is_plain = |_: &Entry, rival: &Entry| rival.conditions == Conditions::default();
    let is_varied = |entry: &&Entry| entries.iter().any(|one| one.cell == entry.cell);
    let all: Vec<Entry> = main.iter().filter(is_varied).chain(entries).cloned().collect();
    let standings = Standing::against(&all, is_plain, main);
    let mut lines = Vec::new();
    for plain in standings.iter().filter(|one| one.conditions == Conditions::default()) {
        let has_run = |row: &&Row| entries.iter().any(|one| one.contender == row.contender);
        for name in spillways(plain).filter(has_run).map(|row| &row.contender) {
            let figure = |value: &f64| {
                let is_at =
                    |one: &&Standing| one.cell == plain.cell && of(&one.conditions) == *value;
                let row = standings.iter().find(is_at).and_then(|one| one.row(name));
                row.map_or_else(
                    || NO_NUMBER.to_owned(),
                    |row| format!("{} / {}", number(row.goodput), number(row.p95)),
                )
            };
            let first = [plain.cell.clone(), name.clone()];
            lines.push(first.into_iter().chain(values.iter().map(figure)).collect());
        }
    }
    let values: Vec<String> = values.iter().map(f64::to_string).collect();
    let mut head = vec!["cell", "router"];
    head.extend(values.iter().map(String::as_str));
    table(title, &head.join(" | "), lines)
}

/// Condition that varies in an experiment, as a number.
pub(super) type Varied = fn(&Conditions) -> f64;

/// Returns the standings of the cells with crowds and agents.
pub(super) fn crowds(parts: &[Part]) -> Vec<Standing> {
    let is_crowd = |standing: &Standing| {
        Cell::named(&standing.cell).is_some_and(|cell| CROWDS.contains(&cell.group()))
    };
    Standing::all(entries(parts, BESIDES)).into_iter().filter(is_crowd).collect()
}

/// Returns the table of the requests of crowds: all routers that ran.
pub(super) fn crowd(parts: &[Part]) -> Table {
    crowd_of(&crowds(parts))
}

/// Returns the table of the requests of crowds in these standings.
pub(super) fn crowd_of(standings: &[Standing]) -> Table {
    let lines = standings.iter().flat_map(|standing| {
        standing.rows.iter().filter_map(|row| {
            let crowd = row.mean.crowd?;
            Some(vec![
                standing.cell.clone(),
                row.contender.clone(),
                format!("{:.0}", crowd.requests),
                format!("{:.0}", crowd.slow),
                format!("{:.0}", crowd.token_p50_ms),
                format!("{:.0}", crowd.token_p95_ms),
                format!("{:.0}", crowd.p95_ms),
                percent(crowd.forwarded_share),
            ])
        })
    });
    let head = "cell | router | questions | slow | tpot p50 ms | tpot p95 ms | p95 ms | \
        forwarded %";
    table("The crowd", head, lines.collect())
}

/// Returns the table of cells with more load than can be served: Spillway's routers and the best
/// baselines.
pub(super) fn overload(parts: &[Part]) -> Table {
    let is_overload = |standing: &Standing| {
        Cell::named(&standing.cell).is_some_and(|cell| cell.group() == OVERLOAD)
    };
    let standings = Standing::all(entries(parts, BESIDES));
    let lines = standings.iter().filter(|standing| is_overload(standing)).flat_map(|standing| {
        let is_shown = |row: &&Row| {
            let name = Some(&row.contender);
            row.role == Role::Spillway
                || name == standing.best_goodput.as_ref()
                || name == standing.best_p95.as_ref()
        };
        standing.rows.iter().filter(is_shown).map(|row| {
            let mean = &row.mean;
            vec![
                standing.cell.clone(),
                row.contender.clone(),
                format!("{:.2}", mean.goodput_per_s),
                number(row.goodput),
                format!("{:.0}", mean.p50_ms),
                format!("{:.0}", mean.p95_ms),
                number(row.p95),
                percent(mean.failed / mean.requests.max(1.0)),
            ]
        })
    });
    let head = "cell | router | goodput/s | × best | p50 ms | p95 ms | × best | failed %";
    table("Overload", head, lines.collect())
}

/// Returns the table of seconds until goodput is back after a disturbance.
pub(super) fn recovery(parts: &[Part]) -> Table {
    let all = [entries(parts, MAIN), entries(parts, BESIDES)].concat();
    let mut lines = Vec::new();
    for standing in Standing::all(&all) {
        let Some(disturbed_s) = Cell::named(&standing.cell).and_then(|cell| cell.disturbed_s())
        else {
            continue;
        };
        for row in spillways(&standing) {
            let seconds: Vec<String> = standing
                .recoveries_s(&all, &row.contender, disturbed_s)
                .into_iter()
                .map(|one| one.map_or_else(|| "never".to_owned(), |s| format!("{s:.0}")))
                .collect();
            lines.push(vec![
                standing.cell.clone(),
                standing.best_goodput.clone().unwrap_or_default(),
                row.contender.clone(),
                seconds.join(", "),
            ]);
        }
    }
    let head = "cell | best baseline | router | seconds, seed by seed";
    table("Recovery", head, lines)
}
