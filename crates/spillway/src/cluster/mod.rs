//! Commands about the state that the nodes of a cluster agree on: a thin client of the admin API,
//! and commands that work on files.

mod args;
mod calls;
mod change_args;
mod client;
mod debug;
mod files;
mod online;
mod orders;
mod records;
mod refusal;
mod requests;
mod text;
mod view;

use anyhow::Result;

pub(crate) use self::args::{ClusterCommand, ClusterKeysCommand, CreateKeyArgs};
use self::files::{backup, offline};
use self::orders::members;
pub(crate) use self::orders::members::{ClusterCertsCommand, serial};
pub(crate) use self::records::names::{OWN_REPLICAS, TARGETS};
pub(crate) use self::requests::explain::ExplainArgs;
pub(crate) use self::requests::tail::TailArgs;
pub(crate) use self::requests::trie::TrieArgs;
use self::requests::{explain, tail, trie};
pub(crate) use self::text::aligned;
use crate::connect::{Connect, wait_for};

/// Carries a command out.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or the folder can't be used.
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
/// Returns an error if the node can't be reached or refuses.
pub(crate) fn keys(command: &ClusterKeysCommand) -> Result<()> {
    wait_for(online::keys(command))
}

/// Carries a command about revoked certificates out.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or a file holds no certificate.
pub(crate) fn certs(command: &ClusterCertsCommand) -> Result<()> {
    wait_for(members::certs(command))
}

/// Returns a node's answer at `path` of its admin listener.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) fn ask(connect: &Connect, path: &str) -> Result<serde_json::Value> {
    wait_for(async { client::AdminClient::new(connect)?.read(path).await })
}

/// Shows which prompt prefixes are hot, or changes the key of their hashes.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) fn trie(args: &TrieArgs) -> Result<()> {
    wait_for(trie::run(args))
}

/// Shows where a request would go.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses.
pub(crate) fn explain(args: &ExplainArgs) -> Result<()> {
    wait_for(explain::run(args))
}

/// Shows requests as they end.
///
/// # Errors
/// Returns an error if the node can't be reached or refuses, or standard output is closed.
pub(crate) fn tail(args: &TailArgs) -> Result<()> {
    wait_for(tail::run(args))
}
