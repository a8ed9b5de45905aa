//! Arguments of commands on the data folder of a node that does not run.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ForceArgs {
    #[command(flatten)]
    pub(crate) founder: FounderArgs,
    /// Confirms that most voters of the old cluster are lost permanently.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Who begins a new cluster.
#[derive(Debug, Args)]
pub(crate) struct FounderArgs {
    /// The node's data folder.
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// The name of the node, as in its config.
    #[arg(long)]
    pub(crate) node: String,
    /// The node's region, as in its config.
    #[arg(long)]
    pub(crate) region: String,
    /// Checks everything, without changing anything.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Prints one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
