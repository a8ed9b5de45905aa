//! Experiments: runs of contests, and those that the page is made of.

use serde::{Deserialize, Serialize};
use spillway_sim::{Cell, Conditions, Contender, Entry, Standing, Traces};

use super::arguments::cell;
use super::task::{Task, scores};
use super::trial;

/// Experiment with all cells as they are.
pub(super) const MAIN: &str = "main";
/// Experiment with cells of exceptional load.
pub(super) const BESIDES: &str = "besides";
/// Experiment with cells in which something breaks.
pub(super) const FAULTS: &str = "faults";
/// Baseline that represents gateways that know only their own region.
const UNAIDED: &str = "least-load-local";
/// Experiment with more and fewer replicas.
pub(super) const GPUS: &str = "gpus";
/// Experiment with more nodes in each region.
pub(super) const NODES: &str = "nodes";
/// Experiment with rarer looks at replicas.
pub(super) const SIGNALS: &str = "signals";
/// Experiment with news that are lost.
pub(super) const LOSS: &str = "loss";
/// Experiment with wrong speeds of replicas.
pub(super) const SPEEDS: &str = "speeds";
/// Experiment with wrong round-trip times.
pub(super) const RTT: &str = "rtt";

/// Cell in which replicas are counted.
pub(super) const GPU_CELL: &str = "skew-120-40-40";
/// Replicas of each region in that cell, from fewest to most.
const GPU_REPLICAS: [[usize; 3]; 7] =
    [[3, 3, 3], [4, 3, 3], [4, 4, 3], [4, 4, 4], [5, 4, 4], [5, 5, 5], [6, 6, 6]];

/// Cells that are run under other conditions: equal and unequal load, many regions, shared prompts,
/// and replicas near their limit.
const VARIED: [&str; 6] =
    ["chat-40-30-30", "skew-120-40-40", "6-regions", "share-10", "prompts-0.85", "mooncake-1.5"];

/// Contest in several cells.
#[derive(Debug)]
pub(super) struct Experiment {
    pub(super) name: &'static str,
    pub(super) cells: Vec<&'static Cell>,
    /// Contenders that run in each world.
    pub(super) contenders: Vec<Contender>,
    /// Baselines of which the finalists of each world's trial run there, too.
    pub(super) on_trial: Vec<Contender>,
    /// Central baselines among them in other regions than the first, for the trial to choose from.
    pub(super) elsewhere: Vec<Contender>,
    pub(super) conditions: Vec<Conditions>,
    pub(super) seeds: Vec<u64>,
}

impl Experiment {
    /// Returns an experiment under the usual conditions, without a trial.
    pub(super) fn new(
        name: &'static str,
        cells: Vec<&'static Cell>,
        contenders: Vec<Contender>,
        seeds: &[u64],
    ) -> Self {
        Self {
            name,
            cells,
            contenders,
            on_trial: Vec::new(),
            elsewhere: Vec::new(),
            conditions: vec![Conditions::default()],
            seeds: seeds.to_vec(),
        }
    }

    /// Returns this experiment with a trial of these baselines.
    pub(super) fn with_trial(self, baselines: &[Contender]) -> Self {
        Self { on_trial: baselines.to_vec(), elsewhere: trial::elsewhere(baselines), ..self }
    }

    /// Returns this experiment with the usual conditions changed by each of the values.
    fn under<T: Clone>(self, values: &[T], change: fn(&mut Conditions, T)) -> Self {
        let changed = |value: &T| {
            let mut conditions = Conditions::default();
            change(&mut conditions, value.clone());
            conditions
        };
        Self { conditions: values.iter().map(changed).collect(), ..self }
    }

    /// Returns the worlds of the experiment.
    pub(super) fn worlds(&self) -> impl Iterator<Item = (&'static Cell, &Conditions)> {
        let of_cell = |&cell: &&'static Cell| {
            self.conditions.iter().map(move |conditions| (cell, conditions))
        };
        self.cells.iter().flat_map(of_cell)
    }
}

/// Results of an experiment.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) experiment: String,
    pub(super) entries: Vec<Entry>,
}

/// Returns the experiments of the page.
pub(super) fn all(
    routers: &[Contender],
    baselines: &[Contender],
    seeds: &[u64],
) -> anyhow::Result<Vec<Experiment>> {
    let [local, omniscient] = [Contender::specified(UNAIDED)?, Contender::specified("omni")?];
    let with = |more: &[Contender]| [routers, more].concat();
    let besides = |is_of: fn(&Cell) -> bool| {
        Cell::besides().iter().filter(|cell| is_of(cell)).collect::<Vec<_>>()
    };
    // Nothing breaks in cells of exceptional load, and they are no larger than others.
    let of_load = besides(|cell| cell.faults_s().is_none() && cell.group() != "scale");
    let broken = besides(|cell| cell.faults_s().is_some());
    // Rivals of the rest are the baselines under the conditions of the first experiment: whatever
    // goes wrong counts against Spillway alone.
    let varied = VARIED.iter().map(|name| cell(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let under = |name, routers: &[Contender]| {
        Experiment::new(name, varied.clone(), routers.to_vec(), seeds)
    };
    // Other routers have no further signals that could be late or lost, except between the nodes of
    // a region.
    let first = &routers[..routers.len().min(1)];
    Ok(vec![
        Experiment::new(MAIN, Cell::all().iter().collect(), with(&[omniscient]), seeds)
            .with_trial(baselines),
        Experiment::new(BESIDES, of_load, with(&[]), seeds).with_trial(baselines),
        Experiment::new(FAULTS, broken, with(&[local]), seeds),
        Experiment::new(GPUS, vec![cell(GPU_CELL)?], with(&[]), seeds)
            .with_trial(baselines)
            .under(&GPU_REPLICAS, |it, replicas| it.replicas = Some(replicas.to_vec())),
        under(NODES, routers).under(&[2, 4, 8], |it, nodes| it.nodes = nodes),
        under(SIGNALS, first).under(&[1e3, 5e3, 30e3], |it, ms| it.signals_ms = ms),
        under(LOSS, first).under(&[0.05, 0.1, 0.2], |it, lost| it.lost = lost),
        under(RTT, first).under(&[0.3, 1.0], |it, error| it.rtt_error = error),
        under(SPEEDS, first).under(&[0.3, 1.0], |it, error| it.speed_error = error),
    ])
}

/// Runs all experiments, on all cores: first the trial, then everybody with the seeds of each
/// experiment. Scores of baselines that are known are taken from there.
///
/// # Errors
///
/// Returns an error if a world can't be made, or if a run broke off.
pub(super) fn run(
    experiments: &[Experiment],
    known: &[Entry],
    traces: &Traces,
) -> anyhow::Result<Vec<Part>> {
    // Missing parts are reported first, because the runs take hours.
    for experiment in experiments {
        check_worlds(experiment, traces)?;
    }
    let trial = trial::run(experiments, known, traces)?;
    let standings = Standing::all(&trial.entries);
    let tasks: Vec<Vec<Task<'_>>> =
        experiments.iter().map(|experiment| tasks(experiment, &standings)).collect();
    let all: Vec<&Task<'_>> = tasks.iter().flatten().collect();
    let mut results = scores(&all, known, traces)?.into_iter();
    let mut parts = Vec::new();
    for (experiment, tasks) in experiments.iter().zip(&tasks) {
        let entries = results.by_ref().take(tasks.len()).collect();
        parts.push(Part { experiment: experiment.name.to_owned(), entries });
    }
    if !trial.entries.is_empty() {
        parts.push(trial);
    }
    Ok(parts)
}

/// Makes each world once.
fn check_worlds(experiment: &Experiment, traces: &Traces) -> anyhow::Result<()> {
    let mut all = experiment.contenders.iter().chain(&experiment.on_trial);
    let (Some(contender), Some(&seed)) = (all.next(), experiment.seeds.first()) else {
        return Ok(());
    };
    for (cell, conditions) in experiment.worlds() {
        Task { cell, conditions, contender, seed }.scenario(traces)?;
    }
    Ok(())
}

fn tasks<'a>(experiment: &'a Experiment, trial: &[Standing]) -> Vec<Task<'a>> {
    let mut tasks = Vec::new();
    for (cell, conditions) in experiment.worlds() {
        let is_here = |one: &&Standing| one.cell == cell.name() && one.conditions == *conditions;
        let finalists = trial.iter().find(is_here).map(trial::finalists).unwrap_or_default();
        let is_finalist = |contender: &&Contender| finalists.contains(contender.name());
        let finalists = experiment.on_trial.iter().chain(&experiment.elsewhere).filter(is_finalist);
        for contender in experiment.contenders.iter().chain(finalists) {
            let task = |&seed: &u64| Task { cell, conditions, contender, seed };
            tasks.extend(experiment.seeds.iter().map(task));
        }
    }
    tasks
}
