//! Command line of `spillway-bench`.

use std::{ffi::OsString, net::SocketAddr, time::Duration};

use clap::{Parser, Subcommand, ValueEnum as _};

use crate::{
    arrivals::ArrivalPace,
    backend::BackendAnswer,
    client::BenchReply,
    compare::CompareSpec,
    forward::ForwardArguments,
    load::{LoadSpec, Protocol, Times, duration_s, within},
    scale::ScaleArguments,
    scenario::Scenario,
};

/// Load generator, minimal backend, and side-by-side runs against nginx; loopback only.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct BenchCli {
    #[command(subcommand)]
    pub(crate) command: BenchCommand,
}

/// Commands of `spillway-bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Serve fixed answers on free ports; prints their addresses as a JSON array.
    Backend(BackendArguments),
    /// Send load to one address and print what was seen as JSON.
    Load(LoadArguments),
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
    /// Number of ports to serve.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) count: u16,
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

/// Options of `load`.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArguments {
    /// Address to send to; must be on loopback.
    #[arg(long, value_parser = loopback)]
    pub(crate) target: SocketAddr,
    /// Connections, or streams with --http2.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    clients: u16,
    /// Requests per second in total; without it each client sends as fast as it is answered.
    #[arg(long, value_parser = positive)]
    rate: Option<f64>,
    /// Size of each request's body.
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
    /// Seconds over which the clients start.
    #[arg(long, default_value_t = 0.0, value_parser = duration_s)]
    ramp_s: f64,
    /// Ask for streams and count tokens.
    #[arg(long)]
    stream: bool,
    /// All clients share one HTTP/2 connection.
    #[arg(long)]
    http2: bool,
    #[command(flatten)]
    times: Times,
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

impl LoadArguments {
    /// Returns the load that the options describe.
    pub(crate) fn spec(&self) -> LoadSpec {
        LoadSpec {
            clients: usize::from(self.clients),
            protocol: if self.http2 { Protocol::Http2 } else { Protocol::Http1 },
            pace: self.rate.map_or(ArrivalPace::Closed, ArrivalPace::Rate),
            body_bytes: self.body_bytes,
            reply: if self.stream {
                BenchReply::Stream { tokens: None }
            } else {
                BenchReply::Whole
            },
            ramp: Duration::from_secs_f64(self.ramp_s),
            warm_up: self.times.warm_up(),
            window: self.times.window(),
        }
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

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| format!("{error}"))?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("this tool sends load to loopback addresses only".to_owned())
    }
}

fn positive(text: &str) -> Result<f64, String> {
    within(text, f64::MIN_POSITIVE..=1e6)
}
