//! `spillway names`: names that exist, for completions of shells.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::Value;
use spillway_node::Resource;
use tokio::time::timeout;

use super::kind::Kind;
use crate::cluster::client::AdminClient;
use crate::connect::Connect;
use crate::output;

/// Longest time for which a shell waits: longer, and pressing a key feels broken.
const LIMIT: Duration = Duration::from_millis(300);

/// Names of what `drain`, `undrain` and `weight` take: regions, and replicas as REGION/REPLICA.
pub(crate) const TARGETS: &str = "targets";
/// Names of the replicas of the node that is asked.
pub(crate) const OWN_REPLICAS: &str = "own-replicas";

/// Names to list.
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    #[command(flatten)]
    connect: Connect,
    /// Kind of the names: one of records, `targets` for regions and replicas, or `own-replicas` for
    /// those of the node, which needs no cluster.
    kind: String,
}

/// Prints one name a line. Prints none where the node does not answer in time: a shell has no use for
/// an error.
///
/// # Errors
/// Returns an error if standard output is closed.
pub(crate) async fn run(args: &NamesArgs) -> Result<()> {
    let names = timeout(LIMIT, names(args)).await;
    let names = names.ok().and_then(Result::ok).unwrap_or_default();
    if names.is_empty() { Ok(()) } else { Ok(output::line(&names.join("\n"))?) }
}

async fn names(args: &NamesArgs) -> Result<Vec<String>> {
    let client = AdminClient::new(&args.connect)?;
    if args.kind == OWN_REPLICAS {
        let replicas = client.read("/replicas").await?;
        return Ok(texts(&replicas, "name"));
    }
    let mut all = Vec::new();
    for resource in resources(&args.kind) {
        let page = client.list(resource.name()).await?;
        all.extend(texts(&page["items"], "key"));
    }
    Ok(all)
}

/// Returns the kinds of records whose names are listed.
fn resources(kind: &str) -> Vec<Resource> {
    match kind {
        TARGETS => vec![Resource::Regions, Resource::Replicas],
        kind => Kind::from_str(kind, false).map(|Kind(resource)| resource).into_iter().collect(),
    }
}

/// Returns the texts of a member of all items.
fn texts(items: &Value, member: &str) -> Vec<String> {
    let items = items.as_array().into_iter().flatten();
    items.filter_map(|item| item[member].as_str()).map(str::to_owned).collect()
}
