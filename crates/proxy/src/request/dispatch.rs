//! Plan, attempt, and if that is safe plan again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::{Attempt, Moment, Plan, Refusal, plan};
use spillway_types::ReplicaSlot;

use crate::replica::{Lease, Replica, ReplicaProtocol};
use crate::request::headers::{TIMEOUT_MS, address_to};
use crate::request::prepare::Prepared;
use crate::request::record::Record;
use crate::request::witness::Witness;
use crate::upstream::{
    AttemptBounds, FailedAttempt, Kept, OutboundBody, Reply, RetrySafety, attempt,
};
use crate::view::View;
use crate::worker::Worker;

/// A reply that began, and the place at the replica that goes with it.
#[derive(Debug)]
pub(crate) struct Dispatched {
    pub(crate) reply: Reply,
    pub(crate) lease: Lease,
    pub(crate) witness: Witness,
}

/// A request on its way: what attempts share.
#[derive(Debug)]
pub(crate) struct Dispatch<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) view: &'a View,
    pub(crate) prepared: &'a mut Prepared,
    pub(crate) head: &'a Parts,
    pub(crate) dice: fastrand::Rng,
}

/// What has come of a request's attempts.
#[derive(Debug, Default)]
struct SoFar {
    tried: Vec<ReplicaSlot>,
    attempts: u32,
    /// This request's turn. It is taken once: retries that took turns of their own would send the
    /// first attempt of every request to the same one of two replicas.
    ticket: Option<u64>,
    /// The replica whose kept connection broke. That says little about the replica: if no other can
    /// be asked, it is asked again on a new connection.
    worn: Option<ReplicaSlot>,
    failure: Option<GatewayError>,
}

impl Dispatch<'_> {
    /// Asks replicas until one begins to reply, or it is not safe or not allowed to ask another.
    ///
    /// # Errors
    /// What the client is to be told.
    pub(crate) async fn run(mut self, record: &mut Record) -> Result<Dispatched, GatewayError> {
        let gateway = &self.worker.gateway;
        gateway.retry_budget.on_request();
        let attempts_max = gateway.config.retry.attempts_max;
        let mut so_far = SoFar::default();
        loop {
            let (slot, kept) = self.choose(&mut so_far)?;
            let replica = Arc::clone(self.view.replica(slot));
            // Another request may have taken the last place since the plan was made.
            let Some(lease) = replica.lease() else { continue };
            record.asked(&replica.spec().name);
            so_far.attempts += 1;
            let model = self.prepared.inquiry.model.as_ref();
            let mut witness = Witness::new(self.worker, &replica, model);
            let failed = match self.attempt(&replica, kept).await {
                Ok(reply) => return Ok(Dispatched { reply, lease, witness }),
                Err(failed) => failed,
            };
            witness.failed(&failed);
            tracing::debug!(replica = %replica.spec().name, error = %failed.error, "attempt failed");
            if let Some(fault) = self.prepared.body.fault() {
                return Err(fault.clone());
            }
            let safety = failed.error.retry_safety();
            let told = failed.error.to_gateway_error(replica.spec().name.as_str());
            if so_far.attempts >= attempts_max || !self.may_retry(safety) {
                return Err(told);
            }
            so_far.failure = Some(told);
            so_far.worn = failed.was_kept.then_some(slot);
            record.retried(safety);
        }
    }

    /// The next replica to ask, and whether a kept connection to it will do.
    ///
    /// # Errors
    /// If there is none; then the last failure is what the client is told.
    fn choose(&mut self, so_far: &mut SoFar) -> Result<(ReplicaSlot, Kept), GatewayError> {
        let refusal = match self.plan(so_far) {
            Ok(slot) => {
                so_far.tried.push(slot);
                return Ok((slot, Kept::Use));
            }
            Err(refusal) => refusal,
        };
        if let Some(slot) = so_far.worn.take() {
            return Ok((slot, Kept::Avoid));
        }
        Err(so_far.failure.take().unwrap_or_else(|| refused(refusal, so_far.attempts)))
    }

    fn plan(&mut self, so_far: &mut SoFar) -> Result<ReplicaSlot, Refusal> {
        if let Some(pinned) = self.prepared.pinned {
            let is_new = !so_far.tried.contains(&pinned);
            return if is_new { Ok(pinned) } else { Err(Refusal::AllTried) };
        }
        let inquiry = &self.prepared.inquiry;
        let Some(group) = self.prepared.route.group(inquiry.model.as_ref()) else {
            return Err(Refusal::NoReplica);
        };
        if group.busy_until.is_some() {
            return Err(Refusal::AllBusy);
        }
        let loads = self.view.loads();
        let moment = Moment {
            now: Instant::now(),
            loads: &loads,
            ticket: *so_far.ticket.get_or_insert_with(|| group.ticket()),
            rng: &mut self.dice,
        };
        match plan(inquiry, &group.group, &so_far.tried, moment) {
            Plan::Attempt(Attempt { slot, .. }) => Ok(slot),
            Plan::Refuse(refusal) => Err(refusal),
        }
    }

    async fn attempt(&mut self, replica: &Replica, kept: Kept) -> Result<Reply, FailedAttempt> {
        let bounds = AttemptBounds {
            timeouts: self.prepared.route.spec.timeouts,
            deadline: self.prepared.inquiry.deadline,
            kept,
        };
        attempt(self.worker, replica, || self.request(replica), bounds).await
    }

    fn may_retry(&self, safety: RetrySafety) -> bool {
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
    fn request(&mut self, replica: &Replica) -> Option<Request<OutboundBody>> {
        let body = self.prepared.body.for_attempt()?;
        let mut headers: HeaderMap = self.head.headers.clone();
        address_to(&mut headers, replica);
        if headers.contains_key(&TIMEOUT_MS) {
            let left = self.prepared.inquiry.deadline.remaining(Instant::now());
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            headers.insert(TIMEOUT_MS.clone(), HeaderValue::from(left_ms));
        }
        let mut request = Request::new(body);
        *request.method_mut() = Method::clone(&self.head.method);
        *request.uri_mut() = uri(replica, &self.prepared.path);
        *request.headers_mut() = headers;
        Some(request)
    }
}

/// Path only for HTTP/1.1; with scheme and authority for HTTP/2, which has no `Host`.
fn uri(replica: &Replica, path: &PathAndQuery) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(path.clone());
    if replica.spec().protocol == ReplicaProtocol::Http2 {
        let scheme = if replica.tls.is_some() { "https" } else { "http" };
        parts.scheme = scheme.parse().ok();
        parts.authority = replica.authority.as_bytes().try_into().ok();
    }
    Uri::from_parts(parts).unwrap_or_default()
}

fn refused(refusal: Refusal, attempts: u32) -> GatewayError {
    let kind = match refusal {
        // All were chosen, and all had their last place taken by somebody else just then.
        Refusal::AllTried if attempts == 0 => ErrorKind::Overloaded,
        Refusal::NoReplica | Refusal::AllTried => ErrorKind::NoReplica,
        Refusal::AllBusy => ErrorKind::Overloaded,
        Refusal::DeadlinePassed => ErrorKind::DeadlineExceeded,
    };
    GatewayError::new(kind, refusal.to_string())
}
