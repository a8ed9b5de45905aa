//! View of a node at the moment of a decision.

use std::fmt;
use std::time::Instant;

use spillway_route::{HoldTime, RegionReport};
use spillway_types::Signals;

use super::Queue;

/// Facts that the world gives a router at one moment.
#[derive(Clone, Copy, Debug)]
pub struct WorldView<'a> {
    /// Present moment.
    pub now: Instant,
    /// Present moment in milliseconds since the beginning.
    pub now_ms: u64,
    /// Own replicas: those of the region, or of all regions for a central node.
    pub replicas: &'a [OwnReplica],
    /// Other regions; none for a central node.
    pub others: &'a [RemoteRegion],
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

/// Own replica, as this node sees it.
#[derive(Clone, Copy, Debug)]
pub struct OwnReplica {
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
    /// Prompt tokens of this node's requests there.
    pub context_tokens: u32,
    /// Prompt tokens that it read for this node so far.
    pub read_tokens: u64,
    /// Last report of the replica.
    pub signals: Signals,
    /// Round-trip time from this node to the replica in milliseconds; 0 in the node's region.
    pub rtt_ms: f32,
    /// True if the replica takes no connections, as far as the node knows.
    pub is_away: bool,
    /// Requests that the node may have there.
    pub slots: Slots,
}

impl OwnReplica {
    /// Returns the tokens of context there, those of other nodes' requests taken to be as long.
    pub(crate) fn context(&self) -> f32 {
        let own = self.context_tokens as f32;
        if self.in_flight == 0 {
            return own;
        }
        own * (self.in_flight + self.elsewhere) as f32 / self.in_flight as f32
    }
}

/// Slots of a node at a replica, by the limit that the node found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slots {
    /// Most requests of this node in flight, whatever it found; `u32::MAX` without a limit.
    pub in_flight_max: u32,
    /// Requests in flight that the region's nodes together may have there; `None` without a limit.
    pub limit: Option<u32>,
    /// True if the limit was ever needed; before that it is a guess.
    pub is_found: bool,
    /// Part of this node; `u32::MAX` without a limit.
    pub own_part: u32,
    /// Requests of this node without a first token.
    pub unbegun: u32,
    /// Such requests at which the replica takes no more guests; `None` if they are not bounded.
    pub guests_unbegun_max: Option<u32>,
    /// Time that late requests of this node kept a slot.
    pub hold: HoldTime,
}

impl Slots {
    /// Returns true if there is a limit that was never needed.
    #[must_use]
    pub fn is_guess(&self) -> bool {
        self.limit.is_some() && !self.is_found
    }

    /// Returns the requests in flight that the replica takes from the region's nodes together, as
    /// configured, found or guessed.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.in_flight_max.min(self.limit.unwrap_or(u32::MAX))
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            in_flight_max: u32::MAX,
            limit: None,
            is_found: false,
            own_part: u32::MAX,
            unbegun: 0,
            guests_unbegun_max: None,
            hold: HoldTime::default(),
        }
    }
}

/// Another region, as this node sees it.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRegion {
    /// Number of the region.
    pub region: usize,
    /// Last report of the region; `None` before the first, and while the region can't be reached.
    pub report: Option<RegionReport>,
    /// Round-trip time in milliseconds.
    pub rtt_ms: f32,
    /// Number of the region's replicas.
    pub replicas: u32,
    /// Replicas at which no request waited, by the last report; 0 without a report.
    pub available: u32,
    /// Requests that waited in the region's nodes, by the last report.
    pub waiting: u32,
    /// Mean share of the replicas' KV caches in use, 0 to 1, by the last report.
    pub kv_use: f32,
}

/// Real contents of the caches, including requests in transit.
pub trait Truth: fmt::Debug {
    /// Returns the leading blocks of the request's prompt, in blocks of the router, that the
    /// replica will have cached once it has begun with all requests sent to it.
    fn cached_blocks(&self, replica: usize) -> u32;
}
