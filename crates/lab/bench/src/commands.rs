//! Implementations of the commands.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::cli::{BackendArguments, CompareArguments};
use crate::{backend, compare, report, table};

/// Serves fixed answers until the process is ended.
pub(crate) async fn backend(arguments: &BackendArguments) -> anyhow::Result<ExitCode> {
    let (listeners, addresses) = backend::listen(compare::BACKENDS).await?;
    print(&serde_json::to_string(&addresses)?)?;
    backend::serve(listeners, arguments.answer()).await;
    Ok(ExitCode::SUCCESS)
}

/// Sends the same load through all proxies in turn.
///
/// Returns exit code 1 if a target is missed, so that a regression shows in scripts.
pub(crate) async fn compare(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let spec = &arguments.spec;
    for peer in &spec.peers {
        peer.check_installed(&spec.peers_folder)?;
    }
    let mut reports = Vec::new();
    for scenario in arguments.scenarios() {
        let progress = |round, subject: &_, sample: &_| show_progress(round, subject, sample);
        let report = compare::compare(scenario, spec, progress).await?;
        // Text is shown as each scenario ends; JSON must stay one document.
        if !arguments.json {
            print(&table::TextTable(&report).to_string())?;
        }
        reports.push(report);
    }
    if arguments.json {
        print(&serde_json::to_string_pretty(&reports)?)?;
    }
    let mut subjects = reports.iter().flat_map(|report| &report.subjects);
    // Only `Some(false)` fails: a subject without a target has nothing to miss.
    let is_missed = subjects.any(|subject| subject.is_target_met == Some(false));
    Ok(if is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show_progress(round: usize, subject: &report::Subject, sample: &report::ReportSample) {
    let seen = &sample.measurement;
    let cpu_s = sample.cpu_s.unwrap_or_default();
    // Progress is optional: a closed stderr must not end the run.
    drop(writeln!(
        io::stderr().lock(),
        "round {round} {subject:<26} {:>9.0} requests/s {:>9.0} tokens/s  CPU {cpu_s:.2} s  errors {} {}",
        seen.requests_per_s(),
        seen.tokens_per_s(),
        seen.errors,
        seen.first_error.as_deref().unwrap_or_default(),
    ));
}

fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}
