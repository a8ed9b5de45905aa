//! `load`: runs the trials of the data path.

use std::process::ExitCode;

use clap::ValueEnum as _;
use spillway_chaos::load::{self, LoadTrial};
use spillway_chaos::plan::TrialPlan;

use super::results::{RunNames, run_all};
use crate::cli::Loads;

pub(crate) fn run(loads: Loads) -> anyhow::Result<ExitCode> {
    let Loads { trials, rounds, short, common } = loads;
    let trials = if trials.is_empty() { LoadTrial::value_variants() } else { &trials };
    let names = |trial: &LoadTrial| {
        let (name, short) = (trial.name(), if short { " --short" } else { "" });
        let command = format!("load {name} --rounds {rounds}{short} --seed {}", common.seed);
        RunNames { section: format!("load {name}"), command }
    };
    let trial = async |trial: &LoadTrial, plan: &TrialPlan| load::run(*trial, plan).await;
    let plan = common.plan(rounds, short)?;
    run_all(&common, &plan, trials.iter().map(|trial| (trial, names(trial))), trial)
}
