//! Set of replicas in one process.

use std::net::SocketAddr;
use std::sync::Arc;

use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{EmulatorConfig, EmulatorConfigError};
use crate::replica::{EmulatedReplica, ReplicaHandle, ReplicaRuntime};
use crate::server;

/// Running replicas. Dropping the value stops them, without waiting.
#[derive(Debug)]
pub struct Emulator {
    replicas: Vec<ReplicaHandle>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Error of starting an emulator.
#[derive(Debug, Error)]
pub enum EmulatorStartError {
    /// The configuration is impossible.
    #[error(transparent)]
    Config(#[from] EmulatorConfigError),
    /// A port could not be opened.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// Address that could not be opened.
        address: SocketAddr,
        /// Error of the operating system.
        cause: std::io::Error,
    },
}

impl Emulator {
    /// Opens all ports and starts to serve on the current runtime.
    ///
    /// # Errors
    /// Returns an error if the configuration is impossible or a port cannot be opened. No port
    /// stays open then.
    pub async fn start(config: EmulatorConfig) -> Result<Self, EmulatorStartError> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let runtime = ReplicaRuntime { tasks, stop, listen: server::listen };
        let mut opened = Vec::new();
        for (index, address) in (0..).zip(config.addresses()?) {
            let listen = |cause| EmulatorStartError::Listen { address, cause };
            let listener = TcpListener::bind(address).await.map_err(listen)?;
            let replica =
                EmulatedReplica::new(&config, index, &listener, &runtime).map_err(listen)?;
            opened.push((Arc::new(replica), listener));
        }
        // Weak references, so that replicas do not keep each other alive.
        let siblings: Vec<_> = opened.iter().map(|(replica, _)| Arc::downgrade(replica)).collect();
        let mut replicas = Vec::new();
        for (replica, listener) in opened {
            replica.siblings.get_or_init(|| siblings.clone());
            if let Some(first) = config.kv_events_port {
                let port = if first == 0 { 0 } else { first.saturating_add(replica.index) };
                let address = SocketAddr::new(replica.address.ip(), port);
                let listen = |cause| EmulatorStartError::Listen { address, cause };
                replica.publish_kv_events(port).await.map_err(listen)?;
            }
            replica.start(listener).await;
            replicas.push(ReplicaHandle(replica));
        }
        let ReplicaRuntime { tasks, stop, .. } = runtime;
        Ok(Self { replicas, tasks, stop })
    }

    /// Returns the addresses of the replicas, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(ReplicaHandle::address).collect()
    }

    /// Returns replica `index`.
    ///
    /// # Panics
    /// Panics if there is no such replica.
    #[must_use]
    pub fn replica(&self, index: usize) -> &ReplicaHandle {
        &self.replicas[index]
    }

    /// Returns all replicas, in order.
    #[must_use]
    pub fn replicas(&self) -> &[ReplicaHandle] {
        &self.replicas
    }

    /// Closes all ports and connections, and waits until every task has ended.
    pub async fn shutdown(self) {
        self.stop.cancel();
        for replica in &self.replicas {
            replica.0.stopped().await;
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
