//! Command line of `spillway-bench`.

use std::{ffi::OsString, time::Duration};

use clap::{Parser, Subcommand, ValueEnum as _};

use crate::{
    backend::BackendAnswer, compare::CompareSpec, forward::ForwardArguments, scale::ScaleArguments,
    scenario::Scenario,
};

/// Side-by-side runs against nginx, and measurements of nodes; loopback only.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct BenchCli {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// Commands of `spillway-bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Serve fixed answers on four free ports; prints their addresses as a JSON array.
    Backend(BackendArguments),
    /// Send the same load through nginx, Spillway and a second nginx in turn.
    Compare(CompareArguments),
    /// Measure what a forwarded request costs over a local one, in time and CPU.
    Forward(ForwardArguments),
    /// Measure a node's start and memory, and the CPU of idle connections, streams and clusters.
    Scale(ScaleArguments),
    /// Run a command and end it when stdin closes.
    #[command(hide = true)]
    Guard {
        /// Program and arguments.
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

/// Options of `backend`.
#[derive(Debug, clap::Args)]
pub(crate) struct BackendArguments {
    /// Size of each JSON answer.
    #[arg(long, default_value_t = 512)]
    reply_bytes: usize,
    /// Answer with a stream of this many tokens instead.
    #[arg(long)]
    stream_tokens: Option<u64>,
    /// Microseconds between two tokens; 0 sends as fast as the socket takes them.
    #[arg(long, default_value_t = 0)]
    interval_us: u64,
}

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArguments {
    /// Scenarios to run, separated by commas; all of them if left out.
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// Print every sample as JSON instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) spec: CompareSpec,
}

impl BackendArguments {
    /// Returns the answer that the options describe.
    pub(crate) fn answer(&self) -> BackendAnswer {
        let json = BackendAnswer::Json { bytes: self.reply_bytes };
        let interval = Duration::from_micros(self.interval_us);
        self.stream_tokens.map_or(json, |tokens| BackendAnswer::Stream { tokens, interval })
    }
}

impl CompareArguments {
    /// Returns the scenarios in the order of the command line.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        if self.scenario.is_empty() {
            return Scenario::value_variants().to_vec();
        }
        self.scenario.clone()
    }
}
