//! Load generator, featherweight backend and side-by-side runs against nginx.
//!
//! One thread each for load and backends: they share the machine with the proxy that they measure.

mod arrivals;
mod backend;
mod chunked;
mod cli;
mod client;
mod compare;
mod guard;
mod http1;
mod load;
mod procfs;
mod proxy;
mod report;
mod request;
mod scenario;
mod sse;
mod stats;
mod table;
mod tally;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{BackendArguments, Cli, Command, CompareArguments, LoadArguments};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Guard { command } => guard::watch(command),
        _ => start(cli.command),
    };
    result.unwrap_or_else(|error| {
        drop(writeln!(io::stderr().lock(), "error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn start(command: Command) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            result = run(command) => result,
            result = interrupted() => result,
        }
    })
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Backend(arguments) => run_backend(&arguments).await,
        Command::Load(arguments) => run_load(&arguments).await,
        Command::Compare(arguments) => run_compare(&arguments).await,
        Command::Guard { command } => guard::watch(&command),
    }
}

/// Returns when the user wants to end it; dropping the run then ends all children.
async fn interrupted() -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    anyhow::bail!("interrupted")
}

async fn run_backend(arguments: &BackendArguments) -> anyhow::Result<ExitCode> {
    let (listeners, addresses) = backend::listen(usize::from(arguments.count)).await?;
    print(&serde_json::to_string(&addresses)?)?;
    backend::serve(listeners, arguments.answer()).await;
    Ok(ExitCode::SUCCESS)
}

async fn run_load(arguments: &LoadArguments) -> anyhow::Result<ExitCode> {
    let (measurement, (), ()) = load::run(arguments.target, &arguments.spec(), || Ok(())).await?;
    print(&serde_json::to_string_pretty(&measurement)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends with 1 if a target is missed, so that a regression shows in scripts.
async fn run_compare(arguments: &CompareArguments) -> anyhow::Result<ExitCode> {
    let spec = arguments.spec();
    let mut reports = Vec::new();
    for scenario in arguments.scenarios() {
        let progress = |round, subject: &_, sample: &_| show_progress(round, subject, sample);
        let report = compare::compare(scenario, &spec, progress).await?;
        if !arguments.json {
            print(&table::Table(&report).to_string())?;
        }
        reports.push(report);
    }
    if arguments.json {
        print(&serde_json::to_string_pretty(&reports)?)?;
    }
    let mut subjects = reports.iter().flat_map(|report| &report.subjects);
    let is_missed = subjects.any(|subject| subject.is_target_met == Some(false));
    Ok(if is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show_progress(round: usize, subject: &report::Subject, sample: &report::Sample) {
    let seen = &sample.measurement;
    let cpu_s = sample.cpu_s.unwrap_or_default();
    // Progress is a courtesy: a closed stderr must not end the run.
    drop(writeln!(
        io::stderr().lock(),
        "round {round} {subject:<18} {:>9.0} requests/s {:>9.0} tokens/s  CPU {cpu_s:.2} s  errors {} {}",
        seen.requests_per_s(),
        seen.tokens_per_s(),
        seen.errors,
        seen.first_error.as_deref().unwrap_or_default(),
    ));
}

fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{text}")
}
