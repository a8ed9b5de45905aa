//! Driver of a request's journey: carries out one step after the other, and hands in an event for
//! each.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, Uri};
use spillway_journey::{
    ComparedCosts, Connection, Ending, Event, Journey, Notes, Overflow, Position, RetrySafety,
    StatusClass, Step, TenantKey,
};
use spillway_protocol::{FailureCause, GatewayError, ReplyApi, UsageWish, WholeReader};
use spillway_request::flavour::Flavour;
use spillway_request::headers::{
    address_to, keep_for_hosted_api, remove_client_keys, tell_time_left,
};
use spillway_request::prepared::Prepared;
use spillway_route::{Attempt, Candidate, SpillReason};
use spillway_transport::coarse_clock;
use spillway_types::{Compared, DownCause, Inquiry, TriedTarget};
use spillway_upstream::{
    AttemptBounds, AttemptError, FailedAttempt, LineKind, OutboundBody, RequestBody, Sending,
    UpstreamBody, UpstreamLine, attempt,
};
use spillway_view::{
    HeldSlot, HomeNews, KV_SESSION, QueuedRequest, Regions, Replica, RouteGroup, UsageReports,
    View, kv_session,
};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::request::asked::Asked;
use crate::request::attempt_observer::AttemptObserver;
use crate::request::errors::internal;
use crate::request::record::RequestRecord;
use crate::request::whole_reply::{Judging, judge};
use crate::worker::Worker;

/// A reply that began, and the target that goes with it.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) reply: Response<UpstreamBody>,
    pub(crate) target: HeldSlot,
    /// Observer of the replica; `None` for another region, whose replicas are not judged here.
    pub(crate) observer: Option<AttemptObserver>,
    /// Choice of the target.
    pub(crate) choice: ServedChoice,
    /// Usage that the server was asked for beyond the client's own request.
    pub(crate) asked_usage: UsageWish,
    /// Facts of the reply, if all of it was read before.
    pub(crate) reader: Option<Box<WholeReader>>,
}

/// Choice of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServedChoice {
    /// A replica of this region, by its group's policy.
    Replica(Attempt),
    /// Another region; `None` if no other could have served it.
    Region(Option<SpillReason>),
}

/// A reply, and the facts of it if all of it was read.
pub(super) type JudgedReply = (Response<UpstreamBody>, Option<Box<WholeReader>>);

/// A request that is being dispatched: all that its acts need, and their interim results.
#[derive(Debug)]
pub(crate) struct Dispatch<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) view: Arc<View>,
    /// State of all regions.
    pub(crate) regions: Arc<Regions>,
    pub(crate) prepared: &'a mut Prepared,
    pub(crate) head: &'a Parts,
    pub(crate) dice: fastrand::Rng,
    /// Time at which the request's head arrived.
    pub(crate) started: Instant,
    /// Key under which the tenant is counted.
    pub(crate) tenant: Option<TenantKey>,
    pub(crate) interim: Interim,
}

/// Interim results of a request's acts.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    /// Position in this node's queue.
    pub(super) queued_request: Option<QueuedRequest>,
    /// Hash by which a retry of the same request is recognized; `None` until needed.
    pub(super) fingerprint: Option<u64>,
    /// The first error reply for which a better one was sought.
    pub(super) held: Option<Box<Dispatched>>,
    /// Error of the last failed attempt, for the client.
    pub(super) failure: Option<GatewayError>,
    /// True once hosted APIs were asked to serve the request while it waits: they are asked once.
    pub(super) has_overflowed: bool,
}

impl Dispatch<'_> {
    /// Asks replicas until one begins to reply, or the journey ends without.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(crate) async fn run(
        mut self,
        record: &mut RequestRecord,
    ) -> Result<Dispatched, GatewayError> {
        self.worker.gateway.retries.budget.on_request();
        if self.view.has_overflow() {
            self.count_for_overflow();
        }
        let mut journey = self.journey();
        if self.redeem(&journey) {
            journey.redeem_promise();
        }
        let driven = self.drive(&mut journey, record).await;
        if journey.ending() == Some(Ending::EnginesDied) {
            record.engines_died();
        }
        driven
    }

    /// Creates the journey of this request from its beginning.
    pub(super) fn journey(&self) -> Journey {
        let attempts_max = self.worker.gateway.retries.attempts_max;
        Journey::new(self.started, attempts_max).after_deaths(self.prepared.deaths)
    }

    /// Carries out the steps of a journey to its end.
    ///
    /// # Errors
    /// Returns the error for the client.
    pub(super) async fn drive(
        &mut self,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Result<Dispatched, GatewayError> {
        loop {
            self.saw_tenant();
            let step = self.next(journey);
            self.keep(journey.take_notes(), record);
            match step {
                Step::TakeRetry(safety) => {
                    self.take_retry(safety, journey, record);
                }
                Step::TakeLateProbe => {
                    let probes = self.group().map(|group| &group.memory.slo_probes);
                    let is_allowed = probes.is_some_and(|probes| probes.pass(coarse_clock::now()));
                    self.tell(journey, Event::LateProbe { is_allowed });
                }
                Step::Ask { attempt, connection } => {
                    let asking = self.ask_replica(attempt, connection, journey, record);
                    if let Some(reply) = asking.await {
                        return Ok(reply);
                    }
                }
                Step::Forward { region, reason } => {
                    // Boxed, since few requests need its room.
                    let asking = Box::pin(self.ask_region(region, reason, journey, record));
                    if let Some(reply) = asking.await {
                        return Ok(reply);
                    }
                }
                Step::Wait(terms) => {
                    if self.view.has_overflow()
                        && let Some(overflow) = self.overflow_instead_of_waiting(journey)
                        && let Some(reply) = Box::pin(self.overflow(overflow, record)).await
                    {
                        return Ok(reply);
                    }
                    self.wait(terms, journey).await;
                }
                Step::Pause(pause) => {
                    // Other tasks of the worker go first.
                    if pause.is_zero() {
                        yield_now().await;
                    } else {
                        sleep(pause).await;
                    }
                    self.tell(journey, Event::Paused);
                }
                Step::StandIn => self.stand_in(journey),
                Step::End(ending) => {
                    if self.view.has_overflow()
                        && let Some(overflow) = Overflow::after(journey)
                        // Boxed, since few requests need its room.
                        && let Some(reply) = Box::pin(self.overflow(overflow, record)).await
                    {
                        return Ok(reply);
                    }
                    self.note_left_out(ending, record);
                    return self.end(ending, journey);
                }
                // Numbers are taken by `next`, and the others need an attempt that is under way.
                Step::TakeTicket | Step::Listen | Step::Hedge(_) => return Err(internal()),
            }
        }
    }

    /// Returns the next step of a journey. The number that nearly every journey needs is taken at
    /// once.
    pub(super) fn next(&mut self, journey: &mut Journey) -> Step {
        // Cloned, since the journey reads from all of this dispatch.
        let mut dice = self.dice.clone();
        let mut step = journey.next(self, coarse_clock::now(), &mut dice);
        if let Step::TakeTicket = step {
            let ticket = self.group().map_or(0, RouteGroup::ticket);
            self.tell(journey, Event::Ticket(ticket));
            step = journey.next(self, coarse_clock::now(), &mut dice);
        }
        self.dice = dice;
        step
    }

    /// Keeps what a journey noted: in the record of the request, and in counters.
    fn keep(&self, notes: Notes, record: &mut RequestRecord) {
        let Notes { compared, cache_comparisons, cache_changes, regions_forbidden } = notes;
        let gateway = &self.worker.gateway;
        if let Some(costs) = compared {
            let Inquiry { model, residency, .. } = &self.prepared.inquiry;
            record.compared(self.compared(costs), self.regions.left_out(model.as_ref(), residency));
        }
        if cache_comparisons > 0 {
            gateway.routing.knowledge.spilled(cache_comparisons, cache_changes);
        }
        if regions_forbidden > 0 {
            gateway.counters.residency_sent.fetch_add(regions_forbidden.into(), Ordering::Relaxed);
        }
    }

    /// Notes the regions that were not considered for a client's request that no target serves.
    #[cold]
    fn note_left_out(&self, ending: Ending, record: &mut RequestRecord) {
        let Inquiry { model, residency, hop, .. } = &self.prepared.inquiry;
        if ending.is_error() && ending != Ending::ClientFault && *hop == 0 {
            record.left_out(self.regions.left_out(model.as_ref(), residency));
        }
    }

    fn compared(&self, costs: ComparedCosts) -> Compared {
        let named = |(index, cost_ms): (usize, f32)| {
            Some((self.regions.others.get(index)?.name.clone(), cost_ms))
        };
        let (best, reason) = (costs.best.and_then(named), costs.reason.name());
        Compared { here_ms: costs.here_ms, best, reason }
    }

    /// Reports the result of an act.
    pub(super) fn tell(&self, journey: &mut Journey, event: Event) {
        journey.on(event, self, coarse_clock::now());
    }

    /// Takes the retry that follows an error reply. Returns false if none follows: the reply is the
    /// client's.
    fn retry_after_reply(&mut self, journey: &mut Journey, record: &mut RequestRecord) -> bool {
        if journey.ending().is_some() {
            return false;
        }
        match self.next(journey) {
            Step::TakeRetry(safety) => self.take_retry(safety, journey, record),
            _ => false,
        }
    }

    /// Takes a retry from the budget. Returns false if that is used up.
    fn take_retry(
        &self,
        safety: RetrySafety,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> bool {
        let gateway = &self.worker.gateway;
        let is_allowed = gateway.retries.budget.try_retry(coarse_clock::now());
        if is_allowed {
            record.retried(safety);
        } else {
            gateway.counters.retries_refused.fetch_add(1, Ordering::Relaxed);
        }
        self.tell(journey, Event::Retry { is_allowed });
        is_allowed
    }

    /// Changes the request to its next stand-in model.
    fn stand_in(&mut self, journey: &mut Journey) {
        let is_renamed =
            self.prepared.fall_back(&self.view, &self.worker.gateway.routing, self.head);
        if is_renamed {
            // The place in the queue was for the model before.
            self.interim.queued_request = None;
        }
        self.tell(journey, Event::StoodIn { is_renamed });
    }

    /// Asks one replica, or two if the first is silent for long. Returns the reply that ends the
    /// journey.
    async fn ask_replica(
        &mut self,
        chosen: Attempt,
        connection: Connection,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Option<Dispatched> {
        let Some(mut asked) = self.take_slot(chosen, journey) else {
            self.tell(journey, Event::NoSlot);
            return None;
        };
        self.interim.queued_request = None;
        // From now on the request counts at the replica itself.
        self.prepared.target.coming = None;
        self.began(journey);
        if journey.position() == Position::AtTurn {
            // Where this request has found a slot there may be more.
            self.worker.gateway.routing.waiting.wake();
        }
        self.tell(journey, Event::Asked);
        // After a death, the break of a kept connection could not be distinguished from another
        // death.
        let connection = if journey.deaths() > 0 { Connection::New } else { connection };
        record.asked(&asked.replica.spec().name, &self.prepared.inquiry.prefix, &chosen);
        self.begin_session(&asked);
        // Assumed until the replica refuses: if the client leaves before that, a replica may be at
        // work.
        let was_sent = record.sent(true);
        let reply = match self.hedging(journey) {
            Some(hedging) => {
                // Boxed, since few requests need its room.
                let race = Box::pin(self.race(hedging, (asked, connection), journey, record));
                let (last, reply) = race.await;
                asked = last;
                reply
            }
            None => self.attempt(&mut asked, connection).await,
        };
        let reply = self.judged(reply, &mut asked).await;
        let is_refused = match &reply {
            Ok((reply, _)) => status_class(reply) == StatusClass::NoRoom,
            Err(failed) => failed.error.retry_safety() == RetrySafety::Unsent,
        };
        record.sent(was_sent || !is_refused);
        match reply {
            Ok(reply) => {
                let reply = self.take_reply(asked, reply, journey, record)?;
                if is_refused && self.view.has_overflow() {
                    // Boxed, since few requests need its room.
                    return Some(Box::pin(self.overflow_refusal(reply, journey, record)).await);
                }
                Some(reply)
            }
            Err(failed) => {
                self.take_failure(asked, &failed, journey, record);
                None
            }
        }
    }

    /// Tells the other nodes of a new session when its replica is asked: when the reply is over, any
    /// of them may get the next request.
    fn begin_session(&mut self, asked: &Asked) {
        let Some(key) = self.prepared.target.new_session.take() else { return };
        let route = &self.prepared.route;
        let Some(sessions) = route.sessions.as_ref() else { return };
        // A session is of the model that the client named.
        if self.prepared.fell_back_from().is_some() {
            return;
        }
        let replica = Candidate::identity_of(&asked.replica.spec().name);
        if let Some(home) = sessions.begun(key, replica, coarse_clock::now()) {
            let route = || route.spec.name.clone();
            let outbox = &self.worker.gateway.homes.outbox;
            outbox.push(|| HomeNews::Session { route: route(), key, home });
        }
    }

    /// Takes a reply that began. Returns it unless a better one is sought.
    fn take_reply(
        &mut self,
        asked: Asked,
        (reply, reader): JudgedReply,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Option<Dispatched> {
        let Asked { chosen, lease, observer, usage, .. } = asked;
        let status = status_class(&reply);
        let mut dispatched = Dispatched {
            reply,
            target: HeldSlot::Replica(lease),
            observer: Some(observer),
            choice: ServedChoice::Replica(chosen),
            asked_usage: usage,
            reader,
        };
        let can_repeat = !self.prepared.body.is_gone();
        self.tell(journey, Event::Replied { status, can_repeat });
        if !self.retry_after_reply(journey, record) {
            return Some(dispatched);
        }
        // A reply that is held back still says how its replica fares.
        if let Some(observer) = &mut dispatched.observer {
            observer.head(&dispatched.reply);
        }
        let status = dispatched.reply.status().as_u16();
        record.failed_try(
            dispatched.target.tried(),
            FailureCause::ReplicaError.code(),
            Some(status),
        );
        // The first error reply is kept for the client, in case that no better one comes.
        self.interim.held.get_or_insert_with(|| Box::new(dispatched));
        None
    }

    /// Takes the failure of an attempt.
    fn take_failure(
        &mut self,
        mut asked: Asked,
        failed: &FailedAttempt,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) {
        let name = &asked.replica.spec().name;
        tracing::debug!(replica = %name, error = %failed.error, "attempt failed");
        if let Some(fault) = self.prepared.body.fault() {
            self.interim.failure = Some(fault.clone());
            self.tell(journey, Event::ClientFault);
            return;
        }
        // Only now: a client's bad upload is no fault of the replica.
        asked.observer.failed(failed);
        let error = failed.error.to_gateway_error(name.as_str());
        record.failed_try(TriedTarget::Replica(name.clone()), error.kind.code(), None);
        self.interim.failure = Some(error);
        let can_repeat = !self.prepared.body.is_gone();
        let event = match failed.error {
            AttemptError::NoModel => Event::LacksModel { can_repeat },
            _ => Event::Failed {
                safety: failed.error.retry_safety(),
                is_fault: failed.fault().is_some(),
                was_kept: failed.was_kept,
                can_repeat,
                is_death: failed.error.is_death(),
            },
        };
        self.tell(journey, event);
        self.prepared.deaths = journey.deaths();
    }

    /// Judges the reply of an attempt, and asks again without usage options that it refuses.
    pub(super) async fn judged(
        &mut self,
        reply: Result<Response<UpstreamBody>, FailedAttempt>,
        asked: &mut Asked,
    ) -> Result<JudgedReply, FailedAttempt> {
        let reply = match reply? {
            // Boxed, since few requests need its room.
            refusal if asked.may_refuse_usage(&refusal) => {
                Box::pin(self.ask_for_less_usage(asked, refusal)).await?
            }
            reply => reply,
        };
        match self.judging(asked) {
            Some(judging) => judge(reply, judging)
                .await
                .map_err(|error| FailedAttempt { error, was_kept: false }),
            None => Ok((reply, None)),
        }
    }

    /// Returns how the replies of an attempt are judged; `None` on routes whose replies are unknown.
    fn judging(&self, asked: &Asked) -> Option<Judging<'_>> {
        let Prepared { flavour, inquiry, .. } = &*self.prepared;
        (*flavour != Flavour::Raw).then(|| Judging {
            is_call: *flavour == Flavour::Grpc,
            api: flavour.is_read().then(|| ReplyApi::of_path(self.head.uri.path())),
            model: inquiry.model.as_ref(),
            is_known: asked.replica.spec().usage_reports != UsageReports::None,
            first_byte: self.prepared.route.spec.timeouts.first_byte,
            idle: self.prepared.route.spec.timeouts.idle,
            deadline: self.prepared.inquiry.deadline.at(),
        })
    }

    /// Sends the request to a replica and waits for the reply's head.
    pub(super) async fn attempt(
        &mut self,
        asked: &mut Asked,
        connection: Connection,
    ) -> Result<Response<UpstreamBody>, FailedAttempt> {
        let (bounds, worker) = (self.bounds(connection), self.worker);
        let Asked { replica, observer, usage, .. } = asked;
        let mut sending = DispatchSending { dispatch: self, replica, observer, usage: *usage };
        attempt(worker.pools(), replica.connections(), &mut sending, bounds).await
    }

    /// Returns true if another replica can serve the request now, here or in another region. Reads
    /// the newest view, so call it when a replica fell silent and not for each request.
    fn is_served_elsewhere(&self, replica: &Replica) -> bool {
        let Prepared { inquiry, target, body, .. } = &*self.prepared;
        if !matches!(body, RequestBody::Buffered(_)) || self.prepared.pinned.is_some() {
            return false;
        }
        let gateway = &self.worker.gateway;
        let model = inquiry.model.as_ref();
        let is_served_away = || {
            let regions = gateway.routing.regions();
            inquiry.hop == 0 && model.is_some_and(|it| regions.serve(it, &inquiry.residency))
        };
        let view = gateway.routing.view();
        let route = view.route_again(&self.prepared.route);
        let group = route
            .as_ref()
            .and_then(|route| route.group_for(model, target.pin.as_ref()).ok().flatten());
        group.is_some_and(|group| view.is_served_beside(group, replica)) || is_served_away()
    }

    pub(super) fn bounds(&self, connection: Connection) -> AttemptBounds {
        AttemptBounds {
            timeouts: self.prepared.route.spec.timeouts,
            deadline: self.prepared.inquiry.deadline,
            connection,
            traffic: self.prepared.traffic(),
        }
    }

    /// Creates the request for a replica, which is asked for this usage; `None` if the body was
    /// streamed to an earlier attempt.
    pub(super) fn request(
        &mut self,
        replica: &Replica,
        usage: UsageWish,
    ) -> Option<Request<OutboundBody>> {
        let body = self.prepared.body_for(replica, usage)?;
        // Cloned, since another attempt may need them as they were.
        let mut headers: HeaderMap = self.head.headers.clone();
        // A compressed reply can be neither read nor changed.
        if self.prepared.flavour.is_read()
            || self.prepared.hides_cache(&self.worker.gateway.clients.authenticator, replica)
        {
            headers.remove(ACCEPT_ENCODING);
        }
        let fell_back = self.prepared.fell_back_from().is_some();
        // The headers were prepared by the first model's route, which may have let credentials
        // pass.
        if fell_back && !self.prepared.route.spec.forward_authorization {
            remove_client_keys(&mut headers);
        }
        self.name_session(&mut headers, replica);
        let traffic = self.prepared.traffic();
        let line = replica.connections().line(traffic);
        if replica.is_overflow() {
            keep_for_hosted_api(&mut headers);
        }
        address_to(&mut headers, replica, &line);
        let left = self.prepared.inquiry.deadline.remaining(coarse_clock::now());
        tell_time_left(&mut headers, left, traffic);
        let mut request = Request::new(body);
        *request.method_mut() = Method::clone(&self.head.method);
        *request.uri_mut() = uri(&line, &self.prepared.path);
        *request.headers_mut() = headers;
        Some(request)
    }

    /// Puts the id by which the replica's KV events name this request, in place of a client's. Other
    /// replicas get the client's own.
    fn name_session(&self, headers: &mut HeaderMap, replica: &Replica) {
        if replica.spec().kv_events_port.is_some()
            && let Some(session) = kv_session(&self.prepared.inquiry.prefix)
        {
            headers.insert(KV_SESSION, session);
        }
    }
}

/// Request of a dispatch that is sent to one replica.
struct DispatchSending<'r, 'd> {
    dispatch: &'r mut Dispatch<'d>,
    replica: &'r Replica,
    observer: &'r mut AttemptObserver,
    usage: UsageWish,
}

impl Sending for DispatchSending<'_, '_> {
    fn request(&mut self) -> Option<Request<OutboundBody>> {
        let request = self.dispatch.request(self.replica, self.usage)?;
        self.observer.sent();
        Some(request)
    }

    fn is_lost(&self, asked_at: Instant, now: Instant) -> bool {
        match self.replica.lost(asked_at, now) {
            Some(DownCause::Failure) => true,
            // It may still reply: it is waited for unless another replica can serve the request.
            Some(DownCause::Silence) => self.dispatch.is_served_elsewhere(self.replica),
            None => false,
        }
    }
}

/// Returns the URI: the path alone for HTTP/1.1; with scheme and authority for HTTP/2, which has no
/// `Host`.
fn uri(line: &UpstreamLine<'_>, path: &PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path_at(line, path));
    if line.kind != LineKind::Http1 {
        let scheme = if line.tls.is_some() { "https" } else { "http" };
        parts.scheme = scheme.parse().ok();
        parts.authority = line.authority.as_bytes().try_into().ok();
    }
    Uri::from_parts(parts).unwrap_or_default()
}

/// Returns the path at the replica, below its base path.
pub(super) fn path_at(line: &UpstreamLine<'_>, path: &PathAndQuery) -> PathAndQuery {
    let joined = line.base.and_then(|base| base.join(path.as_str()).try_into().ok());
    joined.unwrap_or_else(|| path.clone())
}

fn status_class(reply: &Response<UpstreamBody>) -> StatusClass {
    StatusClass::of(reply.status().as_u16())
}
