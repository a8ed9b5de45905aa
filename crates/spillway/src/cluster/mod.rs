//! Commands about what the nodes of a cluster agree on: a thin client of the admin API, and the
//! two that work on a data folder.

mod args;
mod client;
mod columns;
mod offline;
mod online;
mod text;

use anyhow::Result;

pub(crate) use args::{ClusterCommand, ClusterKeysCommand, Connect};
pub(crate) use online::replicas;

/// Carries a command out.
///
/// # Errors
/// If the node can't be reached or refuses, or the folder can't be used.
pub(crate) fn run(command: &ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::Restore(args) => offline::restore(args),
        ClusterCommand::ForceNewCluster(args) => offline::force_new_cluster(args),
        online => wait_for(online::run(online)),
    }
}

/// Carries a command about keys out.
///
/// # Errors
/// If the node can't be reached or refuses.
pub(crate) fn keys(command: &ClusterKeysCommand) -> Result<()> {
    wait_for(online::keys(command))
}

/// Runs what talks to a node to its end.
///
/// # Errors
/// What it says.
pub(crate) fn wait_for(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
