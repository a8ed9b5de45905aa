//! Work beside the trial.

use tokio::task::JoinHandle;

/// Runs `work` beside the trial. What is still running at its end is dropped with the runtime: there
/// is nothing to drain, since whatever it talks to is ended too.
#[expect(clippy::disallowed_methods, reason = "nothing waits for these at the end of a trial")]
pub(crate) fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    tokio::spawn(work)
}
