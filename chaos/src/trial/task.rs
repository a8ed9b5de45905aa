//! Background tasks of a trial.

use tokio::task::JoinHandle;

/// Runs `work` in the background. A task that still runs at the end of the trial is dropped with
/// the runtime: nothing needs to drain, because its peers have ended too.
#[expect(clippy::disallowed_methods, reason = "nothing waits for these at the end of a trial")]
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}
