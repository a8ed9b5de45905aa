//! `control`: runs the trials of the control plane.

use std::process::ExitCode;

use clap::ValueEnum as _;
use spillway_chaos::trial::{self, TrialPart, TrialPlan};

use super::results::{Show, binary, progress, runtime, until_signal, where_it_ran};
use crate::cli::Trials;

pub(crate) fn run(trials: Trials) -> anyhow::Result<ExitCode> {
    let (binary, launcher) = binary(trials.spillway)?;
    let runtime = runtime()?;
    let show = Show { is_json: trials.json, page: trials.write.as_deref() };
    let parts = if trials.parts.is_empty() { TrialPart::value_variants() } else { &trials.parts };
    let mut all_hold = true;
    for part in parts {
        let plan = TrialPlan {
            part: *part,
            wan: part.wan(trials.wan),
            trials: trials.trials,
            binary: binary.clone(),
            launcher: launcher.clone(),
            seed: trials.seed,
            keep: trials.keep,
            progress,
        };
        let report = runtime.block_on(until_signal(trial::run(&plan)))?;
        all_hold &= report.holds();
        let (part, wan) = (plan.part.name(), plan.wan.name());
        let how = format!(
            "`spillway-chaos control {part} --wan {wan} --trials {} --seed {}`, {}",
            plan.trials,
            plan.seed,
            where_it_ran(&plan.binary),
        );
        show.report(&format!("control {part} {wan}"), &how, &report)?;
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
