//! Arguments of orders to regions and replicas.

use clap::Args;

use crate::cluster::change_args::ChangeArgs;
use crate::connect::Connect;

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// A region, or a replica as REGION/REPLICA.
    pub(crate) target: String,
    /// Also moves the region's own requests and votes elsewhere, before the region is removed.
    #[arg(long)]
    pub(crate) evacuate: bool,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// A region, or a replica as REGION/REPLICA.
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WeightArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// A region, or a replica as REGION/REPLICA.
    pub(crate) target: String,
    /// For a region: percent of its usual share, e.g. 50 or 12.5; more than 100 needs the sign, as
    /// 150%. For a replica: its weight relative to others, 1 to 1,000, or `own`.
    pub(crate) weight: String,
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}
