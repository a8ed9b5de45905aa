//! Errors of a node's start.

use std::net::SocketAddr;

use spillway_config::ConfigError;
use spillway_front::client::TlsError;
use spillway_prefix::PrefixConfigError;
use spillway_upstream::ReplicaTlsError;

use crate::cluster::ClusterError;

/// A node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address can't be listened on.
    #[error("can't listen on {address}: {cause}{}", told(holder.as_deref()))]
    Listen {
        /// Address that can't be listened on.
        address: SocketAddr,
        /// Cause of the failure.
        cause: std::io::Error,
        /// Process that has the address, if the address is taken and the process can be found.
        holder: Option<String>,
    },
    /// A listener's certificate does not work.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A replica's TLS settings do not work.
    #[error(transparent)]
    ReplicaTls(#[from] ReplicaTlsError),
    /// The prompt hashing settings do not work.
    #[error(transparent)]
    Prefix(#[from] PrefixConfigError),
    /// The link to other nodes can't be opened.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A location database can't be used.
    #[error(transparent)]
    Geo(#[from] ConfigError),
    /// The agreed state can't be kept on disk.
    #[error("can't keep what the cluster agrees on: {0}")]
    ControlPlane(#[from] spillway_raft::RaftStartError),
    /// The operating system has no source of randomness.
    #[error("no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    /// A thread can't be started.
    #[error("can't start a worker: {0}")]
    Thread(std::io::Error),
}

/// Returns the end of the error message: the process that has the address, if it is known.
fn told(holder: Option<&str>) -> String {
    holder.map(|holder| format!(": {holder}")).unwrap_or_default()
}
