//! Count of a replica's open connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counter of one connection.
#[derive(Debug)]
pub struct ConnectionCount(Arc<AtomicU32>);

impl ConnectionCount {
    /// Returns the count of a connection that `connections` counts already.
    pub(crate) fn new(connections: &Arc<AtomicU32>) -> Self {
        Self(Arc::clone(connections))
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
