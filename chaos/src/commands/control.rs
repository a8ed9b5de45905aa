//! `control`: runs the trials of the control plane.

use std::process::ExitCode;

use clap::ValueEnum as _;
use spillway_chaos::plan::TrialPlan;
use spillway_chaos::trial::{self, TrialPart};

use super::results::{RunNames, run_all};
use crate::cli::Trials;

pub(crate) fn run(trials: Trials) -> anyhow::Result<ExitCode> {
    let Trials { parts, wan: asked, trials, common } = trials;
    let parts = if parts.is_empty() { TrialPart::value_variants() } else { &parts };
    let names = |part: &TrialPart| {
        let (part, wan) = (part.name(), part.wan(asked).name());
        let section = format!("control {part} {wan}");
        let command =
            format!("control {part} --wan {wan} --trials {trials} --seed {}", common.seed);
        RunNames { section, command }
    };
    let trial = async |part: &TrialPart, plan: &TrialPlan| trial::run(*part, asked, plan).await;
    let plan = common.plan(trials, false)?;
    run_all(&common, &plan, parts.iter().map(|part| (part, names(part))), trial)
}
