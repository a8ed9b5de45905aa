//! Guest requests, which other nodes forward: admission and service.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use spillway_front::access::{AccessMode, AccessSwitch, Authenticator};
use spillway_front::client::ConnectionFacts;
use spillway_journey::Room;
use spillway_protocol::{ErrorKind, TrustedProxies};
use spillway_request::gateway::{Counters, RoutingState};
use spillway_request::headers::RequestIdentity;
use spillway_route::{Asker, Guest, OwnRegion, admit_guest, shed_state};
use spillway_transport::{BoxError, LinkBody, WireBody};
use spillway_types::{ModelName, Residency, RouteName, ShedState};
use spillway_upstream::Traffic;
use spillway_view::{Asking, Cached, GuestTerms, PendingGuest, Regions, Route, View, WaitKey};

use crate::request::exchange::Exchange;
use crate::worker::Worker;

/// Name of the route for requests without one.
static NO_ROUTE: LazyLock<RouteName> = LazyLock::new(|| RouteName::from(""));

/// Priority class for which a region announces its load to others.
const FIRST_CLASS: u8 = 0;

/// Refusal of a guest before any replica had it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct GuestError {
    /// Reason, for logs.
    pub why: String,
    /// Time after which there may be room; `None` if unknown.
    pub wait: Option<Duration>,
    /// True if there was no room; false for any other reason.
    pub is_load: bool,
}

/// Answer of this region to a guest.
#[derive(Debug)]
pub enum GuestAnswer {
    /// The guest is served here, by [`serve_guest`], and counted from now on.
    Welcome(Option<PendingGuest>),
    /// There is no room for the guest.
    Busy {
        /// Time after which there may be room, in milliseconds.
        wait_ms: f32,
    },
    /// Residency rules forbid it, by the guest's terms or by its route here. The sender should have
    /// known; the refusal is counted, and reporting it is up to the caller.
    OutsideResidency,
}

/// Decides if this region takes a guest of these terms, by what is known now. Call it before
/// the guest's body is requested.
#[must_use]
pub fn admits_guest(worker: &Worker, path: &str, terms: &GuestTerms) -> GuestAnswer {
    let gateway = &*worker.gateway;
    let regions = gateway.routing.regions();
    let authenticator = &gateway.clients.authenticator;
    if is_outside_residency(&gateway.routing, authenticator, &regions, path, terms) {
        gateway.counters.residency_received.fetch_add(1, Ordering::Relaxed);
        return GuestAnswer::OutsideResidency;
    }
    // Without a model, e.g. for a stored response, no other region can serve the request.
    let Some(model) = &terms.model else { return GuestAnswer::Welcome(None) };
    let view = gateway.routing.view();
    let route = route_of(&view, path, model);
    let asker = (terms.priority, true);
    let mut own = own_region(&gateway.routing, &regions, &view, (route, model), asker);
    let (coming, before) = regions.own.get(model).map(|own| own.coming.welcome()).unzip();
    own.add_guests(before.unwrap_or(0), gateway.counters.guests());
    match admit_guest(&own, &regions.terms) {
        Guest::Welcome => GuestAnswer::Welcome(coming),
        Guest::Refused { wait_ms, lack } => {
            let group = route.and_then(|route| route.group(Some(model)));
            for candidate in group.map(|group| group.group.candidates()).unwrap_or_default() {
                let limiter = view.replica(candidate.slot).concurrency();
                lack.into_iter().for_each(|lack| limiter.note_guest_lack(lack));
            }
            GuestAnswer::Busy { wait_ms }
        }
    }
}

fn route_of<'v>(view: &'v View, path: &str, model: &ModelName) -> Option<&'v Route> {
    let prefixed = view.prefixed_route(path);
    prefixed.or_else(|| view.route_of_model(Some(model))).map(AsRef::as_ref)
}

fn is_outside_residency(
    routing: &RoutingState,
    authenticator: &Authenticator,
    regions: &Regions,
    path: &str,
    terms: &GuestTerms,
) -> bool {
    let view = routing.view();
    let prefixed = view.prefixed_route(path);
    // Without a model the node answers itself, or rules are checked once the replica is known.
    let of_model = || terms.model.as_ref().and_then(|model| view.route_of_model(Some(model)));
    let route = prefixed.or_else(of_model);
    let (tenant, residency) = (terms.tenant.as_ref(), &terms.residency);
    let grant = authenticator.vouched_by(tenant, terms.priority, residency);
    let allows = |residency: &Residency| {
        residency.may_serve(routing.own_region.as_str(), regions.own_country)
    };
    !allows(&grant.residency) || !route.is_none_or(|route| allows(&route.spec.residency))
}

/// Returns the load that this region announces to others, so that they don't forward requests that
/// it would refuse.
#[must_use]
pub fn shed_state_of(routing: &RoutingState, model: &ModelName) -> ShedState {
    let regions = routing.regions();
    let view = routing.view();
    let of = (route_of(&view, "", model), model);
    // Computed as for own clients, since the pace of guests changes faster than reports reach
    // others.
    shed_state(&own_region(routing, &regions, &view, of, (FIRST_CLASS, false)), &regions.terms)
}

fn own_region(
    routing: &RoutingState,
    regions: &Regions,
    view: &View,
    (route, model): (Option<&Route>, &ModelName),
    (priority, is_guest): (u8, bool),
) -> OwnRegion {
    let group = route.and_then(|route| route.group(Some(model)));
    let asker = Asker { priority, weight: 1, ..Asker::default() };
    let key = WaitKey::of(route.map_or(&NO_ROUTE, |route| &route.spec.name), model);
    let limits = route.map(|route| route.spec.queue.limits).unwrap_or_default();
    let waiting = routing.waiting.before(&Asking { key, limits, asker }, |_| None);
    let room = Room {
        can_wait: limits.count_max > 0,
        is_guest,
        is_past_guesses: false,
        kept: None,
        first: None,
        adapter: None,
        tenant: None,
        half_blocks: 0,
    };
    let loads = view.loads(Cached::NOTHING, room, Traffic::Http);
    regions.own(model, group, &loads, waiting)
}

/// Wrapper that counts a guest until its reply has ended.
#[derive(Debug)]
struct CountedGuest<B> {
    reply: B,
    counters: Arc<Counters>,
}

impl<B> CountedGuest<B> {
    fn new(reply: B, counters: &Arc<Counters>) -> Self {
        counters.guests.fetch_add(1, Ordering::Relaxed);
        Self { reply, counters: Arc::clone(counters) }
    }
}

impl<B> Drop for CountedGuest<B> {
    fn drop(&mut self) {
        self.counters.guests.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<B: Body + Unpin> Body for CountedGuest<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.reply).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.reply.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.reply.size_hint()
    }
}

/// Serves a request that another node forwarded, by replicas of this region only.
///
/// # Errors
/// Returns an error if no replica can take it; then no part of the request has reached any.
pub async fn serve_guest(
    worker: Arc<Worker>,
    request: Request<LinkBody>,
    terms: GuestTerms,
    coming: Option<PendingGuest>,
) -> Result<Response<LinkBody>, GuestError> {
    let mut dice = worker.gateway.routing.dice();
    let identity = RequestIdentity::of(request.headers(), &mut dice, false);
    let proxies = Arc::new(TrustedProxies::new(Vec::new()));
    // The sending node has checked the key.
    let access = Arc::new(AccessSwitch::new(AccessMode::None));
    let client = Arc::new(ConnectionFacts::new(terms.client, true, proxies, access));
    // Counts the guest until its reply's body does.
    let served = CountedGuest::new((), &worker.gateway.counters);
    let counters = Arc::clone(&worker.gateway.counters);
    let mut exchange = Exchange::new(worker, client, dice, Some(terms));
    exchange.coming = coming;
    match exchange.run(request.map(WireBody::Link), &identity).await {
        Ok(response) => {
            let counted = response.map(|body| CountedGuest::new(body, &counters));
            drop(served);
            Ok(counted.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
        Err(sent) => Err(GuestError {
            why: sent.error.message.clone(),
            wait: sent.error.retry_delay(),
            is_load: sent.error.kind == ErrorKind::Overloaded,
        }),
    }
}
