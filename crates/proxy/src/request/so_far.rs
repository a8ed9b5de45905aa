//! What has come of a request's attempts.

use std::time::Instant;

use spillway_protocol::GatewayError;
use spillway_route::{Attempt, Refusal};
use spillway_types::{RegionName, ReplicaSlot};

use crate::request::dispatch::Dispatched;
use crate::waiting::Stay;

/// What has come of a request's attempts.
#[derive(Debug, Default)]
pub(super) struct SoFar {
    pub(super) tried: Vec<ReplicaSlot>,
    /// Regions that did not take it, and when; while it waits they are forgotten after some time.
    pub(super) refused: Vec<(RegionName, Instant)>,
    /// Regions that say they may not serve it: that does not change while it waits.
    pub(super) barred_by: Vec<RegionName>,
    /// Nodes of other regions that were about to end.
    pub(super) leaving: u32,
    /// Its place in this node's queue.
    pub(super) stay: Option<Stay>,
    /// When it first began to wait.
    pub(super) waiting_since: Option<Instant>,
    /// It was turned away before, and comes back when it was asked to.
    pub(super) is_promised: bool,
    /// Its turn has come once, and it found no place.
    pub(super) had_turn: bool,
    /// When that turn was to come: it waits on as one that came so long ago.
    pub(super) turn_by: Option<Instant>,
    /// By which it is known again, once that was needed.
    pub(super) fingerprint: Option<u64>,
    /// It has waited, and those behind it wait on.
    pub(super) has_turn: bool,
    pub(super) attempts: u32,
    /// Those for the model that it names now.
    pub(super) attempts_of_model: u32,
    /// This request's turn. It is taken once: retries that took turns of their own would send the
    /// first attempt of every request to the same one of two replicas.
    pub(super) ticket: Option<u64>,
    /// The replica whose kept connection broke. That says little about the replica: if no other can
    /// be asked, it is asked again on a new connection.
    pub(super) worn: Option<Attempt>,
    pub(super) failure: Option<GatewayError>,
    /// An error reply for which a better one is sought.
    pub(super) held: Option<Dispatched>,
    /// When the first of the replicas that asked to be left alone will take requests again.
    pub(super) busy_until: Option<Instant>,
    /// The same of the other regions that refused it.
    pub(super) elsewhere_until: Option<Instant>,
    /// Why the first model could not be asked any more.
    pub(super) refusal: Option<Refusal>,
    /// Leading blocks of the prompt at the replica that held most when it was planned last; `None` if
    /// caches make no difference to the policy.
    pub(super) cached_longest: Option<u32>,
}

impl SoFar {
    /// Whether a region did not take it a moment ago.
    pub(super) fn has_refused(&self, region: &RegionName) -> bool {
        self.refused.iter().any(|(refused, _)| refused == region)
    }

    /// Keeps a reply that may be replaced by a better one; the first one is kept.
    pub(super) fn hold(&mut self, mut dispatched: Dispatched) {
        if let Some(witness) = &mut dispatched.witness {
            witness.head(&dispatched.reply.response);
        }
        self.held.get_or_insert(dispatched);
    }
}
