//! Load of a pool.

/// Load of a pool, by which its reserve is promoted and demoted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PoolLoad {
    /// Open replicas, those of the reserve included.
    pub(crate) open: u32,
    /// Replicas that do not belong to the reserve, in any state.
    pub(crate) regular: u32,
    /// Mean queue length of open replicas; `None` if no replica reports one.
    pub(crate) queue_mean: Option<f32>,
    /// 99th percentile of the time to first byte; `None` after too few samples.
    pub(crate) p99_ms: Option<f32>,
}
