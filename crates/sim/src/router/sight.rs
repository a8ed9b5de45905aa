//! View of a node at the moment of a decision.

use std::fmt;
use std::time::Instant;

use spillway_route::RegionReport;
use spillway_types::Signals;

use super::Queue;

/// Facts that the world gives a router at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// Present moment.
    pub now: Instant,
    /// Present moment in milliseconds since the beginning.
    pub now_ms: u64,
    /// Replicas of the region.
    pub replicas: &'a [ReplicaSight],
    /// Other regions.
    pub others: &'a [RegionSight],
    /// State of the own region, without this node's queue.
    pub own: RegionReport,
    /// Queue of this node.
    pub queue: &'a Queue,
    /// Nodes of the region.
    pub nodes: u32,
    /// Guests in flight in the region, as far as this node knows.
    pub guests: u32,
    /// Real contents of the caches, for routers that may know them.
    pub truth: &'a dyn Truth,
}

/// Replica of the own region, as this node sees it.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSight {
    /// Requests of this node there.
    pub in_flight: u32,
    /// Requests of the region's other nodes there, by their last report.
    pub elsewhere: u32,
    /// Requests that this node ever sent there.
    pub started: u64,
    /// Prompt tokens that the replica still has to read for this node, as predicted.
    pub pending_tokens: u32,
    /// Prompt tokens still to be read for the region's other nodes, by their last report.
    pub pending_elsewhere: u32,
    /// Last report of the replica.
    pub signals: Signals,
}

/// Another region, as this node sees it.
#[derive(Clone, Copy, Debug)]
pub struct RegionSight {
    /// Number of the region.
    pub region: usize,
    /// Last report of the region; `None` before the first.
    pub report: Option<RegionReport>,
    /// Round-trip time in milliseconds.
    pub rtt_ms: f32,
}

/// Real contents of the caches, with requests on their way.
pub trait Truth: fmt::Debug {
    /// Returns the leading blocks of the request's prompt, in blocks of the router, that the
    /// replica will have cached once it has begun with all requests sent to it.
    fn cached_blocks(&self, replica: usize) -> u32;
}
