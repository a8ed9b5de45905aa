//! Tasks beside the data path, and those among them that a node can't do without.

use std::future::Future;

use spillway_tasks::TaskWatch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeTasks {
    /// Tasks that are waited for at the node's end.
    pub(crate) tracker: TaskTracker,
    /// Ends them.
    pub(crate) stop: CancellationToken,
    /// Vital tasks that ended by themselves.
    pub(crate) watch: TaskWatch,
}

impl NodeTasks {
    pub(crate) fn new() -> Self {
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        Self { tracker, stop, watch: TaskWatch::default() }
    }

    /// Runs a task that the node can't do without. If it ends before the node does, by a panic or by a
    /// mistake, the node is to end too.
    pub(crate) fn spawn_vital<T: Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = T> + Send + 'static,
    ) {
        let (stop, watch) = (self.stop.clone(), self.watch.clone());
        self.tracker.spawn(async move {
            watch.clone().vital(name, task).await;
            if !stop.is_cancelled() {
                watch.report(name);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_vital_task_that_panics_or_returns_is_lost() {
        let tasks = NodeTasks::new();
        tasks.spawn_vital("lasting", pending::<()>());
        tasks.spawn_vital("keeper", async { panic!("a test") });
        assert_eq!(tasks.watch.lost().await, "keeper");
        let tasks = NodeTasks::new();
        tasks.spawn_vital("server", ready(()));
        assert_eq!(tasks.watch.lost().await, "server");
    }

    #[tokio::test]
    async fn tasks_that_end_with_the_node_are_not_lost() {
        let tasks = NodeTasks::new();
        let stop = tasks.stop.clone();
        tasks.spawn_vital("keeper", async move { stop.cancelled().await });
        tasks.stop.cancel();
        tasks.tracker.close();
        tasks.tracker.wait().await;
        assert!(timeout(Duration::ZERO, tasks.watch.lost()).await.is_err());
    }
}
