//! Commands about what the nodes of a cluster agree on: a thin client of the admin API, and the
//! two that work on a data folder.

mod args;
mod backup;
mod backup_args;
mod client;
mod columns;
mod connect;
mod explain;
mod limit_args;
mod limits;
mod members;
mod offline;
mod online;
mod record;
mod seal;
mod text;
mod trie;

use anyhow::Result;

pub(crate) use args::{ClusterCommand, ClusterKeysCommand};
pub(crate) use connect::Connect;
pub(crate) use explain::ExplainArgs;
pub(crate) use members::ClusterCertsCommand;
pub(crate) use online::replicas;
pub(crate) use trie::TrieArgs;

/// Carries a command out.
///
/// # Errors
/// If the node can't be reached or refuses, or the folder can't be used.
pub(crate) fn run(command: &ClusterCommand) -> Result<()> {
    match command {
        ClusterCommand::BackupKey(args) => backup::backup_key(args),
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

/// Carries a command about revoked certificates out.
///
/// # Errors
/// If the node can't be reached or refuses, or a file holds no certificate.
pub(crate) fn certs(command: &ClusterCertsCommand) -> Result<()> {
    wait_for(members::certs(command))
}

/// Shows which beginnings of prompts are hot, or has their key changed.
///
/// # Errors
/// If the node can't be reached or refuses.
pub(crate) fn trie(args: &TrieArgs) -> Result<()> {
    wait_for(trie::run(args))
}

/// Shows where a request would go.
///
/// # Errors
/// If the node can't be reached or refuses.
pub(crate) fn explain(args: &ExplainArgs) -> Result<()> {
    wait_for(explain::run(args))
}

/// Runs what talks to a node to its end.
///
/// # Errors
/// What it says.
pub(crate) fn wait_for(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
