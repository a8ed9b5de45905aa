//! `spillway remove`: the end of a record.

use anyhow::Result;
use clap::Args;
use http::Method;

use super::kind::{Kind, path_of};
use crate::cluster::calls::change;
use crate::cluster::change_args::ChangeArgs;
use crate::cluster::client::AdminClient;
use crate::connect::Connect;

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway remove tenant acme --dry-run\n\
    Example: spillway remove setting voters.dead_after_ms\n\n\
    Without its record, a setting has its default. A removed node can't return with its disk: it has \
    to join again with an empty folder.")]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    connect: Connect,
    /// Kind of record.
    #[arg(value_enum)]
    kind: Kind,
    /// Name of the record.
    name: String,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Removes a record, with what belongs to it.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) async fn run(args: &RemoveArgs) -> Result<()> {
    let path = path_of(args.kind.0, &args.name)?;
    let client = AdminClient::new(&args.connect)?;
    change(&client, Method::DELETE, &path, None, &args.change).await
}
