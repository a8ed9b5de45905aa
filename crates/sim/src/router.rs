//! What decides in a node: a trait, so that other ways of routing run in the same world.

mod memory;
mod sight;
mod spillway;

use std::fmt;
use std::sync::Arc;

use spillway_prefix::{HotDelta, HotView};
use spillway_types::{Inquiry, Prediction, RegionName};

pub use sight::{RegionSight, ReplicaSight, Sight, Truth};
pub use spillway::{Knowledge, RouterConfig, SpillwayRouter};

/// One node's way of deciding, with whatever it remembers.
///
/// The world calls [`Router::decide`] for each request that came to the node or waits in it, and
/// the other methods whenever the node learns something. Replicas go by their number within the
/// region, regions by their number in the world.
pub trait Router: fmt::Debug {
    /// Where a request goes now.
    fn decide(&mut self, ask: &Ask<'_>, sight: &Sight<'_>, rng: &mut fastrand::Rng) -> Verdict;

    /// Whether the node takes a request that another region's node sends here. What it takes it
    /// then decides about like any other, with the inquiry's `hop` at 1.
    fn admits(&mut self, ask: &Ask<'_>, sight: &Sight<'_>) -> bool;

    /// A request was sent to a replica, by this node or by another one of the region.
    fn sent(&mut self, sent: &Sent<'_>) {
        let _ = sent;
    }

    /// The first token of a reply came, to a request that this node had sent.
    fn replied(&mut self, replied: &Replied<'_>) {
        let _ = replied;
    }

    /// A reply has ended, to a request that this node had sent.
    fn ended(&mut self, ended: &Ended) {
        let _ = ended;
    }

    /// What this node, which speaks for its region, would have changed in the state that all
    /// regions agree on.
    fn hot_delta(&mut self, now_ms: u64) -> Option<HotDelta> {
        let _ = now_ms;
        None
    }

    /// That state has changed. Its regions are named by [`region_name`].
    fn hot_changed(&mut self, view: &Arc<HotView>) {
        let _ = view;
    }
}

/// The name of a region in the state that all agree on.
#[must_use]
pub fn region_name(region: usize) -> RegionName {
    RegionName::from(format!("region-{region}"))
}

/// A request as a router sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Its number, in the order of arrival in the whole world.
    pub number: usize,
    /// As the node's own routing has it: chain, key, deadline, hop.
    pub inquiry: &'a Inquiry,
    /// Its prompt's length.
    pub prompt_tokens: u32,
    /// Regions that have refused it.
    pub refused: &'a [usize],
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// To a replica of the region.
    Serve {
        /// Which one.
        replica: usize,
        /// How long it is predicted to take, if that was predicted.
        prediction: Option<Prediction>,
    },
    /// To a node of another region.
    Forward(usize),
    /// Into the node's queue.
    Wait,
    /// Nowhere.
    Shed,
}

/// A request that went to a replica of the region.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// The replica.
    pub replica: usize,
    /// The prompt's chain of blocks.
    pub chain: &'a [u64],
    /// Whether this very node sent it.
    pub is_own: bool,
    /// When this node learns of it, milliseconds since the beginning.
    pub now_ms: u64,
}

/// A reply that began.
#[derive(Clone, Copy, Debug)]
pub struct Replied<'a> {
    /// The replica.
    pub replica: usize,
    /// The prompt's chain of blocks.
    pub chain: &'a [u64],
    /// The prompt's length.
    pub prompt_tokens: u32,
    /// Of these, found in the replica's cache.
    pub cached_tokens: u32,
    /// Milliseconds from sending it to this moment.
    pub first_token_ms: f64,
    /// Bytes of the prompt.
    pub prompt_bytes: u32,
    /// What was predicted when it was sent.
    pub prediction: Option<Prediction>,
    /// Now, milliseconds since the beginning.
    pub now_ms: u64,
}

/// A reply that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The replica.
    pub replica: usize,
    /// Tokens after the first one.
    pub tokens: u32,
    /// Milliseconds from the first to the last.
    pub span_ms: f64,
}
