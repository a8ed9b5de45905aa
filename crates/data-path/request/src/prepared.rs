//! Requests that are ready to be sent.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::uri::PathAndQuery;
use spillway_front::access::Authenticator;
use spillway_front::body_budget::BodyReservation;
use spillway_protocol::{
    BodyDraft, Changes, GatewayError, Segments, UsageWish, change, read_facts,
};
use spillway_types::{Inquiry, ModelName, ReplicaSlot};
use spillway_upstream::{OutboundBody, RequestBody};
use spillway_view::{HeldSlot, Replica, Route, WantedUsage};

use crate::continuation_terms::ContinuationTerms;
use crate::cost::Cost;
use crate::flavour::Flavour;
use crate::reply_hasher::ReplyHasher;
use crate::surroundings::{Contents, Surroundings};
use crate::target::Target;

/// A request that is ready to be sent.
#[derive(Debug)]
pub struct Prepared {
    /// Route.
    pub route: Arc<Route>,
    /// Facts that routing may know of the request.
    pub inquiry: Inquiry,
    /// True if the client's address belongs to a single client.
    pub is_one_client: bool,
    /// Body for replicas, as the client sent it except for the model's name.
    pub body: RequestBody,
    /// Draft of the bodies for replicas that are asked for usage, or that keep the cache entries of
    /// an isolated tenant apart. `None` if all replicas get `body`.
    pub draft: Option<BodyDraft>,
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
    /// Usage that the gateway wants of the stream beyond the client's own request; `None` if none.
    pub usage: Option<WantedUsage>,
    /// Number of engines that died while they served the request.
    pub deaths: u8,
    /// Model as the client named it, if the reply's id is to be remembered with its replica.
    pub stored_for: Option<ModelName>,
    /// Facts for continuing the stream; `None` if it is not to be continued.
    pub continuing: Option<ContinuationTerms>,
    /// Hasher of the reply; `None` if no policy uses caches, or if the reply is not repeated.
    pub reply_hasher: Option<Box<ReplyHasher>>,
    /// Time that the client took to send its body.
    pub body_wait: Duration,
    /// Memory of the body; released when dropped.
    pub reservation: Option<BodyReservation>,
}

/// Destination of a request.
#[derive(Debug)]
pub struct Routed {
    /// Route.
    pub route: Arc<Route>,
    /// Model; `None` if the route knows none.
    pub model: Option<ModelName>,
    /// Choices besides route and model.
    pub target: Target,
    /// Path at the replica.
    pub path: PathAndQuery,
}

/// A body for replicas, and what taking it in has cost.
#[derive(Debug)]
pub struct ReadBody {
    /// Body for replicas.
    pub body: RequestBody,
    /// Upper bound of the tokens that the request may use.
    pub cost: Cost,
    /// Time that the client took to send the body.
    pub wait: Duration,
    /// Memory of the body; `None` if it is streamed.
    pub reservation: Option<BodyReservation>,
}

impl Surroundings<'_> {
    /// Returns a request that any replica of its group may answer, with a body that is the same for
    /// all, and without a stored response, usage of the gateway's own, or a continuation.
    ///
    /// # Errors
    /// Returns an error if the client's time limit can't be read.
    pub fn prepared(
        self,
        routed: Routed,
        contents: Contents<'_>,
        flavour: Flavour,
        read: ReadBody,
    ) -> Result<Prepared, GatewayError> {
        let Routed { route, model, target, path } = routed;
        let ReadBody { body, cost, wait, reservation } = read;
        Ok(Prepared {
            inquiry: self.inquiry(&route, model, contents)?,
            is_one_client: self.is_one_client,
            path,
            body,
            draft: None,
            cost,
            target,
            pinned: None,
            flavour,
            usage: None,
            deaths: self.deaths(),
            stored_for: None,
            continuing: None,
            reply_hasher: None,
            body_wait: wait,
            reservation,
            route,
        })
    }
}

impl Prepared {
    /// Releases the memory reservation, when the body is no longer held.
    pub fn forget_reservation(&mut self) {
        self.reservation = None;
    }

    /// Returns the usage that a replica is to be asked for beyond the client's own request, by its
    /// kind and by what it has refused. To be called once for each attempt: the answer changes when
    /// the replica refuses more.
    pub fn usage_wish(&self, replica: &Replica) -> UsageWish {
        self.beyond_client(|wanted| {
            wanted.of_server(replica.spec().usage_reports, replica.usage_limit())
        })
    }

    /// Returns the usage that replicas of another region may be asked for beyond the client's own
    /// request.
    pub fn usage_wish_elsewhere(&self) -> UsageWish {
        self.beyond_client(WantedUsage::greatest)
    }

    /// Returns the part of a wish that the client does not ask for itself.
    pub fn beyond_client(&self, wish: impl FnOnce(WantedUsage) -> UsageWish) -> UsageWish {
        match (self.usage, &self.draft) {
            (Some(wanted), Some(draft)) => draft.beyond_client(wish(wanted)),
            _ => UsageWish::AsSent,
        }
    }

    /// Returns true if the reply's usage has to be removed, given the usage that its server was
    /// asked for. It is removed elsewhere if the stream is followed for a continuation.
    pub fn strips_usage(&self, asked: UsageWish) -> bool {
        asked != UsageWish::AsSent && !self.is_followed()
    }

    /// Returns true if the stream is followed, so that another replica can continue it.
    pub fn is_followed(&self) -> bool {
        let is_fit = self.continuing.is_some_and(|continuing| continuing.fit.is_ok());
        is_fit && self.route.spec.continuation.is_some()
    }

    /// Returns the body for one attempt, which asks for this usage; `None` if the body was streamed
    /// to an earlier attempt.
    pub fn body_for(&mut self, replica: &Replica, usage: UsageWish) -> Option<OutboundBody> {
        if let Some(name) = self.name_at(replica)
            && let RequestBody::Buffered(body) = &self.body
        {
            return renamed(body, name, usage);
        }
        if let (Some(draft), RequestBody::Buffered(body)) = (&self.draft, &self.body) {
            let salt = replica.spec().salt_field.filter(|_| draft.has_salt());
            if usage != UsageWish::AsSent || salt.is_some() {
                return Some(OutboundBody::of(&draft.apply(body, usage, salt)));
            }
        }
        self.body.for_attempt()
    }

    /// Returns the model's name at the replica, if that knows it by another one.
    fn name_at<'r>(&self, replica: &'r Replica) -> Option<&'r str> {
        let overflow = replica.spec().overflow.as_ref()?;
        overflow.names.get(self.inquiry.model.as_ref()?).map(String::as_str)
    }

    /// Returns true if replies of the replica must not report cached tokens: some tenant's prompts
    /// are isolated, and the replica does not keep this request's cache entries apart.
    pub fn hides_cache(&self, authenticator: &Authenticator, replica: &Replica) -> bool {
        let is_isolated = self.inquiry.is_isolated;
        let has_salt = self.draft.as_ref().is_some_and(BodyDraft::has_salt);
        let is_apart = replica.spec().salt_field.is_some() && (has_salt || !is_isolated);
        let is_hidden = is_isolated || authenticator.isolates_any();
        is_hidden && !is_apart && self.flavour != Flavour::Grpc
    }

    /// Returns true if replies from this target must not report cached tokens; false for another
    /// region, which hides them itself.
    pub fn hides_cache_at(&self, authenticator: &Authenticator, target: Option<&HeldSlot>) -> bool {
        let replica = target.and_then(HeldSlot::replica);
        replica.is_some_and(|replica| self.hides_cache(authenticator, replica))
    }
}

/// Returns a body that names another model and asks for this usage; `None` if it can't be read. Few
/// requests need it, so the body is gathered and read again.
fn renamed(body: &Segments, name: &str, usage: UsageWish) -> Option<OutboundBody> {
    let mut gathered = BytesMut::with_capacity(body.len());
    body.iter().for_each(|piece| gathered.extend_from_slice(piece));
    let original = gathered.freeze();
    let facts = read_facts(&original).ok()?;
    let changes = Changes { model: Some(name), ..Changes::default() };
    let changed = change(&original, &facts, &changes);
    let draft = BodyDraft::new(&original, &facts, Some(name), None);
    Some(OutboundBody::of(&draft.apply(&changed, usage, None)))
}
