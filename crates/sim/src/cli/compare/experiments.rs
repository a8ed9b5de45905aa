//! Experiments: runs of contests, and those that the page is made of.

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use spillway_sim::{Cell, Conditions, Contender, Entry, Traces};

use super::arguments::cell;
use super::task::Task;
use crate::cli::batch::run_all;

/// Experiment with all cells as they are.
pub(super) const MAIN: &str = "main";
/// Experiment with cells of exceptional load.
pub(super) const BESIDES: &str = "besides";
/// Experiment with cells in which something breaks.
pub(super) const FAULTS: &str = "faults";
/// Baseline that stands for gateways of which each knows its own region alone.
const LOCAL: &str = "least-load-local";
/// Experiment with more and fewer replicas.
pub(super) const GPUS: &str = "gpus";
/// Experiment with more nodes in each region.
pub(super) const NODES: &str = "nodes";
/// Experiment with rarer looks at replicas.
pub(super) const SIGNALS: &str = "signals";
/// Experiment with news that are lost.
pub(super) const LOSS: &str = "loss";
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

/// Contest of the same contenders in several cells.
#[derive(Debug)]
pub(super) struct Experiment {
    pub(super) name: &'static str,
    pub(super) cells: Vec<&'static Cell>,
    pub(super) contenders: Vec<Contender>,
    pub(super) conditions: Vec<Conditions>,
    pub(super) seeds: Vec<u64>,
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
    let with_baselines: Vec<Contender> = routers.iter().chain(baselines).cloned().collect();
    let local = Contender::specified(LOCAL)?;
    let omniscient = Contender::specified("omni")?;
    let varied = VARIED.iter().map(|name| cell(name)).collect::<anyhow::Result<Vec<_>>>()?;
    // Rivals of these are the baselines under the conditions of the first experiment: whatever goes
    // wrong counts against Spillway alone.
    let spillway_only = |name, conditions| Experiment {
        name,
        cells: varied.clone(),
        contenders: routers.to_vec(),
        conditions,
        seeds: seeds.to_vec(),
    };
    Ok(vec![
        Experiment {
            name: MAIN,
            cells: Cell::all().iter().collect(),
            contenders: with_baselines.iter().cloned().chain([omniscient]).collect(),
            conditions: vec![Conditions::default()],
            seeds: seeds.to_vec(),
        },
        Experiment {
            name: BESIDES,
            cells: Cell::besides().iter().filter(|cell| is_of_load(cell)).collect(),
            contenders: with_baselines.clone(),
            conditions: vec![Conditions::default()],
            seeds: seeds.to_vec(),
        },
        Experiment {
            name: FAULTS,
            cells: Cell::besides().iter().filter(|cell| cell.faults_s().is_some()).collect(),
            contenders: routers.iter().cloned().chain([local]).collect(),
            conditions: vec![Conditions::default()],
            seeds: seeds.to_vec(),
        },
        Experiment {
            name: GPUS,
            cells: vec![cell(GPU_CELL)?],
            contenders: with_baselines,
            conditions: each(&GPU_REPLICAS, |replicas| Conditions {
                replicas: Some(replicas.to_vec()),
                ..Conditions::default()
            }),
            seeds: seeds.to_vec(),
        },
        spillway_only(
            NODES,
            each(&[2, 4, 8], |&nodes| Conditions { nodes, ..Conditions::default() }),
        ),
        spillway_only(
            SIGNALS,
            each(&[1_000.0, 5_000.0, 30_000.0], |&signals_ms| Conditions {
                signals_ms,
                ..Conditions::default()
            }),
        ),
        spillway_only(
            LOSS,
            each(&[0.05, 0.1, 0.2], |&lost| Conditions { lost, ..Conditions::default() }),
        ),
        spillway_only(
            RTT,
            each(&[0.3, 1.0], |&rtt_error| Conditions { rtt_error, ..Conditions::default() }),
        ),
    ])
}

/// Returns true if a cell is one of exceptional load: nothing breaks in it, and it is no larger than
/// others.
fn is_of_load(cell: &Cell) -> bool {
    cell.faults_s().is_none() && cell.group() != "scale"
}

fn each<T>(values: &[T], conditions: impl Fn(&T) -> Conditions) -> Vec<Conditions> {
    values.iter().map(conditions).collect()
}

/// Runs all experiments, on all cores.
pub(super) fn run(experiments: &[Experiment], traces: &Traces) -> anyhow::Result<Vec<Part>> {
    let tasks: Vec<Vec<Task<'_>>> = experiments.iter().map(tasks).collect();
    // Before hours of runs: what is missing is told at once.
    for task in first_of_each_world(&tasks) {
        task.scenario(traces)?;
    }
    let all: Vec<&Task<'_>> = tasks.iter().flatten().collect();
    let mut results = run_all(&all, |task| task.entry(traces)).into_iter();
    let mut parts = Vec::new();
    for (experiment, tasks) in experiments.iter().zip(&tasks) {
        let entries = results.by_ref().take(tasks.len()).collect::<anyhow::Result<Vec<Entry>>>()?;
        // A run that panicked has no result.
        ensure!(entries.len() == tasks.len(), "a run of experiment {} broke off", experiment.name);
        parts.push(Part { experiment: experiment.name.to_owned(), entries });
    }
    Ok(parts)
}

fn tasks(experiment: &Experiment) -> Vec<Task<'_>> {
    let mut tasks = Vec::new();
    for &cell in &experiment.cells {
        for conditions in &experiment.conditions {
            for contender in &experiment.contenders {
                let task = |&seed: &u64| Task { cell, conditions, contender, seed };
                tasks.extend(experiment.seeds.iter().map(task));
            }
        }
    }
    tasks
}

/// Returns one task of each world, whoever the contender is.
fn first_of_each_world<'a>(tasks: &'a [Vec<Task<'a>>]) -> impl Iterator<Item = &'a Task<'a>> {
    tasks.iter().flat_map(|tasks| {
        let is_like = |a: &Task<'_>, b: &Task<'_>| {
            a.cell.name() == b.cell.name() && a.conditions == b.conditions
        };
        tasks.chunk_by(is_like).filter_map(|alike| alike.first())
    })
}
