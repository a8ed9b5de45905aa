//! Executor of hyper's HTTP/2 tasks that draining can wait for.

use std::future::Future;

use tokio_util::task::TaskTracker;

/// Executor that spawns tasks onto a tracker.
#[derive(Clone, Debug)]
pub(crate) struct Executor(pub(crate) TaskTracker);

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
