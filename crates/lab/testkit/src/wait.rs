//! Waiting with a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Deadline of every wait: far above what anything here takes, even on a machine with a tenth of the
/// usual speed.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Factor by which a machine may be slower than usual. A test that checks a time allows this many
/// times the promised one: it shows that nothing else had to end first, such as a poll or a
/// time-out.
pub const SLOWDOWN: u32 = 20;
/// Pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(2);
/// Pause between two looks where each look may start a process.
const PAUSE_BLOCKING: Duration = Duration::from_millis(20);
/// Pause between two attempts of what failed for the moment.
const PAUSE_RETRY: Duration = Duration::from_millis(20);

/// Waits until `condition` holds.
///
/// # Panics
/// If the condition does not hold within [`PATIENCE`]; `what` names it.
pub async fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(PATIENCE, what, condition).await;
}

/// Waits until `condition` holds, for at most `limit`.
///
/// # Panics
/// If the condition does not hold within `limit`; `what` names it.
pub async fn eventually_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "never came true: {what}");
        // wait: the pause between two looks at the condition.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Calls `attempt` until it succeeds or fails with an error that does not pass, for about
/// [`PATIENCE`] at most, and returns the last result.
///
/// # Errors
/// Returns the last error.
pub async fn retried<T, E, F>(
    passes: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let start = Instant::now();
    loop {
        match attempt().await {
            Err(error) if passes(&error) && start.elapsed() < PATIENCE => {
                // wait: the pause between two attempts.
                tokio::time::sleep(PAUSE_RETRY).await;
            }
            done => return done,
        }
    }
}

/// Blocks the thread until `condition` holds, for tests that drive processes.
///
/// # Panics
/// If the condition does not hold within [`PATIENCE`]; `what` names it.
pub fn eventually_blocking(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        // wait: the pause between two looks at the condition.
        std::thread::sleep(PAUSE_BLOCKING);
    }
}

/// Returns the future's result.
///
/// # Panics
/// If the future takes longer than [`PATIENCE`]; `what` names it.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(done) => done,
        Err(_) => panic!("took too long: {what}"),
    }
}

/// Starts a task beside the test; it ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "nothing drains here: a test's tasks end with it")]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}
