//! Actions that are repeated in the background of a trial.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spillway_harness::spawn;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::sleep;

/// Action that is carried out again and again, with its results. Dropping this leaves it running.
#[derive(Debug)]
pub(crate) struct Repeated<T> {
    results: Arc<Mutex<Vec<T>>>,
    task: JoinHandle<()>,
}

impl<T: Send + 'static> Repeated<T> {
    /// Carries out `act` with the numbers from 1, one after the other, with a pause of `gap` in
    /// between.
    pub(crate) fn start<F: Future<Output = T> + Send + 'static>(
        gap: Duration,
        mut act: impl FnMut(u64) -> F + Send + 'static,
    ) -> Self {
        let results = Arc::<Mutex<Vec<T>>>::default();
        let kept = Arc::clone(&results);
        let task = spawn(async move {
            for number in 1.. {
                let result = act(number).await;
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                // wait: until the next one
                sleep(gap).await;
            }
        });
        Self { results, task }
    }

    /// Ends the repetition, whatever is under way, and returns the results.
    pub(crate) async fn end(self) -> Vec<T> {
        self.task.abort();
        let ended = self.task.await;
        // A panic in an action goes on here; any other error says that the task was aborted.
        if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
            resume_unwind(panic);
        }
        std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
