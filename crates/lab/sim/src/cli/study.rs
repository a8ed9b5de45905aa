//! Studies of three equal regions, and their options.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use spillway_route::Policy;
use spillway_sim::WorkloadKind;

/// Study of three equal regions: one table.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Study {
    /// Runs policies against each other, workload by workload.
    #[command(after_help = "Example:\n  spillway-sim policies --workloads chats --load 0.9")]
    Policies {
        /// Policies; all that are worth comparing if not given.
        #[arg(long, value_delimiter = ',')]
        policies: Vec<Policy>,
        /// Workloads: system_prompts, chats, documents, bursts, hot.
        #[arg(long, value_delimiter = ',', default_value = WORKLOADS)]
        workloads: Vec<WorkloadKind>,
        #[command(flatten)]
        options: Options,
    },
    /// Plays a recorded trace: one JSON object a line with timestamp, input_length, output_length
    /// and hash_ids.
    #[command(after_help = "Example:\n  spillway-sim trace mooncake.jsonl --speed 2")]
    Trace {
        /// File of the trace.
        file: PathBuf,
        /// Factor by which it is played faster than recorded.
        #[arg(long, default_value_t = 1.0)]
        speed: f64,
        /// Policies; all that are worth comparing if not given.
        #[arg(long, value_delimiter = ',')]
        policies: Vec<Policy>,
        #[command(flatten)]
        options: Options,
    },
}

impl Study {
    /// Returns the options of the study's runs.
    pub(super) fn options(&self) -> &Options {
        match self {
            Self::Policies { options, .. } | Self::Trace { options, .. } => options,
        }
    }
}

/// Workloads of a study if none are given.
const WORKLOADS: &str = "system_prompts,chats,documents,bursts,hot";

/// Options of studies.
#[derive(Clone, Debug, Args)]
pub(super) struct Options {
    /// Chooses everything that chance decides.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Requests, as a part of what the replicas can serve at most.
    /// One number, or one for each of the three regions.
    #[arg(long, value_delimiter = ',', default_value = "0.7")]
    pub(super) load: Vec<f64>,
    /// Nodes in each of the three regions.
    #[arg(long, default_value_t = 2)]
    pub(super) nodes: usize,
    /// Replicas in each of the three regions.
    #[arg(long, default_value_t = 4)]
    pub(super) replicas: usize,
    /// Seconds of virtual time that count.
    #[arg(long, default_value_t = 300.0)]
    pub(super) seconds: f64,
    /// Milliseconds within which a first token has to come to be good.
    #[arg(long, default_value_t = 2_000.0)]
    pub(super) good_ms: f64,
    /// Prints JSON instead of tables.
    #[arg(long)]
    pub(super) json: bool,
}

impl Options {
    /// Returns the load of a region, as a part of what its replicas can serve.
    pub(super) fn load_of(&self, region: usize) -> f64 {
        self.load.get(region).or_else(|| self.load.first()).copied().unwrap_or(0.7)
    }
}
