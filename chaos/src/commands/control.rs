//! Puts the control plane on trial.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::ValueEnum as _;
use serde_json::json;
use spillway_chaos::trial::{self, Part, Plan, Report, write_section};
use tokio::signal::unix::{SignalKind, signal};

use super::say;
use crate::cli::Trials;

pub(crate) fn run(trials: Trials) -> anyhow::Result<ExitCode> {
    let launcher = std::env::current_exe()?;
    let beside = || launcher.with_file_name("spillway");
    let binary = trials.spillway.clone().unwrap_or_else(beside);
    anyhow::ensure!(
        binary.exists(),
        "there is no {}: build it with `cargo build -p spillway`, or name it with --spillway",
        binary.display()
    );
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    let parts = if trials.parts.is_empty() { Part::value_variants() } else { &trials.parts };
    let mut all_hold = true;
    for part in parts {
        let plan = Plan {
            part: *part,
            wan: part.wan(trials.wan),
            trials: trials.trials,
            binary: binary.clone(),
            launcher: launcher.clone(),
            seed: trials.seed,
            keep: trials.keep,
            progress,
        };
        let report = runtime.block_on(until_signal(&plan))?;
        all_hold &= report.holds();
        show(&plan, &report, &trials)?;
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A signal ends it like an error: with everything that it has started.
async fn until_signal(plan: &Plan) -> anyhow::Result<Report> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        report = trial::run(plan) => report,
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
    }
}

fn show(plan: &Plan, report: &Report, trials: &Trials) -> anyhow::Result<()> {
    let (part, wan) = (plan.part.name(), plan.wan.name());
    let how = format!(
        "`spillway-chaos control {part} --wan {wan} --trials {} --seed {}`, {}, {}",
        plan.trials,
        plan.seed,
        kind_of(&plan.binary),
        machine(),
    );
    if trials.json {
        let holds = report.holds();
        let line =
            json!({ "part": part, "wan": wan, "how": how, "holds": holds, "report": report });
        say(&line.to_string());
    } else {
        say(&format!("{how}\n\n{}", report.table()));
    }
    if let Some(page) = &trials.write {
        let text = format!("{how}:\n\n{}", report.table());
        write_section(page, &format!("control {part} {wan}"), &text)?;
    }
    Ok(())
}

/// Which build the nodes are: cargo's folders are named after it.
fn kind_of(binary: &Path) -> String {
    let folder = binary.parent().and_then(Path::file_name).unwrap_or_default();
    format!("{} build", folder.to_string_lossy())
}

/// What it ran on.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let read = |path: &str| std::fs::read_to_string(PathBuf::from(path)).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |model| model.trim_start_matches([' ', '\t', ':']));
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    format!("{cores} cores ({model}), load {load} at the end")
}

#[expect(clippy::print_stderr, reason = "results go to stdout, so progress can't")]
fn progress(line: &str) {
    eprintln!("{line}");
}
