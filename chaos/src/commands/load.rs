//! `load`: runs the trials of the data path.

use std::process::ExitCode;

use clap::ValueEnum as _;
use spillway_chaos::load::{self, LoadPlan, LoadTrial};

use super::results::{Show, binary, progress, runtime, until_signal, where_it_ran};
use crate::cli::Loads;

pub(crate) fn run(loads: Loads) -> anyhow::Result<ExitCode> {
    let (binary, launcher) = binary(loads.spillway)?;
    let runtime = runtime()?;
    let show = Show { is_json: loads.json, page: loads.write.as_deref() };
    let trials = if loads.trials.is_empty() { LoadTrial::value_variants() } else { &loads.trials };
    let mut all_hold = true;
    for trial in trials {
        let plan = LoadPlan {
            trial: *trial,
            rounds: loads.rounds,
            is_short: loads.short,
            binary: binary.clone(),
            launcher: launcher.clone(),
            seed: loads.seed,
            keep: loads.keep,
            progress,
        };
        let report = runtime.block_on(until_signal(load::run(&plan)))?;
        all_hold &= report.holds();
        let name = trial.name();
        let short = if plan.is_short { " --short" } else { "" };
        let how = format!(
            "`spillway-chaos load {name} --rounds {}{short} --seed {}`, {}",
            plan.rounds,
            plan.seed,
            where_it_ran(&plan.binary),
        );
        show.report(&format!("load {name}"), &how, &report)?;
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
