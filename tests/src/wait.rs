//! Waiting with a deadline.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// Far above what anything here takes, even on a machine with a tenth of the usual speed.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How much slower than usual a machine may be. A test that checks a time allows this many times what is
/// promised: it shows that nothing else had to end first, such as a poll or a time-out.
pub const SLOWDOWN: u32 = 20;
/// How often a condition is looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not come to hold; `what` says what was waited for.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        // wait: the pause between two looks at the condition.
        tokio::time::sleep(PAUSE).await;
    }
}

/// The future's result.
///
/// # Panics
/// If it takes too long; `what` says what was waited for.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(done) => done,
        Err(_) => panic!("took too long: {what}"),
    }
}

/// A task beside the test; it ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "nothing drains here: a test's tasks end with it")]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}
