//! Parts that `control` and `load` share: the programs, the runtime, and the output of results.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use spillway_chaos::trial::{TrialReport, write_section};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::say;

/// Destination of results: JSON or a table on stdout, and optionally a page of the documentation.
pub(super) struct Show<'a> {
    pub(super) is_json: bool,
    pub(super) page: Option<&'a Path>,
}

/// Returns the paths of `spillway` (`named`, or the one beside this program) and of this program.
pub(super) fn binary(named: Option<PathBuf>) -> anyhow::Result<(PathBuf, PathBuf)> {
    let launcher = std::env::current_exe()?;
    let binary = named.unwrap_or_else(|| launcher.with_file_name("spillway"));
    anyhow::ensure!(
        binary.exists(),
        "there is no {}: build it with `cargo build -p spillway`, or name it with --spillway",
        binary.display()
    );
    Ok((binary, launcher))
}

/// Builds the runtime that trials run on: one thread.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")
}

/// Runs `trial` until it ends or a signal arrives. A signal is an error, so that everything that
/// the trial has started is dropped and ends.
pub(super) async fn until_signal(
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

impl Show<'_> {
    /// Prints a report, and writes it into the page if there is one. `name` is the section of the
    /// page, `how` the command line and machine.
    pub(super) fn report(&self, name: &str, how: &str, report: &TrialReport) -> anyhow::Result<()> {
        if self.is_json {
            let holds = report.holds();
            let line = serde_json::json!({
                "trial": name, "how": how, "holds": holds, "report": report
            });
            say(&line.to_string());
        } else {
            say(&format!("{how}\n\n{}", report.table()));
        }
        if let Some(page) = self.page {
            let text = format!("{how}:\n\n{}", report.table());
            write_section(page, name, &text)?;
        }
        Ok(())
    }
}

/// Describes the build and the machine.
pub(super) fn where_it_ran(binary: &Path) -> String {
    format!("{}, {}", kind_of(binary), machine())
}

/// Describes the build by the name of its folder: cargo names it after the profile.
fn kind_of(binary: &Path) -> String {
    let folder = binary.parent().and_then(Path::file_name).unwrap_or_default();
    format!("{} build", folder.to_string_lossy())
}

/// Describes the machine: cores, processor model and load average.
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
pub(super) fn progress(line: &str) {
    eprintln!("{line}");
}
