//! Interface to the node's knowledge of regions: those that clients are to be sent to.

use std::fmt::Debug;

use spillway_types::{RegionName, Steering};

/// Knowledge of the regions that clients are to be sent to.
pub trait Steered: Debug + Send + Sync {
    /// Returns every region, the node's own first.
    fn regions(&self) -> Vec<SteeredRegion>;
}

/// Advice about sending clients to a region.
#[derive(Clone, Debug, PartialEq)]
pub struct SteeredRegion {
    /// Name of the region.
    pub name: RegionName,
    /// True if the region's reports arrive.
    pub is_heard: bool,
    /// Advice that the region itself gives.
    pub steering: Steering,
    /// Smoothed round-trip time from this node, in milliseconds.
    pub rtt_ms: f32,
}
