//! Background tasks of a run.

use tokio::task::JoinHandle;

/// Runs `work` in the background. A task that still runs at the end of the run is dropped with the
/// runtime: nothing needs to drain, because its peers have ended too.
#[expect(clippy::disallowed_methods, reason = "nothing waits for these at the end of a run")]
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(work)
}
