//! Command line of the simulator.

mod arguments;
mod batch;
mod capacity;
mod compare;
mod files;
mod one;
mod records;
mod study;
mod tables;

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use spillway_route::Policy;
use spillway_sim::{Scale, Scenario, Setup, TraceOptions, WorkloadKind, read_trace};

pub(crate) use arguments::Arguments;
use arguments::Command;
use batch::{Job, row, run_all};
use files::read;
use study::{Options, Study};

/// Policies that are worth comparing with each other.
const COMPARED: [Policy; 7] = [
    Policy::PredictedLatency,
    Policy::PrefixAware,
    Policy::Prequal,
    Policy::LeastLoaded,
    Policy::LeastConnections,
    Policy::RoundRobin,
    Policy::ConsistentHash,
];

/// Carries out a command.
///
/// # Errors
///
/// Returns an error if a file can't be read or written.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Compare(contest) => compare::run(contest),
        Command::Run(one) => one::run(one),
        Command::Capacity(plan) => capacity::run(plan),
        Command::Study(study) => run_study(study),
    }
}

fn run_study(study: &Study) -> anyhow::Result<()> {
    let (rows, options) = (run_all(&jobs(study)?, row), study.options());
    let mut out = io::stdout().lock();
    if options.json {
        serde_json::to_writer_pretty(&mut out, &rows)?;
        return Ok(writeln!(out)?);
    }
    Ok(writeln!(out, "{}", tables::table(study, &rows, options.good_ms).plain())?)
}

/// Writes an error to standard error.
pub(crate) fn complain(error: &anyhow::Error) {
    // If standard error is closed, the message is lost, and nothing more can be done.
    let _unread = writeln!(io::stderr(), "{error:#}");
}

/// Returns the runs of a study.
fn jobs(study: &Study) -> anyhow::Result<Vec<Job>> {
    Ok(match study {
        Study::Policies { policies, workloads, options } => {
            let setups = contestants(policies);
            workloads.iter().flat_map(|kind| each(*kind, &setups, options)).collect()
        }
        Study::Trace { file, speed, policies, options } => {
            trace(file, *speed, &contestants(policies), options)?
        }
    })
}

fn contestants(policies: &[Policy]) -> Vec<Setup> {
    let policies = if policies.is_empty() { &COMPARED[..] } else { policies };
    let own = policies.iter().map(|&policy| Setup::policy(policy));
    own.chain([Setup::omniscient(Policy::PredictedLatency)]).collect()
}

fn each(kind: WorkloadKind, setups: &[Setup], options: &Options) -> Vec<Job> {
    let scenario = scenario(kind, options.nodes, options);
    let job = |setup: &Setup| Job {
        workload: kind.name().to_owned(),
        nodes: options.nodes,
        load: options.load.clone(),
        scenario: scenario.clone(),
        setup: setup.clone(),
    };
    setups.iter().map(job).collect()
}

#[expect(clippy::disallowed_methods, reason = "some moment has to stand for time 0")]
fn scenario(kind: WorkloadKind, nodes: usize, options: &Options) -> Scenario {
    let scale = Scale {
        nodes,
        replicas: options.replicas,
        seconds: options.seconds,
        seed: options.seed,
        ..Scale::default()
    };
    // Bursts triple the rate of one region after the other, so their base rate is lower.
    let part = if kind == WorkloadKind::Bursts { 1.0 / 1.5 } else { 1.0 };
    let loads = [0, 1, 2].map(|region| options.load_of(region) * part);
    Scenario::three_regions(kind, loads, &scale, Instant::now())
}

fn trace(file: &Path, speed: f64, setups: &[Setup], options: &Options) -> anyhow::Result<Vec<Job>> {
    let text = read(file)?;
    let read = TraceOptions {
        regions: 3,
        speed,
        requests_max: usize::MAX,
        prompt_tokens_max: Scenario::TRACE_TOKENS_MAX,
        seed: options.seed,
    };
    let mut scenario = scenario(WorkloadKind::Chats, options.nodes, options).with_large_caches();
    scenario.sessions = read_trace(&text, &read)?;
    let job = |setup: &Setup| Job {
        workload: "trace".to_owned(),
        nodes: options.nodes,
        load: vec![speed],
        scenario: scenario.clone(),
        setup: setup.clone(),
    };
    Ok(setups.iter().map(job).collect())
}
