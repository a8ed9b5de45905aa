//! What a node sees at the moment of a decision.

use std::fmt;
use std::time::Instant;

use spillway_route::{RegionReport, Waiting};
use spillway_types::Signals;

/// Everything that the world tells a router about one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// The moment.
    pub now: Instant,
    /// The same, milliseconds since the beginning.
    pub now_ms: u64,
    /// The region's replicas.
    pub replicas: &'a [ReplicaSight],
    /// The other regions.
    pub others: &'a [RegionSight],
    /// How the own region stands, without what waits in this node.
    pub own: RegionReport,
    /// What waits in this node.
    pub waiting: Waiting,
    /// Nodes of the region.
    pub nodes: u32,
    /// Guests in flight in the region, as far as this node knows.
    pub guests: u32,
    /// What is really in the caches; for routers that are allowed to know.
    pub truth: &'a dyn Truth,
}

/// A replica of the own region, as this node sees it.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSight {
    /// This node's requests there.
    pub in_flight: u32,
    /// Those of the region's other nodes, as they told last.
    pub elsewhere: u32,
    /// Requests that this node ever sent there.
    pub started: u64,
    /// Prompt tokens that it still has to read for this node, as far as predicted.
    pub pending_tokens: u32,
    /// The same for the region's other nodes, as they told last.
    pub pending_elsewhere: u32,
    /// What it reported.
    pub signals: Signals,
}

/// Another region, as this node sees it.
#[derive(Clone, Copy, Debug)]
pub struct RegionSight {
    /// Its number.
    pub region: usize,
    /// What it reported last; `None` before the first report.
    pub report: Option<RegionReport>,
    /// Milliseconds there and back.
    pub rtt_ms: f32,
}

/// What is really in the caches, or on its way into them.
pub trait Truth: fmt::Debug {
    /// Leading blocks of the request's prompt, in blocks of the router, that the replica will have
    /// in its cache once it has begun with all that was sent to it.
    fn cached_blocks(&self, replica: usize) -> u32;
}
