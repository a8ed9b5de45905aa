//! Runs of trials, for `control` and `load`: the programs, the runtime, and the output of results.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use spillway_chaos::plan::TrialPlan;
use spillway_chaos::trial::TrialReport;
use spillway_harness::{core_count, processor_model};
use tokio::signal::unix::{SignalKind, signal};

use super::output::say;
use crate::cli::RunArgs;

/// Names of the trials of one kind.
pub(super) struct RunNames {
    /// Name in the results.
    pub(super) section: String,
    /// Arguments that run them again.
    pub(super) command: String,
}

impl RunArgs {
    /// Returns the settings of all trials.
    pub(super) fn plan(&self, trials: usize, is_short: bool) -> anyhow::Result<TrialPlan> {
        let launcher = std::env::current_exe()?;
        let binary = self.spillway.clone();
        // Cargo puts both programs into the same folder.
        let binary = binary.unwrap_or_else(|| launcher.with_file_name("spillway"));
        anyhow::ensure!(
            binary.exists(),
            "there is no {}: build it with `cargo build -p spillway`, or name it with --spillway",
            binary.display()
        );
        let (seed, keep) = (self.seed, self.keep);
        Ok(TrialPlan { trials, is_short, binary, launcher, seed, keep, progress })
    }

    /// Prints a report. `how` is the command line and machine.
    fn show(&self, section: &str, how: &str, report: &TrialReport) {
        if self.json {
            let holds = report.holds();
            let line = serde_json::json!({
                "trial": section, "how": how, "holds": holds, "report": report
            });
            say(&line.to_string());
        } else {
            say(&format!("{how}\n\n{}", report.table()));
        }
    }
}

/// Runs the trials of each kind and shows their reports. Returns exit code 1 if an aim was missed.
pub(super) fn run_all<K>(
    common: &RunArgs,
    plan: &TrialPlan,
    kinds: impl Iterator<Item = (K, RunNames)>,
    trial: impl AsyncFn(K, &TrialPlan) -> anyhow::Result<TrialReport>,
) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    let mut all_hold = true;
    for (kind, RunNames { section, command }) in kinds {
        let report = runtime.block_on(until_signal(trial(kind, plan)))?;
        all_hold &= report.holds();
        // Asked after each trial, so that the load of the machine is that of the trial.
        let machine = where_it_ran(&plan.binary);
        common.show(&section, &format!("`spillway-chaos {command}`, {machine}"), &report);
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `trial` until it ends or a signal arrives. A signal is an error, so that everything that
/// the trial has started is dropped and ends.
async fn until_signal(
    trial: impl Future<Output = anyhow::Result<TrialReport>>,
) -> anyhow::Result<TrialReport> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        report = trial => report,
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
    }
}

/// Describes the build and the machine.
fn where_it_ran(binary: &Path) -> String {
    format!("{}, {}", kind_of(binary), machine())
}

/// Describes the build by the name of its folder: cargo names it after the profile.
fn kind_of(binary: &Path) -> String {
    let folder = binary.parent().and_then(Path::file_name).unwrap_or_default();
    format!("{} build", folder.to_string_lossy())
}

/// Describes the machine: cores, processor model and load average.
fn machine() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("{} cores ({}), load {load} at the end", core_count(), processor_model())
}

#[expect(clippy::print_stderr, reason = "results go to stdout, so progress can't")]
fn progress(line: &str) {
    eprintln!("{line}");
}
