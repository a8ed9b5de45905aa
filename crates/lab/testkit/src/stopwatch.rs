//! A clock for upper bounds that no busy machine breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::spawn;

/// Time between two counts: well above the timer's resolution of 1 ms, which adds to each.
const TICK: Duration = Duration::from_millis(20);

/// Time since its start, less the time for which the machine held up the test's runtime.
///
/// It counts short sleeps, one after the other. A timer that is waited for is counted in full. A pause
/// of the machine counts as one sleep, and on a busy machine each sleep takes longer, like all that the
/// test measures. Use it for an upper bound on what waits for timers and paths, such as an election: a
/// bound on [`std::time::Instant`] fails as soon as other tests need the processor.
#[derive(Debug)]
pub struct Stopwatch {
    ticks: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl Stopwatch {
    /// Starts counting in the present runtime.
    #[must_use]
    pub fn start() -> Self {
        let ticks = Arc::<AtomicU32>::default();
        let counted = Arc::clone(&ticks);
        let task = spawn(async move {
            loop {
                // wait: the sleep that is counted.
                tokio::time::sleep(TICK).await;
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { ticks, task }
    }

    /// Returns the time since the start, up to a tick less.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        TICK * self.ticks.load(Ordering::Relaxed)
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn timers_count_in_full_and_pauses_of_the_machine_do_not() {
        let watch = Stopwatch::start();
        // wait: paused time passes at once.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(watch.elapsed() > Duration::from_millis(1_900), "{:?}", watch.elapsed());
        let before = watch.elapsed();
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::task::yield_now().await;
        assert!(watch.elapsed() <= before + 2 * TICK, "{:?}", watch.elapsed());
    }
}
