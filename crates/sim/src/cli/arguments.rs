//! Arguments of the simulator.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use spillway_route::Policy;
use spillway_sim::WorkloadKind;

use super::capacity::Plan;

/// Runs gateways, replicas and clients in virtual time and says what came of them.
#[derive(Debug, Parser)]
#[command(name = "spillway-sim", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
    #[command(flatten)]
    pub(super) options: Options,
}

/// Kind of run.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Policies against each other, workload by workload.
    Compare {
        /// Policies; all that are worth comparing if not given.
        #[arg(long, value_delimiter = ',')]
        policies: Vec<Policy>,
        /// Workloads: system_prompts, chats, documents, bursts, hot.
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "system_prompts,chats,documents,bursts,hot"
        )]
        workloads: Vec<WorkloadKind>,
    },
    /// How much of the caches' worth is left with 1 to 8 nodes a region, against one router that
    /// knows everything.
    Locality,
    /// One prefix in nine of ten requests: what becomes of its replica.
    Hot,
    /// The policy that predicts, with one part left out or changed at a time.
    Ablate {
        /// Workloads: system_prompts, chats, documents, bursts, hot.
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "system_prompts,chats,documents,bursts,hot"
        )]
        workloads: Vec<WorkloadKind>,
    },
    /// A recorded trace: one JSON object a line with timestamp, input_length, output_length and
    /// hash_ids.
    Trace {
        /// The file.
        file: PathBuf,
        /// How many times as fast as recorded.
        #[arg(long, default_value_t = 1.0)]
        speed: f64,
        /// Policies; all that are worth comparing if not given.
        #[arg(long, value_delimiter = ',')]
        policies: Vec<Policy>,
    },
    /// How many replicas each region needs, and runs that show it. First tokens within --good-ms count; the
    /// page docs/capacity.md has 1500.
    Capacity(Plan),
    /// All but the trace and the plan, as one page.
    Page,
}

/// Options of all kinds of runs.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// Chooses everything that chance decides.
    #[arg(long, global = true, default_value_t = 1)]
    pub(super) seed: u64,
    /// Requests, as a part of what the replicas can serve at most.
    /// One number, or one for each of the three regions.
    #[arg(long, global = true, value_delimiter = ',', default_value = "0.7")]
    pub(super) load: Vec<f64>,
    /// Nodes in each of the three regions.
    #[arg(long, global = true, default_value_t = 2)]
    pub(super) nodes: usize,
    /// Replicas in each of the three regions.
    #[arg(long, global = true, default_value_t = 4)]
    pub(super) replicas: usize,
    /// Seconds of virtual time that count.
    #[arg(long, global = true, default_value_t = 300.0)]
    pub(super) seconds: f64,
    /// Milliseconds within which a first token has to come to be good.
    #[arg(long, global = true, default_value_t = 2_000.0)]
    pub(super) good_ms: f64,
    /// Prints JSON instead of tables.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Writes the tables there as Markdown, with a plot beside it.
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) markdown: Option<PathBuf>,
}

impl Options {
    /// Returns the load of a region, as a part of what its replicas can serve.
    pub(super) fn load_of(&self, region: usize) -> f64 {
        self.load.get(region).or_else(|| self.load.first()).copied().unwrap_or(0.7)
    }
}
