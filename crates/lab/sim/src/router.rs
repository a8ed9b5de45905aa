//! Router: the deciding part of a node, as a trait, so that other ways of routing run in one world.

mod baseline;
mod cache_index;
mod config;
mod facts;
mod memory;
mod mirrors;
mod position;
mod queue;
mod request_news;
mod spillway;
mod world_view;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_journey::{Claim, Ending, Event, Unasked, WaitTerms};
use spillway_prefix::{HotDelta, HotView};
use spillway_route::{Asker, Guest, WaitTicket};
use spillway_types::{Inquiry, Prediction, RegionName};

pub use baseline::Baseline;
pub use config::{Knowledge, RouterConfig};
pub use position::NodePosition;
pub use queue::Queue;
pub use request_news::{CacheNews, CacheReport, Ended, Forwarded, Replied, Sent, Stage, Written};
pub use spillway::SpillwayRouter;
pub use world_view::{OwnReplica, RemoteRegion, Slots, Truth, WorldView};

use crate::text::BYTES_PER_TOKEN;

/// Routing of one node, with everything that it remembers.
///
/// The world calls [`Router::decide`] for each request that came to the node, carries out the
/// verdict, and reports the outcome with [`Router::handle`]. It calls the other methods whenever
/// the node learns something. Replicas are numbered as in [`NodePosition::homes`], regions within the
/// world.
pub trait Router: fmt::Debug {
    /// Decides what happens to a request next.
    fn decide(
        &mut self,
        ask: &Ask<'_>,
        sight: &WorldView<'_>,
        rng: &mut fastrand::Rng,
    ) -> RouterVerdict;

    /// Notes the result of the last verdict about a request. Unless a reply began that is for the
    /// client, the world asks for another verdict when that one is carried out.
    fn handle(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, event: Event) {
        let _ = (ask, sight, event);
    }

    /// Forgets a request: its reply has begun, it was rejected, or its client has left.
    fn left(&mut self, request: usize) {
        let _ = request;
    }

    /// Begins the journey of a request that continues a stream, without targets that cannot. `deaths`
    /// engines died while they worked on it.
    fn resume(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>, unasked: &Unasked, deaths: u8) {
        let _ = (ask, sight, unasked, deaths);
    }

    /// Returns the end of a request's journey, with the number of engines that died in it; `None` if
    /// it has not ended.
    fn ending(&self, request: usize) -> Option<(Ending, u8)> {
        let _ = request;
        None
    }

    /// Takes a retry from the node's budget, to continue a stream. Returns false if there is none: a
    /// router without a budget continues no streams.
    fn take_retry(&mut self, now: Instant) -> bool {
        let _ = now;
        false
    }

    /// Notes whether the region is being drained: then other regions go first.
    fn set_evacuated(&mut self, is_evacuated: bool) {
        let _ = is_evacuated;
    }

    /// Decides if the node takes a request that another region sends here. The node then decides
    /// about that request like any other, with the inquiry's `hop` at 1.
    fn admits(&mut self, ask: &Ask<'_>, sight: &WorldView<'_>) -> Guest;

    /// Returns the most requests in flight at a replica, within which the node finds a limit and
    /// keeps to it; `None` for a node without limits.
    fn in_flight_max(&self) -> Option<u32> {
        None
    }

    /// Notes that this node or another one of the region sent a request to a replica.
    fn sent(&mut self, sent: &Sent<'_>) {
        let _ = sent;
    }

    /// Notes the first token of a reply to a request of this node.
    fn replied(&mut self, replied: &Replied<'_>) {
        let _ = replied;
    }

    /// Notes the end of a reply to a request of this node.
    fn ended(&mut self, ended: &Ended<'_>) {
        let _ = ended;
    }

    /// Notes that an own replica has a prompt with its reply cached, from a request of this node or
    /// of another one of the region.
    fn written(&mut self, written: &Written<'_>) {
        let _ = written;
    }

    /// Returns true if the node reads the KV events of its replicas.
    fn follows_caches(&self) -> bool {
        false
    }

    /// Notes news that the engine of an own replica published of its cache.
    fn cache_told(&mut self, report: &CacheReport<'_>) {
        let _ = report;
    }

    /// Notes what became of a request that this node, or another one of the region, sent to another
    /// region.
    fn forwarded(&mut self, forwarded: &Forwarded<'_>) {
        let _ = forwarded;
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

/// Returns the size of a request in tokens, as the gateway counts it, which knows bytes and no
/// tokens.
pub(crate) fn queue_tokens(inquiry: &Inquiry) -> u32 {
    (inquiry.prompt_bytes / BYTES_PER_TOKEN).saturating_add(inquiry.output_tokens_max.unwrap_or(0))
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
    /// Position in the node's queue; `None` if the request does not wait there.
    pub ticket: Option<WaitTicket>,
    /// Number of the client's tenant.
    pub tenant: usize,
    /// Weight of the tenant's turns in the queue.
    pub weight: u16,
}

impl Ask<'_> {
    /// Returns the request as a queue sees it.
    #[must_use]
    pub fn asker(&self, claim: Claim) -> Asker {
        let Inquiry { priority, prompt_bytes, .. } = self.inquiry;
        Asker {
            priority: *priority,
            tenant: self.tenant as u64,
            weight: self.weight,
            tokens: queue_tokens(self.inquiry),
            bytes: *prompt_bytes as usize,
            // 0 would mark a request that cannot be distinguished from others.
            fingerprint: self.number as u64 + 1,
            is_promised: claim.is_promised(),
        }
    }
}

/// Act that the world carries out for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RouterVerdict {
    /// Send the request to an own replica, and report [`Event::Asked`] first.
    Serve {
        /// Number of the replica.
        replica: usize,
        /// Predicted times, if the policy predicts.
        prediction: Option<Prediction>,
    },
    /// Send the request to a node of another region.
    Forward(usize),
    /// Let the request wait in the node's queue, or go on waiting there.
    Wait {
        /// Terms of the wait.
        terms: WaitTerms,
        /// Claim of the request to go before newcomers.
        claim: Claim,
    },
    /// Pause for this long.
    Pause(Duration),
    /// Refuse the request. The client retries after this time, if there is one.
    Shed(Option<Duration>),
    /// Pass on the error reply of a replica.
    Fail,
}

#[cfg(test)]
mod knowledge_test;
#[cfg(test)]
mod spillway_test;
