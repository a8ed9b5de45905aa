//! Another replica for a stream whose own broke off.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, header};
use spillway_protocol::{
    CompletionApi, ErrorKind, GatewayError, Segments, Terms, Thread, Unfit, UsageTelling,
};
use spillway_types::{RegionName, ReplicaName, ReplicaSlot};
use tokio::time::{sleep, timeout};

use crate::continuations::{ContinuationSpec, Failed};
use crate::place::Place;
use crate::request::dispatch::{Dispatch, Dispatched};
use crate::request::headers::is_event_stream;
use crate::request::prepare::Prepared;
use crate::request::record::Record;
use crate::request::so_far::SoFar;
use crate::request::tenant::tenant_key;
use crate::upstream::{RequestBody, RetrySafety};
use crate::view::View;
use crate::worker::Worker;

/// How often it is looked for somebody where there was nobody.
const REVIEW: Duration = Duration::from_millis(100);
/// Rounds of attempts that failed before it is given up, beside the first.
const ROUNDS_MAX: u32 = 3;

/// How the stream of a request can be continued, as far as its body says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Continuing {
    pub(crate) api: CompletionApi,
    pub(crate) telling: UsageTelling,
    pub(crate) fit: Result<(), Unfit>,
}

/// What is kept of a request while its reply streams, so that it can be sent once more.
#[derive(Debug)]
pub(crate) struct Resume {
    worker: Arc<Worker>,
    prepared: Prepared,
    head: Parts,
    dice: fastrand::Rng,
    continuing: Continuing,
    spec: ContinuationSpec,
    /// The request as it was first sent.
    original: Segments,
    prompt_bytes: u32,
    output_tokens_max: Option<u32>,
    /// Replicas that broke off, in order.
    broken: Vec<ReplicaName>,
    /// Regions that did.
    lost: Vec<RegionName>,
    count: u32,
}

/// Where a stream goes on.
#[derive(Clone, Debug)]
pub(crate) enum Position {
    /// At its beginning.
    Start,
    /// Behind this text, of which so many tokens were counted.
    Behind { text: String, tokens: u64 },
}

/// What came of the search.
#[derive(Debug)]
pub(crate) struct Sought {
    pub(crate) resume: Box<Resume>,
    pub(crate) record: Record,
    pub(crate) found: Result<Box<Dispatched>, Failed>,
}

/// A search under way. Dropped, it leaves the request's record as any other that its client left.
pub(crate) struct Seeking(Pin<Box<dyn Future<Output = Sought> + Send>>);

impl Resume {
    /// `None` if the route does not want streams continued, or this is none that could be.
    pub(crate) fn of(
        worker: &Arc<Worker>,
        prepared: Prepared,
        head: Parts,
        dice: &fastrand::Rng,
    ) -> Option<Box<Self>> {
        let spec = prepared.route.spec.continuation?;
        let continuing = prepared.continuing?;
        let RequestBody::Buffered(original) = &prepared.body else { return None };
        Some(Box::new(Self {
            worker: Arc::clone(worker),
            original: original.clone(),
            prompt_bytes: prepared.inquiry.prompt_bytes,
            output_tokens_max: prepared.inquiry.output_tokens_max,
            prepared,
            head,
            dice: dice.clone(),
            continuing,
            spec,
            broken: Vec::new(),
            lost: Vec::new(),
            count: 0,
        }))
    }

    /// Follows the stream from its beginning; `None` if nothing but the beginning could be repeated.
    pub(crate) fn thread(&self) -> Option<Thread> {
        let Continuing { api, telling, fit } = self.continuing;
        fit.is_ok().then(|| Thread::new(api, telling, self.spec.text_bytes_max))
    }

    /// Frees what only somebody could need who goes on.
    pub(crate) fn forget(&mut self) {
        if self.original.is_empty() {
            return;
        }
        self.original = Segments::default();
        self.prepared.body = RequestBody::Buffered(Segments::default());
        self.prepared.salting = None;
        self.prepared.forget_reservation();
    }

    /// What the request says about going on.
    ///
    /// # Errors
    /// If nobody could go on exactly.
    pub(crate) fn terms(&self) -> Result<Terms, Unfit> {
        self.continuing.fit?;
        Terms::read(&self.body(), self.continuing.api)
    }

    /// Whether it may be continued once more, as far as its own count goes.
    pub(crate) fn has_turns(&self) -> bool {
        self.count < self.spec.count_max
    }

    /// Whether there may be one more retry.
    pub(crate) fn is_in_budget(&self) -> bool {
        self.worker.gateway.retry_budget.try_retry(Instant::now())
    }

    /// Looks for somebody to go on, for no longer than a stream may be silent.
    pub(crate) fn seek(
        mut self: Box<Self>,
        mut record: Record,
        place: Option<&Place>,
        from: Position,
    ) -> Seeking {
        match place {
            Some(Place::Replica(lease)) => self.broken.push(lease.replica().spec().name.clone()),
            Some(Place::Region(place)) => self.lost.push(place.region.clone()),
            None => {}
        }
        self.count += 1;
        self.write(&from);
        let left = self.prepared.inquiry.deadline.remaining(Instant::now());
        let bound = self.prepared.route.spec.timeouts.idle.min(left);
        Seeking(Box::pin(async move {
            let found = timeout(bound, self.find(&mut record, &from)).await;
            let found = found.unwrap_or(Err(Failed::Late)).map(Box::new);
            Sought { resume: self, record, found }
        }))
    }

    /// Makes it the request by which somebody goes on.
    fn write(&mut self, from: &Position) {
        let body = match (from, self.terms()) {
            (Position::Behind { text, tokens }, Ok(terms)) => {
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                let tokens_32 = u32::try_from(*tokens).unwrap_or(u32::MAX);
                let left = self.output_tokens_max.map(|most| most.saturating_sub(tokens_32));
                self.prepared.inquiry.prompt_bytes = self.prompt_bytes.saturating_add(length);
                self.prepared.inquiry.output_tokens_max = left;
                terms.body_behind(&self.body(), text, *tokens)
            }
            _ => self.original.clone(),
        };
        // Whoever goes on keeps its cache entries apart as well.
        self.prepared.salting =
            self.prepared.salting.take().and_then(|salting| salting.again(&body));
        self.prepared.body = RequestBody::Buffered(body);
    }

    /// Whether whoever serves it now must not tell what was cached.
    pub(crate) fn hides_cache_at(&self, place: Option<&Place>) -> bool {
        self.prepared.hides_cache_at(&self.worker.gateway, place)
    }

    /// Looks for somebody until there is one: who was killed may be back soon, and who is busy may
    /// have a place then.
    async fn find(&mut self, record: &mut Record, from: &Position) -> Result<Dispatched, Failed> {
        let mut rounds = 0;
        loop {
            match self.find_now(record, from).await {
                Err(Failed::Attempt) if rounds < ROUNDS_MAX && self.is_in_budget() => rounds += 1,
                Err(Failed::Late) => {}
                found => return found,
            }
            sleep(REVIEW).await;
        }
    }

    async fn find_now(
        &mut self,
        record: &mut Record,
        from: &Position,
    ) -> Result<Dispatched, Failed> {
        let found = self.find_without(&self.broken.clone(), record, from).await;
        match (found, self.broken.split_last()) {
            // Who broke off a while ago and is back is better than nobody.
            (Err(Failed::NoReplica), Some((last, [_, ..]))) => {
                let last = [last.clone()];
                self.find_without(&last, record, from).await
            }
            (found, _) => found,
        }
    }

    async fn find_without(
        &mut self,
        broken: &[ReplicaName],
        record: &mut Record,
        from: &Position,
    ) -> Result<Dispatched, Failed> {
        let worker = Arc::clone(&self.worker);
        let gateway = &worker.gateway;
        let view = gateway.view();
        let route = view.route_again(&self.prepared.route).ok_or(Failed::NoReplica)?;
        self.prepared.route = route;
        self.prepared.stay_with_model();
        let regions = gateway.regions();
        let excluded = self.excluded(&view, broken, from);
        if !excluded.is_any_left && (excluded.has_others || regions.others.is_empty()) {
            return Err(Failed::NoReplica);
        }
        let mut refused = self.lost.clone();
        if excluded.has_others {
            // What other regions run is not known here; so they are taken to run the same.
            refused.extend(regions.others.iter().map(|other| other.name.clone()));
        }
        let now = Instant::now();
        let mut tried = excluded.slots;
        let refused: Vec<_> = refused.into_iter().map(|region| (region, now)).collect();
        for _ in 0..gateway.config.retry.attempts_max {
            let tenant = tenant_key(gateway, &self.prepared);
            let dispatch = Dispatch {
                worker: &worker,
                view: Arc::clone(&view),
                regions: Arc::clone(&regions),
                prepared: &mut self.prepared,
                head: &self.head,
                dice: self.dice.clone(),
                started: now,
                tenant,
                is_past_guesses: false,
            };
            let so_far =
                SoFar { tried: tried.clone(), refused: refused.clone(), ..SoFar::default() };
            let mut dispatched = dispatch.run_again(record, so_far).await.map_err(failed)?;
            if let Some(witness) = &mut dispatched.witness {
                witness.head(&dispatched.reply.response);
            }
            if is_stream(&dispatched.reply.response) {
                return Ok(dispatched);
            }
            let Some(replica) = dispatched.place.replica() else { break };
            tried.extend(view.slot(&replica.spec().name));
            if !self.is_in_budget() {
                break;
            }
            record.retried(RetrySafety::Reset);
        }
        Err(Failed::Attempt)
    }

    /// Replicas that are not to be asked: those that broke off, and those that can't go on with a
    /// message that was begun.
    fn excluded(&self, view: &View, broken: &[ReplicaName], from: &Position) -> Excluded {
        let is_begun = matches!(from, Position::Behind { .. });
        let needs_engine = is_begun && self.continuing.api == CompletionApi::Chat;
        let mut excluded = Excluded { slots: Vec::new(), has_others: false, is_any_left: false };
        for (replica, index) in view.replicas().iter().zip(0..) {
            let spec = replica.spec();
            let can = !needs_engine || spec.continues_chats;
            let serves =
                self.prepared.inquiry.model.as_ref().is_some_and(|m| spec.models.contains(m));
            excluded.has_others |= serves && !can;
            if !can || broken.contains(&spec.name) {
                excluded.slots.push(ReplicaSlot(index));
            } else {
                excluded.is_any_left |= serves;
            }
        }
        excluded
    }

    /// The request in one piece.
    fn body(&self) -> Bytes {
        let mut slices = self.original.iter();
        match (slices.next(), self.original.iter().len()) {
            (Some(only), 1) => only.clone(),
            _ => {
                let mut body = BytesMut::with_capacity(self.original.len());
                self.original.iter().for_each(|slice| body.extend_from_slice(slice));
                body.freeze()
            }
        }
    }
}

/// Who is not to be asked.
#[derive(Debug)]
struct Excluded {
    slots: Vec<ReplicaSlot>,
    /// Some of those that serve the model can't go on.
    has_others: bool,
    /// Some that serve the model are left.
    is_any_left: bool,
}

impl Seeking {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Sought> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Seeking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeking")
    }
}

/// Whether a reply is a stream of events that can be read.
pub(crate) fn is_stream<T>(response: &Response<T>) -> bool {
    response.status() == StatusCode::OK && has_events(response.headers())
}

/// Whether a body is a stream of events that can be read.
pub(crate) fn has_events(headers: &HeaderMap) -> bool {
    is_event_stream(headers) && !headers.contains_key(header::CONTENT_ENCODING)
}

fn failed(error: GatewayError) -> Failed {
    tracing::debug!(%error, "no other replica goes on");
    match error.kind {
        // None is open now; whether there could be one was asked before.
        ErrorKind::NoReplica | ErrorKind::Overloaded | ErrorKind::DeadlineExceeded => Failed::Late,
        ErrorKind::ModelNotFound => Failed::NoReplica,
        _ => Failed::Attempt,
    }
}
