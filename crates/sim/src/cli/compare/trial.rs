//! Trial: all baselines in each world with one seed, of which the finalists run with more seeds.

use std::collections::BTreeSet;

use spillway_sim::{Entry, Row, Standing, Traces};

use super::experiments::{Experiment, Part};
use super::task::{Task, scores};

/// Name of the trial among the parts of a contest.
pub(super) const TRIAL: &str = "trial";
/// Seed of the trial, which is none of the report's: whoever is lucky with it gains nothing there.
pub(super) const SEED: u64 = 11;
/// Baselines of each world that are finalists by goodput, and as many by the 95th percentile.
pub(super) const PLACES: usize = 3;

/// Beginning of the names of SkyWalker's variants.
pub(super) const SKYWALKER: &str = "skywalker";
/// End of the names of the baselines that never leave a region.
pub(super) const LOCAL: &str = "-local";

/// Runs the baselines that experiments have on trial in each of their worlds. Scores that are known
/// are taken from there.
///
/// # Errors
///
/// Returns an error if a world can't be made, or if a run broke off.
pub(super) fn run(
    experiments: &[Experiment],
    known: &[Entry],
    traces: &Traces,
) -> anyhow::Result<Part> {
    let tasks: Vec<Task<'_>> = experiments.iter().flat_map(tasks).collect();
    let entries = scores(&tasks.iter().collect::<Vec<_>>(), known, traces)?;
    Ok(Part { experiment: TRIAL.to_owned(), entries })
}

fn tasks(experiment: &Experiment) -> Vec<Task<'_>> {
    let world = |(cell, conditions)| {
        let task = move |contender| Task { cell, conditions, contender, seed: SEED };
        experiment.on_trial.iter().map(task)
    };
    experiment.worlds().flat_map(world).collect()
}

/// Returns the names of the baselines of a trial that go on: the best by goodput and by the 95th
/// percentile, and the best of those families that the page has sections for.
pub(super) fn finalists(standing: &Standing) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for rows in [by_goodput(standing), by_p95(standing)] {
        let is_skywalker = |row: &&&Row| row.contender.starts_with(SKYWALKER);
        let is_local = |row: &&&Row| row.contender.ends_with(LOCAL);
        let all = rows.iter().take(PLACES);
        let all = all.chain(rows.iter().find(is_skywalker)).chain(rows.iter().find(is_local));
        names.extend(all.map(|row| row.contender.as_str()));
    }
    names
}

/// Returns the rows of a standing, the highest goodput first.
pub(super) fn by_goodput(standing: &Standing) -> Vec<&Row> {
    standing.rows.iter().collect()
}

/// Returns the rows of a standing, the lowest 95th percentile first; of equals that with the higher
/// goodput.
pub(super) fn by_p95(standing: &Standing) -> Vec<&Row> {
    let mut rows = by_goodput(standing);
    rows.sort_by(|a, b| a.mean.p95_ms.total_cmp(&b.mean.p95_ms));
    rows
}

#[cfg(test)]
mod tests {
    use spillway_sim::{Baseline, Cell, Conditions, Contender, Role, Score};

    use super::*;

    fn entry(name: &str, goodput_per_s: f64, p95_ms: f64) -> Entry {
        Entry {
            cell: "no-reuse".to_owned(),
            conditions: Conditions::default(),
            contender: name.to_owned(),
            role: Role::Baseline,
            seed: SEED,
            score: Score { goodput_per_s, p95_ms, ..Score::default() },
        }
    }

    #[test]
    fn the_best_of_each_figure_and_of_each_family_are_finalists() {
        let entries = [
            entry("gke", 10.0, 900.0),
            entry("gorgo", 9.0, 800.0),
            entry("llm-d-central", 8.0, 700.0),
            entry("preble-central", 7.0, 100.0),
            entry("dynamo-central", 7.0, 600.0),
            entry("prequal-central", 6.0, 200.0),
            entry("gorgo-central", 5.0, 300.0),
            entry("skywalker-2", 4.0, 900.0),
            entry("skywalker-8", 3.0, 800.0),
            entry("gke-local", 2.0, 900.0),
            entry("lmetric-local", 1.0, 1000.0),
        ];
        let standings = Standing::all(&entries);
        let names: Vec<&str> = finalists(&standings[0]).into_iter().collect();
        let best = ["gke", "gke-local", "gorgo", "gorgo-central", "llm-d-central"];
        let rest = ["preble-central", "prequal-central", "skywalker-2", "skywalker-8"];
        assert_eq!(names, [&best[..], &rest[..]].concat());
    }

    #[test]
    fn known_scores_are_not_made_again() {
        let experiment = Experiment {
            name: "main",
            cells: vec![Cell::named("no-reuse").unwrap()],
            contenders: Vec::new(),
            on_trial: ["gke", "gorgo"]
                .map(|name| Contender::baseline(Baseline::named(name).unwrap()))
                .to_vec(),
            conditions: vec![Conditions::default()],
            seeds: vec![21],
        };
        // None of these has the seed, the world or the contender that the trial asks for.
        let strangers = [
            Entry { seed: 21, ..entry("gke", 1.0, 1.0) },
            Entry { cell: "trees".to_owned(), ..entry("gke", 1.0, 1.0) },
            entry("sglang-central", 1.0, 1.0),
        ];
        // What is on trial does not change; Spillway does.
        let changed = Entry { role: Role::Spillway, ..entry("gke", 42.0, 17.0) };
        let known = [&strangers[..], &[entry("gorgo", 42.0, 17.0), changed]].concat();
        let part = run(&[experiment], &known, &Traces::default()).unwrap();
        let goodput: Vec<(&str, bool)> = part
            .entries
            .iter()
            .map(|entry| (entry.contender.as_str(), entry.score.goodput_per_s == 42.0))
            .collect();
        assert_eq!(goodput, [("gke", false), ("gorgo", true)]);
        assert!(part.entries[0].score.goodput_per_s > 1.0);
    }
}
