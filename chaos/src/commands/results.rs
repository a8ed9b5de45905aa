//! What commands that put something on trial have in common.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use spillway_chaos::trial::{Report, write_section};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::say;

/// Where results go.
pub(super) struct Show<'a> {
    pub(super) is_json: bool,
    pub(super) page: Option<&'a Path>,
}

/// The program named, or the one beside this one.
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

/// What trials run on.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")
}

/// A signal ends it like an error: with everything that it has started.
pub(super) async fn until_signal(
    trial: impl Future<Output = anyhow::Result<Report>>,
) -> anyhow::Result<Report> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        report = trial => report,
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
    }
}

impl Show<'_> {
    /// Shows a report; `name` is the section's, and the command's words.
    pub(super) fn report(&self, (name, how): (&str, &str), report: &Report) -> anyhow::Result<()> {
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

/// Which build it was and on what machine.
pub(super) fn where_it_ran(binary: &Path) -> String {
    format!("{}, {}", kind_of(binary), machine())
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
pub(super) fn progress(line: &str) {
    eprintln!("{line}");
}
