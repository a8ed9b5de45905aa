//! Command line of `spillway replicas`.

use clap::{Args, Subcommand};

use crate::connect::Connect;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway replicas --admin http://127.0.0.1:9900\n\
    Example: spillway replicas drain gpu-a --limit-s 120\n\
    Example: spillway replicas load gpu-a '{\"pending\": 12}'\n\n\
    `spillway get replicas` lists the replicas of the whole cluster.")]
pub(crate) struct ReplicasArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: Option<ReplicasCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReplicasCommand {
    /// Stops sending new requests to a replica; running requests may finish.
    Drain {
        /// The replica.
        name: String,
        /// Time limit in seconds for running requests.
        #[arg(long, default_value_t = 600)]
        limit_s: u64,
        /// The replica's machine is scheduled for removal.
        #[arg(long)]
        preemption: bool,
    },
    /// Sends requests to a drained replica again.
    #[command(alias = "resume")]
    Undrain {
        /// The replica.
        name: String,
    },
    /// Reports a replica's load on its behalf.
    Load {
        /// The replica.
        name: String,
        /// The load as JSON: queued, running, kv_use, gpu_use, gpu_memory_use, pending.
        #[arg(value_parser = parse_json)]
        report: serde_json::Value,
    },
}

fn parse_json(text: &str) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_str(text)
}
