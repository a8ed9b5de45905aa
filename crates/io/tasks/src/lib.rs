//! Watch over tasks that run as long as a node: a panic in a task that the node needs ends the node,
//! a panic in a task about one replica or name begins that task again.
//!
//! Tasks of single requests and connections need neither: their panic costs that request or connection.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::sleep;

/// Pause before a task begins again. A task that panics at once must not fill a core or the log.
const PAUSE: Duration = Duration::from_secs(1);

/// Record of the first task that a node needs and has lost. Clones share it; the default one belongs to
/// no node, and only logs.
#[derive(Clone, Debug)]
pub struct TaskWatch(watch::Sender<Option<&'static str>>);

impl Default for TaskWatch {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl TaskWatch {
    /// Runs a task that the node can't do without. A panic is recorded under `name`, and goes on.
    pub async fn vital<T>(self, name: &'static str, task: impl Future<Output = T>) -> T {
        match AssertUnwindSafe(task).catch_unwind().await {
            Ok(value) => value,
            Err(panic) => {
                self.report(name);
                resume_unwind(panic)
            }
        }
    }

    /// Records that a task that the node can't do without has ended.
    pub fn report(&self, name: &'static str) {
        tracing::error!(task = name, "a task that the node needs has ended");
        self.0.send_if_modified(|lost| match lost {
            Some(_) => false,
            None => lost.replace(name).is_none(),
        });
    }

    /// Waits until a vital task is lost, and returns its name.
    pub async fn lost(&self) -> &'static str {
        let mut lost = self.0.subscribe();
        loop {
            if let Some(name) = *lost.borrow_and_update() {
                return name;
            }
            // The sender is part of this.
            drop(lost.changed().await);
        }
    }
}

/// Runs a task that a panic must not end, because it is about one replica or one name of many: what it
/// reads comes from elsewhere, and would end node after node. A task that panics begins again after a
/// second.
pub async fn restarted<F: Future<Output = ()>>(name: &'static str, mut begin: impl FnMut() -> F) {
    while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
        tracing::error!(task = name, "a task has panicked, and begins again");
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_first_vital_task_that_panics_is_lost() {
        let watch = TaskWatch::default();
        assert_eq!(watch.clone().vital("done", async { 7 }).await, 7);
        assert!(timeout(Duration::ZERO, watch.lost()).await.is_err());
        for name in ["first", "second"] {
            let task = watch.clone().vital(name, async { panic!("a test") });
            let ended: Result<(), _> = AssertUnwindSafe(task).catch_unwind().await;
            assert!(ended.is_err(), "the panic goes on");
        }
        assert_eq!(watch.lost().await, "first");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_begins_again_after_a_pause() {
        let began = tokio::time::Instant::now();
        let mut runs = 0;
        restarted("a test", || {
            runs += 1;
            let run = runs;
            async move { assert!(run > 2, "a test") }
        })
        .await;
        assert_eq!((runs, began.elapsed()), (3, 2 * PAUSE));
    }
}
