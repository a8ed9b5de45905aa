//! Open port and open connections of a replica, which a fault ends.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Open port.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl Listening {
    /// Closes the port, and returns when the kernel refuses connections. Open connections stay.
    pub(crate) async fn close(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the accept task failed");
        }
    }
}

/// All connections between two crashes.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    over: CancellationToken,
    pub(crate) connections: TaskTracker,
}

impl Life {
    pub(crate) fn new(stop: &CancellationToken) -> Self {
        Self { over: stop.child_token(), connections: TaskTracker::new() }
    }

    /// Resets every connection and waits until all of them have ended.
    pub(crate) async fn end(self) {
        self.over.cancel();
        self.connections.close();
        self.connections.wait().await;
    }

    /// Waits until the connections are ended by a crash or shutdown.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }
}
