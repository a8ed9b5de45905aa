//! Command line of `spillway-chaos`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use spillway_chaos::load::LoadTrial;
use spillway_chaos::plan::Wan;
use spillway_chaos::trial::TrialPart;
use spillway_chaos::wan::ControlCommand;

/// Default path of the control socket of a network.
const SOCKET_DEFAULT: &str = "/run/spillway-chaos.sock";

/// Wide-area networks on one machine: regions as network namespaces, and one process between them
/// that delays, loses, doubles, reorders, limits and cuts. Needs root.
#[derive(Debug, Parser)]
#[command(name = "spillway-chaos", version, after_help = EXAMPLE)]
pub(crate) struct ChaosCli {
    #[command(subcommand)]
    pub(crate) command: ChaosCommand,
}

const EXAMPLE: &str = "Example:
  spillway-chaos wan --config chaos/wans/three.toml &
  spillway-chaos exec --region eu-west-1 -- ip addr
  spillway-chaos ctl shape us-east-1 eu-west-1 --loss-percent 2
  spillway-chaos ctl cut us-east-1 eu-west-1 --one-way
  spillway-chaos ctl heal
  spillway-chaos ctl stop";

const WAN_EXAMPLE: &str = "Example: run a script that has the network for as long as it lasts
  spillway-chaos wan --config chaos/wans/three.toml -- ./scenario.sh";

const CTL_EXAMPLE: &str = "Example:
  spillway-chaos ctl stats --json
  spillway-chaos ctl block --from 10.77.1.2 --to 10.77.2.1

The socket takes one JSON object a line:
  {\"do\":\"cut\",\"from\":\"us-east-1\",\"to\":\"*\"}";

const CONTROL_EXAMPLE: &str = "Example: what happens when the leader is lost
  cargo build -p spillway -p spillway-chaos
  target/debug/spillway-chaos control failover --wan three --trials 20

Ends with 1 if an aim was missed or something happened that must not.";

const LOAD_EXAMPLE: &str = "Example: what five times the load does
  cargo build --release -p spillway -p spillway-chaos
  target/release/spillway-chaos load overload --rounds 3

Ends with 1 if an aim was missed or something happened that must not.";

#[derive(Debug, Subcommand)]
pub(crate) enum ChaosCommand {
    /// Run a network until it is stopped, or until a command has ended.
    #[command(after_help = WAN_EXAMPLE)]
    Wan {
        /// TOML file that describes the network.
        #[arg(long)]
        config: PathBuf,
        #[command(flatten)]
        socket: Socket,
        /// A command to run beside the network, outside of all regions. SPILLWAY_CHAOS_SOCKET holds
        /// the socket's path; the command's exit code becomes this program's.
        #[arg(last = true)]
        program: Vec<OsString>,
    },
    /// Become a command inside a region: same process id, same signals. The command is killed with
    /// the parent of this process, and with the network.
    Exec {
        #[command(flatten)]
        socket: Socket,
        /// The region.
        #[arg(long)]
        region: String,
        /// The node, counted from 1. Matters where each node has a namespace of its own.
        #[arg(long, default_value_t = 1)]
        node: u16,
        /// The command. It finds CHAOS_REGION, CHAOS_NODE, CHAOS_ADDRESS and
        /// CHAOS_PUBLIC_ADDRESS in its environment.
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
    /// Ask or change a running network.
    #[command(after_help = CTL_EXAMPLE)]
    Ctl {
        #[command(flatten)]
        socket: Socket,
        /// Print the answer as JSON.
        #[arg(long, global = true)]
        json: bool,
        #[command(subcommand)]
        request: ControlCommand,
    },
    /// Make a network, measure round trips and packets a second in it, and end it.
    Measure {
        /// The TOML file that describes the network.
        #[arg(long)]
        config: PathBuf,
        /// Probes for each pair of regions.
        #[arg(long, default_value_t = 500)]
        probes: u32,
        /// Packets a second to try for, between the first two regions.
        #[arg(long, default_value_t = 20_000)]
        packets_per_s: u32,
        /// Print the figures as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run trials of the control plane, with real nodes over a network, and measure them.
    #[command(after_help = CONTROL_EXAMPLE)]
    Control(Trials),
    /// Run trials of the data path: overload, dying replicas and regions, abuse.
    #[command(after_help = LOAD_EXAMPLE)]
    Load(Loads),
    /// End what runs inside namespaces when stdin closes; `wan` starts it.
    #[command(hide = true)]
    Sweep {
        /// Files of the namespaces.
        namespaces: Vec<String>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Trials {
    /// Parts to run; all of them if none is named.
    pub(crate) parts: Vec<TrialPart>,
    /// The network.
    #[arg(long, default_value = "three")]
    pub(crate) wan: Wan,
    /// Trials of each part; with `linear` the number of faults, with `commit` seconds of full load.
    #[arg(long, default_value_t = 20, value_parser = trials)]
    pub(crate) trials: usize,
    #[command(flatten)]
    pub(crate) common: RunArgs,
}

#[derive(Args, Debug)]
pub(crate) struct Loads {
    /// Trials to run; all of them if none is named.
    pub(crate) trials: Vec<LoadTrial>,
    /// Rounds of each trial.
    #[arg(long, default_value_t = 3, value_parser = trials)]
    pub(crate) rounds: usize,
    /// A quarter of the usual times.
    #[arg(long)]
    pub(crate) short: bool,
    #[command(flatten)]
    pub(crate) common: RunArgs,
}

/// Options of `control` and `load`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The `spillway` program; the one beside this program if left out.
    #[arg(long, env = "SPILLWAY_BIN")]
    pub(crate) spillway: Option<PathBuf>,
    /// Seed of all randomness.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the programs' logs, configs and data. SPILLWAY_LOG says what they log.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print the results as JSON, one line for each kind of trial.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Largest number of trials: more than a day of any part.
const TRIALS_MAX: usize = 10_000;

fn trials(text: &str) -> Result<usize, String> {
    let trials = text.parse().ok().filter(|trials| (1..=TRIALS_MAX).contains(trials));
    trials.ok_or_else(|| format!("use a number from 1 to {TRIALS_MAX}"))
}

#[derive(Args, Debug)]
pub(crate) struct Socket {
    /// Control socket of the network.
    #[arg(long, global = true, env = "SPILLWAY_CHAOS_SOCKET", default_value = SOCKET_DEFAULT)]
    pub(crate) socket: PathBuf,
}
