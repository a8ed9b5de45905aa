//! Waiting for a node or a cluster.

use std::time::Duration;

use spillway_harness::wait_for;

/// Longest wait for a cluster to form or settle: many times the usual time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two looks at nodes.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Looks again and again until `look` returns something.
///
/// # Errors
/// Returns an error with `what` and the last reason of `look` after [`PATIENCE`].
pub(crate) async fn patiently<T>(
    what: &str,
    look: impl AsyncFnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    wait_for(what, PATIENCE, LOOK, look).await
}
