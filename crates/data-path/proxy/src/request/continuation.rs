//! Another replica for a stream whose own broke off.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use spillway_journey::{
    BreakCause, ContinuationRules, ContinuedStream, Ending, RetrySafety, StreamBreak, StreamEnd,
    StreamEvent, StreamReplica, StreamRetry, StreamSight, StreamStep, Unasked,
};
use spillway_protocol::{CompletionApi, Segments, Terms, Thread, Unfit, UsageWish, is_encoded};
use spillway_request::continuation_terms::ContinuationTerms;
use spillway_request::gateway::RoutingState;
use spillway_request::headers::is_event_stream;
use spillway_request::prepared::Prepared;
use spillway_transport::coarse_clock;
use spillway_types::{Deadline, RegionName, ReplicaSlot};
use spillway_upstream::RequestBody;
use spillway_view::{ContinuationSpec, HeldSlot, Regions, View};
use tokio::time::{sleep, timeout_at};

use crate::request::dispatch::{Dispatch, Dispatched, Interim};
use crate::request::record::RequestRecord;
use crate::request::tenant::tenant_key;
use crate::worker::Worker;

/// State of a request that is kept while its reply streams, so that it can be sent again.
#[derive(Debug)]
pub(crate) struct StreamContinuation {
    worker: Arc<Worker>,
    prepared: Prepared,
    head: Parts,
    dice: fastrand::Rng,
    continuing: ContinuationTerms,
    spec: ContinuationSpec,
    /// State machine that decides about continuations.
    stream: ContinuedStream,
    /// The request's body as the client sent it, except for the model's name.
    original: Segments,
    prompt_bytes: u32,
    output_tokens_max: Option<u32>,
}

/// Position at which a stream goes on.
#[derive(Clone, Debug)]
pub(crate) enum ContinuationPosition {
    /// The beginning of the stream.
    Start,
    /// The end of this text, of which so many tokens were counted.
    Behind { text: String, tokens: u64 },
}

/// Result of a search for a target that continues the stream.
#[derive(Debug)]
pub(crate) struct ContinuationFound {
    pub(crate) resume: Box<StreamContinuation>,
    pub(crate) record: RequestRecord,
    /// Cause of the search.
    pub(crate) cause: BreakCause,
    pub(crate) found: Result<Box<Dispatched>, StreamEnd>,
}

/// Facts of one moment that the continuation of a stream reads.
#[derive(Debug)]
struct StreamFacts<'a> {
    prepared: &'a Prepared,
    view: Arc<View>,
    regions: Arc<Regions>,
}

/// Search under way. If it is dropped, the request is recorded as one that its client left.
pub(crate) struct PendingContinuation(Pin<Box<dyn Future<Output = ContinuationFound> + Send>>);

impl StreamContinuation {
    /// Creates the state to continue a stream; `None` if the route does not want that, or the
    /// request cannot be continued.
    pub(crate) fn of(
        worker: &Arc<Worker>,
        prepared: Prepared,
        head: Parts,
        dice: &fastrand::Rng,
    ) -> Option<Box<Self>> {
        let spec = prepared.route.spec.continuation?;
        let continuing = prepared.continuing?;
        let RequestBody::Buffered(original) = &prepared.body else { return None };
        let stream = ContinuedStream::new(ContinuationRules {
            count_max: spec.count_max,
            tries_max: worker.gateway.retries.attempts_max,
            needs_engine: continuing.api == CompletionApi::Chat,
            deaths: prepared.deaths,
        });
        Some(Box::new(Self {
            worker: Arc::clone(worker),
            stream,
            original: original.clone(),
            prompt_bytes: prepared.inquiry.prompt_bytes,
            output_tokens_max: prepared.inquiry.output_tokens_max,
            prepared,
            head,
            dice: dice.clone(),
            continuing,
            spec,
        }))
    }

    /// Returns an observer of the stream from its beginning; `None` if only the beginning could be
    /// repeated.
    pub(crate) fn thread(&self) -> Option<Thread> {
        let ContinuationTerms { api, telling, fit } = self.continuing;
        fit.is_ok().then(|| Thread::new(api, telling, self.spec.text_bytes_max))
    }

    /// Frees the memory that only a continuation needs.
    pub(crate) fn forget(&mut self) {
        if self.original.is_empty() {
            return;
        }
        self.original = Segments::default();
        self.prepared.body = RequestBody::Buffered(Segments::default());
        self.prepared.draft = None;
        self.prepared.forget_reservation();
    }

    /// Reads the request's terms of a continuation.
    ///
    /// # Errors
    /// Returns the reason for which no replica could continue exactly.
    pub(crate) fn terms(&self) -> Result<Terms, Unfit> {
        self.continuing.fit?;
        Terms::read(&self.body(), self.continuing.api)
    }

    /// Notes that the stream broke off. Returns the step that follows, once the budget has allowed a
    /// search.
    pub(crate) fn broke(&mut self, broke: StreamBreak) -> StreamStep {
        self.tell(StreamEvent::Broke(broke));
        let step = self.next().0;
        if !matches!(step, StreamStep::TakeRetry(_)) {
            return step;
        }
        self.take_retry();
        self.next().0
    }

    /// Returns the next step, with the view and regions that it was decided by: slots of replicas
    /// mean something in that view alone.
    fn next(&mut self) -> (StreamStep, Arc<View>, Arc<Regions>) {
        let facts = StreamFacts::new(&self.worker.gateway.routing, &self.prepared);
        let step = self.stream.next(&facts, coarse_clock::now());
        (step, facts.view, facts.regions)
    }

    /// Reports the result of a step.
    fn tell(&mut self, event: StreamEvent) {
        let facts = StreamFacts::new(&self.worker.gateway.routing, &self.prepared);
        self.stream.on(event, &facts, coarse_clock::now());
    }

    /// Takes a retry from the budget. Returns false if that is used up.
    fn take_retry(&mut self) -> bool {
        let is_allowed = self.worker.gateway.retries.budget.try_retry(coarse_clock::now());
        self.tell(StreamEvent::Retry { is_allowed });
        is_allowed
    }

    /// Searches a target that continues the stream.
    pub(crate) fn seek(
        mut self: Box<Self>,
        mut record: RequestRecord,
        from: ContinuationPosition,
        cause: BreakCause,
    ) -> PendingContinuation {
        self.write(&from);
        PendingContinuation(Box::pin(async move {
            let found = self.find(&mut record).await.map(Box::new);
            ContinuationFound { resume: self, record, cause, found }
        }))
    }

    /// Notes that the stream stays where it is, since no other target had room for it.
    pub(crate) fn stays(&mut self) {
        self.stream.stay();
    }

    /// Returns true if a target that is neither down nor being drained has room for the stream now.
    pub(crate) fn has_room_elsewhere(&self) -> bool {
        let gateway = &self.worker.gateway;
        let (view, regions) = (gateway.routing.view(), gateway.routing.regions());
        let inquiry = &self.prepared.inquiry;
        let Some(route) = view.route_again(&self.prepared.route) else { return false };
        let has_place = |slot| {
            let replica = view.replica(slot);
            let is_there = !replica.is_leaving() && !replica.is_down();
            is_there && replica.in_flight() < replica.slots_for(true)
        };
        let group = route.group(inquiry.model.as_ref()).filter(|_| !regions.is_evacuated);
        let is_here = group.is_some_and(|group| {
            group.group.candidates().iter().any(|candidate| has_place(candidate.slot))
        });
        is_here
            || inquiry.model.as_ref().is_some_and(|model| {
                regions.others.iter().any(|other| {
                    other.is_reachable
                        && other.may_serve(&inquiry.residency)
                        && !regions.is_leaving(&other.name)
                        && regions.has_room(&other.name, model)
                })
            })
    }

    /// Rewrites the request so that its reply continues from there.
    fn write(&mut self, from: &ContinuationPosition) {
        let body = match (from, self.terms()) {
            (ContinuationPosition::Behind { text, tokens }, Ok(terms)) => {
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                let tokens_32 = u32::try_from(*tokens).unwrap_or(u32::MAX);
                let left = self.output_tokens_max.map(|most| most.saturating_sub(tokens_32));
                // The text so far becomes a part of the prompt, and its tokens count as used.
                self.prepared.inquiry.prompt_bytes = self.prompt_bytes.saturating_add(length);
                self.prepared.inquiry.output_tokens_max = left;
                terms.body_behind(&self.body(), text, *tokens)
            }
            _ => self.original.clone(),
        };
        // The continuation keeps its cache entries apart as well, and reports its usage.
        self.prepared.draft = self.prepared.draft.take().and_then(|draft| draft.with_body(&body));
        self.prepared.body = RequestBody::Buffered(body);
    }

    /// Returns true if the usage has to be removed from a reply whose server was asked for this.
    pub(crate) fn strips_usage(&self, asked: UsageWish) -> bool {
        self.prepared.strips_usage(asked)
    }

    /// Returns true if replies from this target must not show what was cached.
    pub(crate) fn hides_cache_at(&self, target: Option<&HeldSlot>) -> bool {
        self.prepared.hides_cache_at(&self.worker.gateway.clients.authenticator, target)
    }

    /// Carries out the steps of a search for a target that continues the stream.
    async fn find(&mut self, record: &mut RequestRecord) -> Result<Dispatched, StreamEnd> {
        loop {
            let (step, view, regions) = self.next();
            let (event, found) = match step {
                StreamStep::TakeRetry(retry) => {
                    // Continuations and their rounds are counted apart from retries.
                    if self.take_retry() && retry == StreamRetry::Try {
                        record.retried(RetrySafety::Reset);
                    }
                    continue;
                }
                StreamStep::Try { unasked, until } => {
                    let trying = self.try_once(unasked, view, regions, record);
                    let tried = timeout_at(until.into(), trying).await;
                    tried.unwrap_or((StreamEvent::TimeOver, None))
                }
                StreamStep::Pause(pause) => {
                    sleep(pause).await;
                    (StreamEvent::Paused, None)
                }
                StreamStep::End(end) => return Err(end),
                // No target was found, and none is sought.
                StreamStep::Relay => return Err(StreamEnd::Failed),
            };
            self.tell(event);
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    /// Sends the request on one journey. The reply comes with [`StreamEvent::Continued`] alone.
    async fn try_once(
        &mut self,
        unasked: Unasked,
        view: Arc<View>,
        regions: Arc<Regions>,
        record: &mut RequestRecord,
    ) -> (StreamEvent, Option<Dispatched>) {
        let worker = Arc::clone(&self.worker);
        let gateway = &worker.gateway;
        let Some(route) = view.route_again(&self.prepared.route) else {
            return (StreamEvent::NoRoute, None);
        };
        self.prepared.take_route(route);
        // Another model would not continue the text.
        self.prepared.stay_with_model();
        self.prepared.deaths = self.stream.deaths();
        let tenant = tenant_key(&gateway.routing.key_hasher, &self.prepared);
        let mut dispatch = Dispatch {
            worker: &worker,
            view,
            regions,
            prepared: &mut self.prepared,
            head: &self.head,
            dice: self.dice.clone(),
            started: coarse_clock::now(),
            tenant,
            interim: Interim::default(),
        };
        // This is no further request: no promise is redeemed, and no retry is earned.
        let mut journey = dispatch.journey().without(unasked);
        let driven = dispatch.drive(&mut journey, record).await;
        self.stream.note_deaths(journey.deaths());
        let mut dispatched = match driven {
            Ok(dispatched) => dispatched,
            Err(error) => {
                tracing::debug!(%error, "no other replica can continue the stream");
                let ending = journey.ending().unwrap_or(Ending::LastFailure);
                return (StreamEvent::NoReply(ending), None);
            }
        };
        if let Some(observer) = &mut dispatched.observer {
            observer.head(&dispatched.reply);
        }
        // Nothing but events can follow the head that the client has received.
        if is_stream(&dispatched.reply) {
            return (StreamEvent::Continued, Some(dispatched));
        }
        let replica = dispatched.target.replica();
        (StreamEvent::OtherReply(replica.map(|replica| replica.spec().name.clone())), None)
    }

    /// Returns the request's body in one piece.
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

impl<'a> StreamFacts<'a> {
    fn new(routing: &RoutingState, prepared: &'a Prepared) -> Self {
        Self { prepared, view: routing.view(), regions: routing.regions() }
    }
}

impl StreamSight for StreamFacts<'_> {
    fn replicas(&self) -> impl Iterator<Item = StreamReplica<'_>> {
        let model = self.prepared.inquiry.model.as_ref();
        let replicas = self.view.replicas().iter().zip(0..);
        replicas.filter(|(replica, _)| !replica.is_overflow()).map(move |(replica, index)| {
            let spec = replica.spec();
            StreamReplica {
                slot: ReplicaSlot(index),
                name: &spec.name,
                serves_model: model.is_some_and(|model| spec.models.contains(model)),
                continues_chats: spec.continues_chats,
            }
        })
    }

    fn regions(&self) -> impl Iterator<Item = &RegionName> {
        self.regions.others.iter().map(|other| &other.name)
    }

    fn silence_max(&self) -> Duration {
        self.prepared.route.spec.timeouts.idle
    }

    fn deadline(&self) -> Deadline {
        self.prepared.inquiry.deadline
    }
}

impl PendingContinuation {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ContinuationFound> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for PendingContinuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingContinuation")
    }
}

/// Returns true if a reply is a stream of events that can be read.
pub(crate) fn is_stream<T>(response: &Response<T>) -> bool {
    response.status() == StatusCode::OK && has_events(response.headers())
}

/// Returns true if a body is a stream of events that can be read.
pub(crate) fn has_events(headers: &HeaderMap) -> bool {
    is_event_stream(headers) && !is_encoded(headers)
}
