//! Every metric name, the registry behind them, and log set-up.
//!
//! The data path never calls this crate's recording functions: it leaves `Outcome`s in a bounded
//! queue, and one feedback task brings them here.

pub mod logs;
mod metrics;
pub mod names;
mod places;
mod stream_gaps;

pub use metrics::{Live, LiveReplica, Metrics};
