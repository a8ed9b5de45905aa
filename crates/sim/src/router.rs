//! Router: the deciding part of a node, as a trait, so that other ways of routing run in one world.

mod memory;
mod sight;
mod spillway;

use std::fmt;
use std::sync::Arc;

use spillway_prefix::{HotDelta, HotView};
use spillway_types::{Inquiry, Prediction, RegionName};

pub use sight::{RegionSight, ReplicaSight, Sight, Truth};
pub use spillway::{Knowledge, RouterConfig, SpillwayRouter};

/// Routing of one node, with everything that it remembers.
///
/// The world calls [`Router::decide`] for each request that came to the node or waits in it, and
/// the other methods whenever the node learns something. Replicas are numbered within their region,
/// regions within the world.
pub trait Router: fmt::Debug {
    /// Decides where a request goes now.
    fn decide(&mut self, ask: &Ask<'_>, sight: &Sight<'_>, rng: &mut fastrand::Rng) -> Verdict;

    /// Returns true if the node takes a request that another region sends here. The node then
    /// decides about that request like any other, with the inquiry's `hop` at 1.
    fn admits(&mut self, ask: &Ask<'_>, sight: &Sight<'_>) -> bool;

    /// Notes that this node or another one of the region sent a request to a replica.
    fn sent(&mut self, sent: &Sent<'_>) {
        let _ = sent;
    }

    /// Notes the first token of a reply to a request of this node.
    fn replied(&mut self, replied: &Replied<'_>) {
        let _ = replied;
    }

    /// Notes the end of a reply to a request of this node.
    fn ended(&mut self, ended: &Ended) {
        let _ = ended;
    }

    /// Returns the changes that this node, which speaks for its region, proposes for the state that
    /// all regions agree on; `None` if there are none.
    fn hot_delta(&mut self, now_ms: u64) -> Option<HotDelta> {
        let _ = now_ms;
        None
    }

    /// Notes the new state that all regions agree on. [`region_name`] names its regions.
    fn hot_changed(&mut self, view: &Arc<HotView>) {
        let _ = view;
    }
}

/// Returns the name of a region in the state that all regions agree on.
#[must_use]
pub fn region_name(region: usize) -> RegionName {
    RegionName::from(format!("region-{region}"))
}

/// Request as a router sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Number of the request, in the order of arrival in the whole world.
    pub number: usize,
    /// Input of the node's routing: chain, key, deadline, hop.
    pub inquiry: &'a Inquiry,
    /// Length of the prompt in tokens.
    pub prompt_tokens: u32,
    /// Regions that have refused the request.
    pub refused: &'a [usize],
}

/// Place that a request goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// A replica of the region.
    Serve {
        /// Number of the replica.
        replica: usize,
        /// Predicted times, if the policy predicts.
        prediction: Option<Prediction>,
    },
    /// A node of another region.
    Forward(usize),
    /// The node's queue.
    Wait,
    /// No place: the request is refused.
    Shed,
}

/// Request that was sent to a replica of the region.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Number of the replica.
    pub replica: usize,
    /// Blocks of the prompt, as a chain of hashes.
    pub chain: &'a [u64],
    /// True if this node sent the request itself.
    pub is_own: bool,
    /// Moment at which this node learns of the request, in milliseconds since the beginning.
    pub now_ms: u64,
}

/// Reply that began.
#[derive(Clone, Copy, Debug)]
pub struct Replied<'a> {
    /// Number of the replica.
    pub replica: usize,
    /// Blocks of the prompt, as a chain of hashes.
    pub chain: &'a [u64],
    /// Length of the prompt in tokens.
    pub prompt_tokens: u32,
    /// Prompt tokens found in the replica's cache.
    pub cached_tokens: u32,
    /// Milliseconds from sending the request to the first token.
    pub first_token_ms: f64,
    /// Bytes of the prompt.
    pub prompt_bytes: u32,
    /// Prediction at the moment of sending.
    pub prediction: Option<Prediction>,
    /// Present moment, in milliseconds since the beginning.
    pub now_ms: u64,
}

/// Reply that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Number of the replica.
    pub replica: usize,
    /// Tokens after the first one.
    pub tokens: u32,
    /// Milliseconds from the first token to the last.
    pub span_ms: f64,
}
