//! Plan, attempt, and if that is safe plan again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::{
    Attempt, Moment, Plan, Policy, Reason, Refusal, ShedReason, SpillReason, Work, plan,
};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::knowledge::Cached;
use crate::place::Place;
use crate::regions::Regions;
use crate::remote::{Destination, RemoteFailure};
use crate::replica::{Lease, Replica};
use crate::request::forward::Way;
use crate::request::headers::{address_to, remove_client_keys, tell_time_left};
use crate::request::lesson::Lesson;
use crate::request::prepare::Prepared;
use crate::request::queue::{tokens, too_late};
use crate::request::record::Record;
use crate::request::so_far::SoFar;
use crate::request::witness::Witness;
use crate::tenants::TenantKey;
use crate::upstream::{
    AttemptBounds, FailedAttempt, Kept, Line, LineKind, OutboundBody, Reply, RetrySafety, attempt,
};
use crate::view::View;
use crate::worker::Worker;

/// A client's promise that the request may be sent again.
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Replies of a replica that has no room: another one may have.
pub(super) const REFUSING: [StatusCode; 2] =
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
/// Other replies of a replica that another one may do better than.
const REPLACED: [StatusCode; 3] =
    [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT];

/// A reply that began, and the place that goes with it.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) reply: Reply,
    pub(crate) place: Place,
    /// None judges replicas of other regions.
    pub(crate) witness: Option<Witness>,
    /// How it came to go there.
    pub(crate) choice: Choice,
}

/// A replica that is asked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) chosen: Attempt,
    pub(super) replica: Arc<Replica>,
    pub(super) lease: Lease,
    pub(super) witness: Witness,
}

/// How a place was chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    /// A replica of this region, by its group's policy.
    Replica(Attempt),
    /// Another region; `None` if no other could have served it.
    Region(Option<SpillReason>),
}

/// Who is asked next.
#[derive(Debug)]
enum Next {
    Replica(Attempt, Kept),
    Region(Destination, Option<SpillReason>),
}

/// A request on its way: what attempts share.
#[derive(Debug)]
pub(crate) struct Dispatch<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) view: Arc<View>,
    /// What is known of regions.
    pub(crate) regions: Arc<Regions>,
    pub(crate) prepared: &'a mut Prepared,
    pub(crate) head: &'a Parts,
    pub(crate) dice: fastrand::Rng,
    /// When the request's head arrived.
    pub(crate) started: Instant,
    /// By which its tenant is counted.
    pub(crate) tenant: Option<TenantKey>,
    /// Limits of replicas that are guesses hold it back no more.
    pub(crate) is_past_guesses: bool,
}

impl Dispatch<'_> {
    /// Asks replicas until one begins to reply, or it is not safe or not allowed to ask another.
    ///
    /// # Errors
    /// What the client is to be told.
    pub(crate) async fn run(mut self, record: &mut Record) -> Result<Dispatched, GatewayError> {
        self.worker.gateway.retry_budget.on_request();
        let mut so_far = SoFar::default();
        self.redeem(&mut so_far);
        let result = self.ask(record, &mut so_far).await;
        // An error reply of a replica says more than that nobody else could be asked.
        match so_far.held {
            Some(held) if result.is_err() => Ok(held),
            _ => result,
        }
    }

    /// The same for a request that has begun to be served and broke off, which is no further request:
    /// whoever `so_far` says was asked is not asked again.
    ///
    /// # Errors
    /// Why there is nobody to go on.
    pub(super) async fn run_again(
        mut self,
        record: &mut Record,
        mut so_far: SoFar,
    ) -> Result<Dispatched, GatewayError> {
        let result = self.ask(record, &mut so_far).await;
        match so_far.held {
            Some(held) if result.is_err() => Ok(held),
            _ => result,
        }
    }

    async fn ask(
        &mut self,
        record: &mut Record,
        so_far: &mut SoFar,
    ) -> Result<Dispatched, GatewayError> {
        loop {
            let dispatched = match self.choose(so_far).await? {
                Next::Replica(attempt, kept) => {
                    self.ask_replica((attempt, kept), record, so_far).await?
                }
                Next::Region(destination, reason) => {
                    self.ask_region((destination, reason), record, so_far).await?
                }
            };
            if let Some(dispatched) = dispatched {
                return Ok(dispatched);
            }
        }
    }

    /// Asks one replica; `None` if another is to be asked.
    async fn ask_replica(
        &mut self,
        (chosen, kept): (Attempt, Kept),
        record: &mut Record,
        so_far: &mut SoFar,
    ) -> Result<Option<Dispatched>, GatewayError> {
        // Whoever chose it has looked already; what is forbidden must not depend on that.
        if self.is_barred() || self.is_barred_by_now() {
            return Err(self.barred_here());
        }
        let Some(mut asked) = self.take_place(chosen, so_far) else {
            // Another request has taken the last place since the plan was made. The replica was not
            // asked, so it may be as soon as it has a place again.
            so_far.tried.retain(|slot| *slot != chosen.slot);
            if self.prepared.pinned.is_some() {
                let pause = self.pause_at_home(so_far)?;
                sleep(pause).await;
            } else {
                yield_now().await;
            }
            return Ok(None);
        };
        so_far.stay = None;
        // Its place shows by itself from now on.
        self.prepared.target.coming = None;
        self.began(so_far);
        if std::mem::take(&mut so_far.has_turn) {
            // Where one has found a place there may be more.
            self.worker.gateway.waiting.wake();
        }
        record.asked(&asked.replica.spec().name, &self.prepared.inquiry.prefix, &chosen);
        let hedging = self.hedging(so_far);
        let was_sent = record.sent(true);
        let reply = match hedging {
            Some(hedging) => {
                let (last, reply) = self.race(hedging, (asked, kept), record, so_far).await;
                asked = last;
                reply
            }
            None => self.attempt(&asked.replica, kept, &mut asked.witness).await,
        };
        let is_refused = match &reply {
            Ok(reply) => REFUSING.contains(&reply.response.status()),
            Err(failed) => failed.error.retry_safety() == RetrySafety::Unsent,
        };
        record.sent(was_sent || !is_refused);
        match reply {
            Ok(reply) => Ok(self.take_reply(asked, reply, record, so_far)),
            Err(failed) => self.take_failure(asked, &failed, (record, so_far)),
        }
    }

    /// A place at a replica; `None` if it has none left.
    pub(super) fn take_place(&self, chosen: Attempt, so_far: &mut SoFar) -> Option<Asked> {
        let replica = Arc::clone(self.view.replica(chosen.slot));
        let places = self.room().places(&replica, chosen.slot);
        let lease = replica.lease(&self.worker.gateway.waiting, places)?;
        let lease = lease.of(self.tenant_place(), tokens(&self.prepared.inquiry));
        so_far.attempts += 1;
        so_far.attempts_of_model += 1;
        let inquiry = &self.prepared.inquiry;
        let lesson = Lesson::begin(self.worker, &replica, inquiry, &chosen);
        let work = Work::of(inquiry, &chosen);
        let tenant = self.tenant.map(|key| key.tenant);
        let asked_for = (inquiry.model.as_ref(), tenant);
        let witness = Witness::new(self.worker, &replica, asked_for, (work, lesson));
        Some(Asked { chosen, replica, lease, witness })
    }

    /// A replica began to reply; `None` if another may do better.
    fn take_reply(
        &self,
        asked: Asked,
        reply: Reply,
        record: &mut Record,
        so_far: &mut SoFar,
    ) -> Option<Dispatched> {
        let Asked { chosen, lease, witness, .. } = asked;
        let safety = self.safety_of_reply(reply.response.status());
        let dispatched = Dispatched {
            reply,
            place: Place::Replica(lease),
            witness: Some(witness),
            choice: Choice::Replica(chosen),
        };
        let attempts_max = self.worker.gateway.config.retry.attempts_max;
        if so_far.attempts >= attempts_max || !self.may_retry(safety) {
            return Some(dispatched);
        }
        so_far.hold(dispatched);
        record.retried(safety);
        None
    }

    /// An attempt came to nothing; `None` if another replica is to be asked.
    ///
    /// # Errors
    /// What the client is told if none is.
    fn take_failure(
        &self,
        mut asked: Asked,
        failed: &FailedAttempt,
        (record, so_far): (&mut Record, &mut SoFar),
    ) -> Result<Option<Dispatched>, GatewayError> {
        let name = &asked.replica.spec().name;
        tracing::debug!(replica = %name, error = %failed.error, "attempt failed");
        if let Some(fault) = self.prepared.body.fault() {
            return Err(fault.clone());
        }
        // Only now: a client's bad upload is no fault of the replica.
        asked.witness.failed(failed);
        let safety = self.safety(failed.error.retry_safety(), failed.fault().is_some());
        let told = failed.error.to_gateway_error(name.as_str());
        let attempts_max = self.worker.gateway.config.retry.attempts_max;
        if so_far.attempts >= attempts_max || !self.may_retry(safety) {
            return Err(told);
        }
        so_far.failure = Some(told);
        so_far.worn = failed.was_kept.then_some(asked.chosen);
        record.retried(safety);
        Ok(None)
    }

    /// Who is asked next. May wait for a place.
    ///
    /// # Errors
    /// If there is nobody; then the last failure is what the client is told.
    async fn choose(&mut self, so_far: &mut SoFar) -> Result<Next, GatewayError> {
        if let Some(home) = &self.prepared.target.home {
            let is_away = so_far.has_refused(&home.region);
            let told = RemoteFailure::NotConnected.to_gateway_error(&home.region);
            return if is_away { Err(told) } else { Ok(Next::Region(home.clone(), None)) };
        }
        if self.passes_to_fallback(so_far) {
            self.fall_back(so_far);
        }
        loop {
            let planned = self.plan(so_far);
            let refusal = match (self.weigh(planned, so_far), planned) {
                (Way::Region(..), Err(Refusal::AllBusy)) if self.pass_guesses() => continue,
                (Way::Region(destination, reason), _) => {
                    return Ok(Next::Region(destination, Some(reason)));
                }
                (Way::Late(..), Ok(attempt)) if self.is_probe() => {
                    so_far.tried.push(attempt.slot);
                    return Ok(Next::Replica(attempt, Kept::Use));
                }
                // Another model that can serve now beats a place in a queue.
                (Way::Wait { .. } | Way::Shed(..) | Way::Late(..), _) if self.fall_back(so_far) => {
                    continue;
                }
                (Way::Late(reason, late_ms), _) => return Err(too_late(reason, late_ms)),
                (Way::Wait { prefill_ms }, _) => {
                    self.wait(prefill_ms, so_far).await?;
                    continue;
                }
                (Way::Shed(reason, predicted_ms), _) => {
                    return Err(self.shed(reason, predicted_ms, so_far));
                }
                (Way::Own, Ok(attempt)) => {
                    so_far.tried.push(attempt.slot);
                    return Ok(Next::Replica(attempt, Kept::Use));
                }
                (Way::Own, Err(refusal)) => refusal,
            };
            if let Some(attempt) = so_far.worn.take() {
                return Ok(Next::Replica(attempt, Kept::Avoid));
            }
            let is_late = refusal == Refusal::DeadlinePassed;
            // Why the model itself was refused says more than what became of its stand-ins.
            let first = *so_far.refusal.get_or_insert(refusal);
            if is_late || !self.fall_back(so_far) {
                if let Some(attempt) = self.plan_among_next(refusal, so_far) {
                    so_far.tried.push(attempt.slot);
                    return Ok(Next::Replica(attempt, Kept::Use));
                }
                let told = if is_late { refusal } else { first };
                return Err(so_far.failure.take().unwrap_or_else(|| refused(told, so_far)));
            }
        }
    }

    /// Whether another model is to be asked although this one may have replicas left: they are in a
    /// bad state, or two of them failed and only one more attempt is allowed.
    fn passes_to_fallback(&self, so_far: &SoFar) -> bool {
        let attempts_max = self.worker.gateway.config.retry.attempts_max;
        let is_last = so_far.attempts >= 2 && so_far.attempts + 1 == attempts_max;
        (is_last && so_far.attempts_of_model > 0) || self.prepared.starts_elsewhere()
    }

    /// Goes over to the next model that may serve the request; `false` if there is none.
    fn fall_back(&mut self, so_far: &mut SoFar) -> bool {
        let has_next = self.prepared.fall_back(&self.view, &self.worker.gateway, self.head);
        if has_next {
            // Turns and kept connections are those of the model before.
            so_far.ticket = None;
            so_far.worn = None;
            so_far.attempts_of_model = 0;
            // It waits or was promised a place for the model before.
            so_far.stay = None;
            so_far.is_promised = false;
            so_far.had_turn = false;
            so_far.turn_by = None;
        }
        has_next
    }

    pub(super) fn plan(&mut self, so_far: &mut SoFar) -> Result<Attempt, Refusal> {
        if let Some(slot) = self.prepared.pinned {
            let is_new = !so_far.tried.contains(&slot);
            let attempt = Attempt { slot, reason: Reason::Session, prediction: None };
            return if is_new { Ok(attempt) } else { Err(Refusal::AllTried) };
        }
        self.saw_tenant();
        let inquiry = &self.prepared.inquiry;
        let pin = self.prepared.target.pin.as_ref();
        let Ok(Some(group)) = self.prepared.route.group_for(inquiry.model.as_ref(), pin) else {
            return Err(Refusal::NoReplica);
        };
        so_far.busy_until = group.busy_until.or_else(|| self.tenant_rests_until(group));
        if so_far.busy_until.is_some() {
            return Err(Refusal::AllResting);
        }
        let reads_caches = reads_caches(self.prepared.route.spec.policy);
        let cached = match reads_caches {
            true => self.worker.gateway.knowledge().look_up(inquiry),
            false => Cached::NOTHING,
        };
        so_far.cached_longest = reads_caches.then(|| cached.longest());
        let (room, kept) = (self.room(), self.room_kept_for_it());
        let ticket = *so_far.ticket.get_or_insert_with(|| group.ticket());
        let mut loads = self.view.loads(cached, kept.unwrap_or(room));
        let rng = &mut self.dice;
        let moment = Moment { now: Instant::now(), loads: &loads, ticket, rng };
        let mut planned = plan(inquiry, &group.group, &so_far.tried, moment);
        if kept.is_some() && matches!(planned, Plan::Refuse(_)) {
            loads.room = room;
            let moment = Moment { now: Instant::now(), loads: &loads, ticket, rng };
            planned = plan(inquiry, &group.group, &so_far.tried, moment);
        }
        match planned {
            Plan::Attempt(attempt) => Ok(attempt),
            Plan::Refuse(refusal) => Err(refusal),
        }
    }

    /// One that does not look well, for a request that all of the others have failed: better such a
    /// replica than none.
    fn plan_among_next(&mut self, refusal: Refusal, so_far: &SoFar) -> Option<Attempt> {
        if refusal != Refusal::AllTried || so_far.attempts == 0 || self.prepared.pinned.is_some() {
            return None;
        }
        let inquiry = &self.prepared.inquiry;
        let pin = self.prepared.target.pin.as_ref();
        let group = self.prepared.route.group_for(inquiry.model.as_ref(), pin).ok()??;
        let loads = self.view.loads(Cached::NOTHING, self.room());
        let ticket = so_far.ticket.unwrap_or_default();
        let moment = Moment { now: Instant::now(), loads: &loads, ticket, rng: &mut self.dice };
        match plan(inquiry, group.next.as_ref()?, &so_far.tried, moment) {
            Plan::Attempt(attempt) => Some(attempt),
            Plan::Refuse(_) => None,
        }
    }

    async fn attempt(
        &mut self,
        replica: &Replica,
        kept: Kept,
        witness: &mut Witness,
    ) -> Result<Reply, FailedAttempt> {
        let (bounds, worker) = (self.bounds(kept), self.worker);
        let request = || {
            let request = self.request(replica)?;
            witness.sent();
            Some(request)
        };
        attempt(worker, replica, request, bounds).await
    }

    pub(super) fn bounds(&self, kept: Kept) -> AttemptBounds {
        AttemptBounds {
            timeouts: self.prepared.route.spec.timeouts,
            deadline: self.prepared.inquiry.deadline,
            kept,
            traffic: self.prepared.traffic(),
        }
    }

    /// What repeating a failed attempt could do. Who sends an idempotency key has it arranged that a
    /// request which arrives twice is done once.
    pub(super) fn safety(&self, safety: RetrySafety, is_fault: bool) -> RetrySafety {
        match safety {
            RetrySafety::Never if self.is_keyed() && is_fault => RetrySafety::Reset,
            safety => safety,
        }
    }

    /// What asking another replica could do instead of passing a reply of this status on. Who refuses
    /// for its load has not begun to work; any other error may be that of work half done.
    fn safety_of_reply(&self, status: StatusCode) -> RetrySafety {
        if REFUSING.contains(&status) {
            RetrySafety::Unsent
        } else if self.is_keyed() && REPLACED.contains(&status) {
            RetrySafety::Reset
        } else {
            RetrySafety::Never
        }
    }

    fn is_keyed(&self) -> bool {
        self.head.headers.contains_key(&IDEMPOTENCY_KEY)
    }

    pub(super) fn may_retry(&self, safety: RetrySafety) -> bool {
        let gateway = &self.worker.gateway;
        if safety == RetrySafety::Never || self.prepared.body.is_gone() {
            return false;
        }
        let is_allowed = gateway.retry_budget.try_retry(Instant::now());
        if !is_allowed {
            gateway.counters.retries_refused.fetch_add(1, Ordering::Relaxed);
        }
        is_allowed
    }

    /// `None` if the body was streamed to an earlier attempt.
    pub(super) fn request(&mut self, replica: &Replica) -> Option<Request<OutboundBody>> {
        let body = self.prepared.body_for(replica)?;
        let mut headers: HeaderMap = self.head.headers.clone();
        if self.prepared.hides_cache(&self.worker.gateway, replica) {
            // What is compressed can't be looked through.
            headers.remove(ACCEPT_ENCODING);
        }
        let fell_back = self.prepared.fell_back_from().is_some();
        if fell_back && !self.prepared.route.spec.forward_authorization {
            remove_client_keys(&mut headers);
        }
        let traffic = self.prepared.traffic();
        let line = replica.line(traffic);
        address_to(&mut headers, replica, &line);
        let left = self.prepared.inquiry.deadline.remaining(Instant::now());
        tell_time_left(&mut headers, left, traffic);
        let mut request = Request::new(body);
        *request.method_mut() = Method::clone(&self.head.method);
        *request.uri_mut() = uri(&line, &self.prepared.path);
        *request.headers_mut() = headers;
        Some(request)
    }
}

/// Whether a policy goes by what is cached where.
pub(super) fn reads_caches(policy: Policy) -> bool {
    matches!(policy, Policy::PredictedLatency | Policy::PrefixAware)
}

/// Path only for HTTP/1.1; with scheme and authority for HTTP/2, which has no `Host`.
fn uri(line: &Line<'_>, path: &PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path.clone());
    if line.kind != LineKind::Http1 {
        let scheme = if line.tls.is_some() { "https" } else { "http" };
        parts.scheme = scheme.parse().ok();
        parts.authority = line.authority.as_bytes().try_into().ok();
    }
    Uri::from_parts(parts).unwrap_or_default()
}

pub(super) fn refused(refusal: Refusal, so_far: &SoFar) -> GatewayError {
    let (kind, reason) = match refusal {
        // All were chosen, and all had their last place taken by somebody else just then.
        Refusal::AllTried if so_far.attempts == 0 => {
            (ErrorKind::Overloaded, ShedReason::ReplicaBusy)
        }
        Refusal::NoReplica | Refusal::AllTried => (ErrorKind::NoReplica, ShedReason::NobodyInReach),
        Refusal::AllBusy | Refusal::AllResting => (ErrorKind::Overloaded, ShedReason::ReplicaBusy),
        Refusal::DeadlinePassed => (ErrorKind::DeadlineExceeded, ShedReason::Late),
    };
    let error = GatewayError::new(kind, refusal.to_string()).with_shed(reason.name());
    let until = so_far.busy_until.or(so_far.elsewhere_until);
    match until.filter(|_| matches!(refusal, Refusal::AllBusy | Refusal::AllResting)) {
        Some(until) => error.with_retry_after(until.saturating_duration_since(Instant::now())),
        None => error,
    }
}
