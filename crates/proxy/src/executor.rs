//! Runs hyper's HTTP/2 tasks where drain can wait for them.

use std::future::Future;

use tokio_util::task::TaskTracker;

/// Spawns onto a tracker.
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
