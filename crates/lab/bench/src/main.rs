//! Side-by-side runs against nginx, and measurements of nodes.
//!
//! The load and the backends use one thread each: they share the machine with the proxy under test.

mod arrivals;
mod backend;
mod cli;
mod client;
mod commands;
mod compare;
mod forward;
mod load;
mod member;
mod peers;
mod proxy;
mod report;
mod request;
mod scale;
mod scenario;
mod settle;
mod sse;
mod stats;
mod table;
mod tally;
mod usage;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{BenchCli, BenchCommand};

fn main() -> ExitCode {
    let cli = BenchCli::parse();
    let result = match &cli.command {
        // The guard only waits for its parent and its child, so it needs no runtime.
        BenchCommand::Guard { command } => spillway_harness::watch(command),
        _ => start(cli.command),
    };
    result.unwrap_or_else(|error| {
        drop(writeln!(io::stderr().lock(), "error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn start(command: BenchCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            result = run(command) => result,
            result = interrupted() => result,
        }
    })
}

async fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::Backend(arguments) => commands::backend(&arguments).await,
        BenchCommand::Compare(arguments) => commands::compare(&arguments).await,
        BenchCommand::Forward(arguments) => forward::run(&arguments).await,
        BenchCommand::Scale(arguments) => scale::run(&arguments).await,
        BenchCommand::Guard { command } => spillway_harness::watch(&command),
    }
}

/// Waits for an interrupt or SIGTERM, and returns it as an error. Dropping the run ends all
/// children.
async fn interrupted() -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    anyhow::bail!("interrupted")
}
