//! `spillway names`: names that exist, for completions of shells.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use tokio::time::timeout;

use super::client::AdminClient;
use super::connect::Connect;
use crate::output;

/// Longest time for which a shell waits: longer, and pressing a key feels broken.
const LIMIT: Duration = Duration::from_millis(300);

/// Names to list.
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    #[command(flatten)]
    connect: Connect,
    /// Kind of the names.
    #[arg(value_enum)]
    kind: NameKind,
}

/// Kind of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NameKind {
    /// Regions, and replicas as REGION/REPLICA.
    Targets,
    /// Regions.
    Regions,
    /// Replicas of the node, which needs no cluster.
    Replicas,
    /// Keys of the cluster.
    Keys,
}

impl NameKind {
    /// Returns the kinds of records of the cluster whose names are listed.
    fn resources(self) -> &'static [&'static str] {
        match self {
            Self::Targets => &["regions", "replicas"],
            Self::Regions => &["regions"],
            Self::Replicas => &[],
            Self::Keys => &["keys"],
        }
    }
}

/// Prints one name a line. Prints none where the node does not answer in time: a shell has no use for
/// an error.
///
/// # Errors
/// Returns an error if standard output is closed.
pub(super) async fn run(args: &NamesArgs) -> Result<()> {
    let names = timeout(LIMIT, names(args)).await;
    let names = names.ok().and_then(Result::ok).unwrap_or_default();
    if names.is_empty() { Ok(()) } else { Ok(output::line(&names.join("\n"))?) }
}

async fn names(args: &NamesArgs) -> Result<Vec<String>> {
    let client = AdminClient::new(&args.connect)?;
    let mut all = Vec::new();
    if args.kind == NameKind::Replicas {
        let replicas = client.read("/replicas").await?;
        let names = replicas.as_array().into_iter().flatten();
        all.extend(names.filter_map(|item| item["name"].as_str()).map(str::to_owned));
    }
    for resource in args.kind.resources() {
        let page = client.list(resource).await?;
        let items = page["items"].as_array().into_iter().flatten();
        all.extend(items.filter_map(|item| item["key"].as_str()).map(str::to_owned));
    }
    Ok(all)
}
