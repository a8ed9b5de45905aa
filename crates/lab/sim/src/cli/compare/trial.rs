//! Trial: all baselines in each world with one seed, of which the finalists run with more seeds.
//!
//! Central baselines run in the first region at first. The best of them are then tried in all other
//! regions, and each goes on where it was best.

use std::collections::BTreeSet;

use spillway_sim::{Cell, Conditions, Contender, Entry, Row, Standing, Traces};

use super::experiments::{Experiment, Part};
use super::task::{Task, scores};

/// Name of the trial among the parts of a contest.
pub(super) const TRIAL: &str = "trial";
/// Seed of the trial. The report uses other seeds, so a lucky result here is no advantage there.
pub(super) const SEED: u64 = 11;
/// Baselines of each world that are finalists by goodput, and as many by the 95th percentile.
const RANKS: usize = 3;

/// Central baselines of each world that are tried in all regions by goodput, and as many by the 95th
/// percentile.
const MOVED: usize = 3;
/// Most regions in which a central baseline is tried: all of the largest world with a trial.
const REGIONS_MAX: usize = 6;
/// End of the names of the baselines that route for all regions in one of them.
const CENTRAL: &str = "-central";

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
    let first: Vec<Task<'_>> = experiments.iter().flat_map(first_tasks).collect();
    let mut entries = scores(&first.iter().collect::<Vec<_>>(), known, traces)?;
    let standings = Standing::all(&entries);
    let moved: Vec<Task<'_>> =
        experiments.iter().flat_map(|experiment| moved_tasks(experiment, &standings)).collect();
    entries.extend(scores(&moved.iter().collect::<Vec<_>>(), known, traces)?);
    Ok(Part { experiment: TRIAL.to_owned(), entries })
}

/// Returns the central baselines in all regions but the first.
pub(super) fn elsewhere(baselines: &[Contender]) -> Vec<Contender> {
    let others = |one: &Contender| (1..REGIONS_MAX).map_while(|at| one.in_region(at)).collect();
    baselines.iter().flat_map(others as fn(&Contender) -> Vec<Contender>).collect()
}

fn first_tasks(experiment: &Experiment) -> Vec<Task<'_>> {
    let world = |(cell, conditions)| {
        let task = move |contender| Task { cell, conditions, contender, seed: SEED };
        experiment.on_trial.iter().map(task)
    };
    experiment.worlds().flat_map(world).collect()
}

/// Returns the runs of the best central baselines of each world in its other regions.
fn moved_tasks<'a>(experiment: &'a Experiment, standings: &[Standing]) -> Vec<Task<'a>> {
    let world = |(cell, conditions): (&'static Cell, &'a Conditions)| {
        let is_here = |one: &&Standing| one.cell == cell.name() && one.conditions == *conditions;
        let best = standings.iter().find(is_here).map(best_central).unwrap_or_default();
        let is_moved = move |one: &&Contender| {
            let is_there = one.conditions(conditions).central < Some(cell.regions());
            is_there && best.contains(Contender::baseline_of(one.name()))
        };
        let task = move |contender| Task { cell, conditions, contender, seed: SEED };
        experiment.elsewhere.iter().filter(is_moved).map(task).collect::<Vec<_>>()
    };
    experiment.worlds().flat_map(world).collect()
}

/// Returns the names of the central baselines that are tried in all regions.
fn best_central(standing: &Standing) -> BTreeSet<String> {
    let best = |rows: Vec<&Row>| {
        let central = rows.into_iter().filter(|row| row.contender.ends_with(CENTRAL));
        central.take(MOVED).map(|row| row.contender.clone()).collect::<Vec<_>>()
    };
    [by_goodput(standing), by_p95(standing)].into_iter().flat_map(best).collect()
}

/// Returns the names of the baselines of a trial that go on: the best by goodput and by the 95th
/// percentile, and the best of those families that the page has sections for.
pub(super) fn finalists(standing: &Standing) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for rows in [by_goodput(standing), by_p95(standing)] {
        let is_skywalker = |row: &&&Row| row.contender.starts_with(SKYWALKER);
        let is_local = |row: &&&Row| row.contender.ends_with(LOCAL);
        let all = rows.iter().take(RANKS);
        let all = all.chain(rows.iter().find(is_skywalker)).chain(rows.iter().find(is_local));
        names.extend(all.map(|row| row.contender.as_str()));
    }
    names
}

/// Returns the rows of a standing, the highest goodput first: of each baseline that of the best region.
pub(super) fn by_goodput(standing: &Standing) -> Vec<&Row> {
    best_regions(standing.rows.iter().collect())
}

/// Returns the rows of a standing, the lowest 95th percentile first; of equals that with the higher
/// goodput. Of each baseline it has that of the best region.
pub(super) fn by_p95(standing: &Standing) -> Vec<&Row> {
    let mut rows: Vec<&Row> = standing.rows.iter().collect();
    rows.sort_by(|a, b| a.mean.p95_ms.total_cmp(&b.mean.p95_ms));
    best_regions(rows)
}

/// Returns the first row of each baseline, whichever region it runs in.
fn best_regions(mut rows: Vec<&Row>) -> Vec<&Row> {
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(Contender::baseline_of(&row.contender).to_owned()));
    rows
}

#[cfg(test)]
mod tests {
    use spillway_sim::{Baseline, Role, Score};

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
    fn a_baseline_is_a_finalist_once_for_each_figure_in_its_best_region() {
        let entries = [
            entry("lmetric-central", 9.0, 400.0),
            entry("lmetric-central@1", 10.0, 300.0),
            entry("lmetric-central@2", 8.0, 200.0),
            entry("sglang-central", 7.0, 500.0),
            entry("sglang-central@1", 6.0, 600.0),
            entry("gke", 5.0, 700.0),
            entry("gorgo", 4.0, 800.0),
        ];
        let standings = Standing::all(&entries);
        let names: Vec<&str> = finalists(&standings[0]).into_iter().collect();
        assert_eq!(names, ["gke", "lmetric-central@1", "lmetric-central@2", "sglang-central"]);
    }

    #[test]
    fn the_best_central_baselines_are_tried_in_all_other_regions_of_the_world() {
        let on_trial =
            ["random-central", "lmetric-central", "sglang-central", "preble-central", "gke"]
                .map(|name| Contender::baseline(Baseline::named(name).unwrap()));
        let cells = vec![Cell::named("no-reuse").unwrap()];
        let experiment = Experiment::new("main", cells, Vec::new(), &[21]).with_trial(&on_trial);
        let entries = [
            entry("gke", 12.0, 100.0),
            entry("lmetric-central", 10.0, 300.0),
            entry("sglang-central", 9.0, 200.0),
            entry("preble-central", 8.0, 400.0),
            entry("random-central", 7.0, 900.0),
        ];
        let standings = Standing::all(&entries);
        let tasks = moved_tasks(&experiment, &standings);
        let names: Vec<&str> = tasks.iter().map(|task| task.contender.name()).collect();
        let lmetric = ["lmetric-central@1", "lmetric-central@2"];
        let sglang = ["sglang-central@1", "sglang-central@2"];
        let preble = ["preble-central@1", "preble-central@2"];
        assert_eq!(names, [lmetric, sglang, preble].concat());
    }

    #[test]
    fn known_scores_are_not_made_again() {
        let on_trial =
            ["gke", "gorgo"].map(|name| Contender::baseline(Baseline::named(name).unwrap()));
        let cells = vec![Cell::named("no-reuse").unwrap()];
        let experiment = Experiment::new("main", cells, Vec::new(), &[21]).with_trial(&on_trial);
        // None of these has the seed, the world or the contender that the trial asks for.
        let strangers = [
            Entry { seed: 21, ..entry("gke", 1.0, 1.0) },
            Entry { cell: "trees".to_owned(), ..entry("gke", 1.0, 1.0) },
            entry("sglang-central", 1.0, 1.0),
        ];
        // Baselines on trial do not change; Spillway does.
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
