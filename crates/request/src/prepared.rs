//! Requests that are ready to be sent.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use spillway_types::{Inquiry, ModelName, ReplicaSlot};

use crate::continuation_terms::ContinuationTerms;
use crate::cost::Cost;
use crate::flavour::Flavour;
use crate::reply_hasher::ReplyHasher;
use crate::salting::Salting;
use crate::target::Target;
use spillway_front::access::Authenticator;
use spillway_front::body_budget::BodyReservation;
use spillway_upstream::connection::{OutboundBody, RequestBody};
use spillway_upstream::place::Place;
use spillway_upstream::replica::Replica;
use spillway_upstream::view::Route;

/// A request that is ready to be sent.
#[derive(Debug)]
pub struct Prepared {
    /// Route.
    pub route: Arc<Route>,
    /// Facts that routing may know of the request.
    pub inquiry: Inquiry,
    /// True if the client's address belongs to a single client.
    pub is_one_client: bool,
    /// Body for replicas.
    pub body: RequestBody,
    /// Salted body for replicas that keep cache entries apart, if the tenant shares none with
    /// others.
    pub salting: Option<Box<Salting>>,
    /// Upper bound of the tokens that the request may use.
    pub cost: Cost,
    /// Path at the replica.
    pub path: PathAndQuery,
    /// Choices besides route and model.
    pub target: Target,
    /// The only replica that can answer, e.g. since it stores the response asked for.
    pub pinned: Option<ReplicaSlot>,
    /// Format of the reply.
    pub flavour: Flavour,
    /// True if the gateway requested the stream's usage report, and not the client.
    pub strip_usage: bool,
    /// Model as the client named it, if the reply's id is to be remembered with its replica.
    pub stored_for: Option<ModelName>,
    /// Facts for continuing the stream; `None` if it is not to be continued.
    pub continuing: Option<ContinuationTerms>,
    /// Hasher of the reply; `None` if no policy goes by caches, or if the reply is not repeated.
    pub reply_hasher: Option<Box<ReplyHasher>>,
    /// Time that the client took to send its body.
    pub body_wait: Duration,
    /// Memory of the body; released when dropped.
    pub _reservation: Option<BodyReservation>,
}

impl Prepared {
    /// Releases the memory reservation, when the body is no longer held.
    pub fn forget_reservation(&mut self) {
        self._reservation = None;
    }

    /// Returns the body for one attempt; `None` if it was streamed to an earlier one.
    pub fn body_for(&mut self, replica: &Replica) -> Option<OutboundBody> {
        match (&self.salting, replica.spec().salt_field) {
            (Some(salting), Some(field)) => Some(OutboundBody::of(salting.body(field))),
            _ => self.body.for_attempt(),
        }
    }

    /// Returns true if replies of the replica must not tell cached tokens: some tenant's prompts
    /// are isolated, and the replica does not keep this request's cache entries apart.
    pub fn hides_cache(&self, authenticator: &Authenticator, replica: &Replica) -> bool {
        let is_isolated = self.inquiry.is_isolated;
        let is_apart =
            replica.spec().salt_field.is_some() && (self.salting.is_some() || !is_isolated);
        let is_hidden = is_isolated || authenticator.isolates_any();
        is_hidden && !is_apart && self.flavour != Flavour::Grpc
    }

    /// Returns true if replies from this place must not tell cached tokens; false for another
    /// region, which hides them itself.
    pub fn hides_cache_at(&self, authenticator: &Authenticator, place: Option<&Place>) -> bool {
        let replica = place.and_then(Place::replica);
        replica.is_some_and(|replica| self.hides_cache(authenticator, replica))
    }
}
