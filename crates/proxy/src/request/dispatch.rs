//! Driver of a request's journey: carries out one step after the other, and hands in an event for
//! each.

use std::sync::Arc;
use std::time::Instant;

use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, Uri};
use spillway_journey::{
    ComparedCosts, Connection, Event, Journey, Position, RetrySafety, StatusClass, Step, TenantKey,
};
use spillway_protocol::GatewayError;
use spillway_route::{Attempt, SpillReason};
use spillway_types::Compared;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::request::asked::Asked;
use crate::request::attempt_observer::AttemptObserver;
use crate::request::errors::internal;
use crate::request::record::RequestRecord;
use crate::worker::Worker;
use spillway_request::headers::{address_to, remove_client_keys, tell_time_left};
use spillway_request::prepared::Prepared;
use spillway_upstream::connection::{
    AttemptBounds, FailedAttempt, LineKind, OutboundBody, UpstreamLine, attempt,
};
use spillway_upstream::kv_session::{KV_SESSION, kv_session};
use spillway_upstream::place::Place;
use spillway_upstream::regions::Regions;
use spillway_upstream::replica::Replica;
use spillway_upstream::upstream_body::UpstreamBody;
use spillway_upstream::view::View;
use spillway_upstream::wait_queues::QueuedRequest;
use spillway_upstream::wake;

/// A reply that began, and the place that goes with it.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) reply: Response<UpstreamBody>,
    pub(crate) place: Place,
    /// Observer of the replica; `None` for another region, whose replicas are not judged here.
    pub(crate) observer: Option<AttemptObserver>,
    /// Choice of the place.
    pub(crate) choice: Choice,
}

/// Choice of a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    /// A replica of this region, by its group's policy.
    Replica(Attempt),
    /// Another region; `None` if no other could have served it.
    Region(Option<SpillReason>),
}

/// A request on its way: all that its acts need, and their interim results.
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
    /// Place in this node's queue.
    pub(super) queued_request: Option<QueuedRequest>,
    /// Hash by which the same request is recognized when it comes again; `None` until needed.
    pub(super) fingerprint: Option<u64>,
    /// The first error reply for which a better one was sought.
    pub(super) held: Option<Box<Dispatched>>,
    /// Error of the last failed attempt, for the client.
    pub(super) failure: Option<GatewayError>,
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
        self.worker.gateway.retry_budget.on_request();
        let mut journey = self.journey();
        if self.redeem(&journey) {
            journey.redeem_promise();
        }
        self.drive(&mut journey, record).await
    }

    /// Creates the journey of this request from its beginning.
    pub(super) fn journey(&self) -> Journey {
        Journey::new(self.started, self.worker.gateway.config.retry.attempts_max)
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
            // Cloned, since the journey borrows all of this dispatch.
            let mut dice = self.dice.clone();
            let step = journey.next(self, wake::now(), &mut dice);
            self.dice = dice;
            if let Some(costs) = journey.take_compared() {
                record.compared(self.compared(costs));
            }
            match step {
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
                Step::Wait(terms) => self.wait(terms, journey).await,
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
                Step::End(ending) => return self.end(ending, journey),
                // These steps need an attempt that is under way, and there is none here.
                Step::Listen | Step::Hedge(_) => return Err(internal()),
            }
        }
    }

    fn compared(&self, costs: ComparedCosts) -> Compared {
        let named = |(index, cost_ms): (usize, f32)| {
            Some((self.regions.others.get(index)?.name.clone(), cost_ms))
        };
        let (best, reason) = (costs.best.and_then(named), costs.reason.name());
        Compared { here_ms: costs.here_ms, best, reason }
    }

    /// Reports the result of an act. Returns the safety of the retry that follows, if one does.
    pub(super) fn tell(&self, journey: &mut Journey, event: Event) -> Option<RetrySafety> {
        journey.on(event, self, wake::now())
    }

    /// Changes the request to the next model that may stand in.
    fn stand_in(&mut self, journey: &mut Journey) {
        let is_renamed = self.prepared.fall_back(&self.view, &self.worker.gateway, self.head);
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
        let Some(mut asked) = self.take_place(chosen, journey) else {
            self.tell(journey, Event::NoPlace);
            return None;
        };
        self.interim.queued_request = None;
        // From now on the request counts at the replica itself.
        self.prepared.target.coming = None;
        self.began(journey);
        if journey.position() == Position::AtTurn {
            // Where this request has found a place there may be more.
            self.worker.gateway.waiting.wake();
        }
        self.tell(journey, Event::Asked);
        record.asked(&asked.replica.spec().name, &self.prepared.inquiry.prefix, &chosen);
        // Assumed until the replica refuses: if the client leaves meanwhile, a replica may be at
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
            None => self.attempt(&asked.replica, connection, &mut asked.observer).await,
        };
        let is_refused = match &reply {
            Ok(reply) => status_class(reply) == StatusClass::NoRoom,
            Err(failed) => failed.error.retry_safety() == RetrySafety::Unsent,
        };
        record.sent(was_sent || !is_refused);
        match reply {
            Ok(reply) => self.take_reply(asked, reply, journey, record),
            Err(failed) => {
                self.take_failure(asked, &failed, journey, record);
                None
            }
        }
    }

    /// Takes a reply that began. Returns it unless a better one is sought.
    fn take_reply(
        &mut self,
        asked: Asked,
        reply: Response<UpstreamBody>,
        journey: &mut Journey,
        record: &mut RequestRecord,
    ) -> Option<Dispatched> {
        let Asked { chosen, lease, observer, .. } = asked;
        let status = status_class(&reply);
        let mut dispatched = Dispatched {
            reply,
            place: Place::Replica(lease),
            observer: Some(observer),
            choice: Choice::Replica(chosen),
        };
        let can_repeat = !self.prepared.body.is_gone();
        let Some(safety) = self.tell(journey, Event::Replied { status, can_repeat }) else {
            return Some(dispatched);
        };
        // A reply that is held back still says how its replica fares.
        if let Some(observer) = &mut dispatched.observer {
            observer.head(&dispatched.reply);
        }
        // The first error reply is kept for the client, in case that no better one comes.
        self.interim.held.get_or_insert_with(|| Box::new(dispatched));
        record.retried(safety);
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
        self.interim.failure = Some(failed.error.to_gateway_error(name.as_str()));
        let event = Event::Failed {
            safety: failed.error.retry_safety(),
            is_fault: failed.fault().is_some(),
            was_kept: failed.was_kept,
            can_repeat: !self.prepared.body.is_gone(),
        };
        if let Some(safety) = self.tell(journey, event) {
            record.retried(safety);
        }
    }

    async fn attempt(
        &mut self,
        replica: &Replica,
        connection: Connection,
        observer: &mut AttemptObserver,
    ) -> Result<Response<UpstreamBody>, FailedAttempt> {
        let (bounds, worker) = (self.bounds(connection), self.worker);
        let request = || {
            let request = self.request(replica)?;
            observer.sent();
            Some(request)
        };
        attempt(worker.pools(), replica, request, bounds).await
    }

    pub(super) fn bounds(&self, connection: Connection) -> AttemptBounds {
        AttemptBounds {
            timeouts: self.prepared.route.spec.timeouts,
            deadline: self.prepared.inquiry.deadline,
            connection,
            traffic: self.prepared.traffic(),
        }
    }

    /// Creates the request for a replica; `None` if the body was streamed to an earlier attempt.
    pub(super) fn request(&mut self, replica: &Replica) -> Option<Request<OutboundBody>> {
        let body = self.prepared.body_for(replica)?;
        // Cloned, since another attempt may need them as they were.
        let mut headers: HeaderMap = self.head.headers.clone();
        if self.prepared.hides_cache(&self.worker.gateway.authenticator, replica) {
            // The number of cached tokens cannot be removed from a compressed reply.
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
        let line = replica.line(traffic);
        address_to(&mut headers, replica, &line);
        let left = self.prepared.inquiry.deadline.remaining(wake::now());
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

/// Returns the URI: the path alone for HTTP/1.1; with scheme and authority for HTTP/2, which has no
/// `Host`.
fn uri(line: &UpstreamLine<'_>, path: &PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path.clone());
    if line.kind != LineKind::Http1 {
        let scheme = if line.tls.is_some() { "https" } else { "http" };
        parts.scheme = scheme.parse().ok();
        parts.authority = line.authority.as_bytes().try_into().ok();
    }
    Uri::from_parts(parts).unwrap_or_default()
}

fn status_class(reply: &Response<UpstreamBody>) -> StatusClass {
    StatusClass::of(reply.status().as_u16())
}
