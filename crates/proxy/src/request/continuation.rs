//! Another replica for a stream whose own broke off.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, header};
use spillway_journey::{
    ContinuationSearch, RetrySafety, SearchEnd, SearchEvent, SearchStep, Without,
};
use spillway_protocol::{
    CompletionApi, ErrorKind, GatewayError, Segments, Terms, Thread, Unfit, UsageTelling,
};
use spillway_types::{RegionName, ReplicaName, ReplicaSlot};
use tokio::time::{sleep, timeout};

use crate::continuations::{ContinuationFailed, ContinuationSpec};
use crate::place::Place;
use crate::request::dispatch::{Dispatch, Dispatched, Interim};
use crate::request::headers::is_event_stream;
use crate::request::prepare::Prepared;
use crate::request::record::RequestRecord;
use crate::request::tenant::tenant_key;
use crate::upstream::RequestBody;
use crate::view::View;
use crate::worker::Worker;

/// Terms on which the stream of a request can be continued, by its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContinuationTerms {
    pub(crate) api: CompletionApi,
    pub(crate) telling: UsageTelling,
    pub(crate) fit: Result<(), Unfit>,
}

/// State of a request that is kept while its reply streams, so that it can be sent once more.
#[derive(Debug)]
pub(crate) struct StreamContinuation {
    worker: Arc<Worker>,
    prepared: Prepared,
    head: Parts,
    dice: fastrand::Rng,
    continuing: ContinuationTerms,
    spec: ContinuationSpec,
    /// The request as it was first sent.
    original: Segments,
    prompt_bytes: u32,
    output_tokens_max: Option<u32>,
    /// Replicas that broke off, in order.
    broken: Vec<ReplicaName>,
    /// Regions whose stream broke off.
    lost: Vec<RegionName>,
    count: u32,
}

/// Position at which a stream goes on.
#[derive(Clone, Debug)]
pub(crate) enum ContinuationPosition {
    /// The beginning of the stream.
    Start,
    /// The end of this text, of which so many tokens were counted.
    Behind { text: String, tokens: u64 },
}

/// Result of a search for a place that continues the stream.
#[derive(Debug)]
pub(crate) struct ContinuationFound {
    pub(crate) resume: Box<StreamContinuation>,
    pub(crate) record: RequestRecord,
    pub(crate) found: Result<Box<Dispatched>, ContinuationFailed>,
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
        self.prepared.salting = None;
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

    /// Returns true if the stream may be continued once more, by its own count.
    pub(crate) fn has_turns(&self) -> bool {
        self.count < self.spec.count_max
    }

    /// Returns true if the retry budget allows one more retry, and takes it.
    pub(crate) fn is_in_budget(&self) -> bool {
        self.worker.gateway.retry_budget.try_retry(Instant::now())
    }

    /// Searches a place that continues the stream, for no longer than a stream may be silent.
    pub(crate) fn seek(
        mut self: Box<Self>,
        mut record: RequestRecord,
        place: Option<&Place>,
        from: ContinuationPosition,
    ) -> PendingContinuation {
        match place {
            Some(Place::Replica(lease)) => self.broken.push(lease.replica().spec().name.clone()),
            Some(Place::Region(place)) => self.lost.push(place.region.clone()),
            None => {}
        }
        self.count += 1;
        self.write(&from);
        let left = self.prepared.inquiry.deadline.remaining(Instant::now());
        let bound = self.prepared.route.spec.timeouts.idle.min(left);
        PendingContinuation(Box::pin(async move {
            let found = timeout(bound, self.find(&mut record, &from)).await;
            let found = found.unwrap_or(Err(ContinuationFailed::Late)).map(Box::new);
            ContinuationFound { resume: self, record, found }
        }))
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
        // The continuation keeps its cache entries apart as well.
        self.prepared.salting =
            self.prepared.salting.take().and_then(|salting| salting.again(&body));
        self.prepared.body = RequestBody::Buffered(body);
    }

    /// Returns true if replies from this place must not tell what was cached.
    pub(crate) fn hides_cache_at(&self, place: Option<&Place>) -> bool {
        self.prepared.hides_cache_at(&self.worker.gateway, place)
    }

    /// Carries out the steps of a search for a place that continues the stream.
    async fn find(
        &mut self,
        record: &mut RequestRecord,
        from: &ContinuationPosition,
    ) -> Result<Dispatched, ContinuationFailed> {
        let tries_max = self.worker.gateway.config.retry.attempts_max;
        let mut search = ContinuationSearch::new(self.broken.len(), tries_max);
        // Replicas that were asked in this round, without success.
        let mut tried = Vec::new();
        loop {
            match search.next() {
                SearchStep::Try(without) => {
                    let (event, found) = self.try_once(without, &mut tried, record, from).await;
                    if search.on(event, || self.is_in_budget()) {
                        record.retried(RetrySafety::Reset);
                    } else {
                        tried.clear();
                    }
                    if let Some(found) = found {
                        return Ok(found);
                    }
                }
                SearchStep::Pause(pause) => {
                    sleep(pause).await;
                    search.on(SearchEvent::Paused, || false);
                }
                SearchStep::End(SearchEnd::NoPlaceLeft) => {
                    return Err(ContinuationFailed::NoReplica);
                }
                SearchStep::End(SearchEnd::Failed | SearchEnd::Found) => {
                    return Err(ContinuationFailed::Attempt);
                }
            }
        }
    }

    /// Sends the request on one journey. The reply comes with [`SearchEvent::Stream`] alone.
    async fn try_once(
        &mut self,
        without: Without,
        tried: &mut Vec<ReplicaName>,
        record: &mut RequestRecord,
        from: &ContinuationPosition,
    ) -> (SearchEvent, Option<Dispatched>) {
        let worker = Arc::clone(&self.worker);
        let gateway = &worker.gateway;
        let view = gateway.view();
        let Some(route) = view.route_again(&self.prepared.route) else {
            return (SearchEvent::NoPlaceLeft, None);
        };
        self.prepared.route = route;
        // Another model would not continue the text.
        self.prepared.stay_with_model();
        let regions = gateway.regions();
        let broken = match without {
            Without::AllBroken => &self.broken[..],
            Without::LastBroken => &self.broken[self.broken.len().saturating_sub(1)..],
        };
        let mut excluded = self.excluded(&view, broken, from);
        if !excluded.is_any_left && (excluded.has_others || regions.others.is_empty()) {
            return (SearchEvent::NoPlaceLeft, None);
        }
        // Kept by name, since a new view numbers its replicas anew.
        excluded.slots.extend(tried.iter().filter_map(|name| view.slot(name)));
        let mut lost = self.lost.clone();
        if excluded.has_others {
            // The engines of other regions are unknown here, and are taken to be like these.
            lost.extend(regions.others.iter().map(|other| other.name.clone()));
        }
        let now = Instant::now();
        let tenant = tenant_key(gateway, &self.prepared);
        let mut dispatch = Dispatch {
            worker: &worker,
            view,
            regions,
            prepared: &mut self.prepared,
            head: &self.head,
            dice: self.dice.clone(),
            started: now,
            tenant,
            interim: Interim::default(),
        };
        // This is no further request: no promise is redeemed, and no retry is earned.
        let mut journey = dispatch.journey().without(excluded.slots, &lost, now);
        let mut dispatched = match dispatch.drive(&mut journey, record).await {
            Ok(dispatched) => dispatched,
            Err(error) => return (event_of(&error), None),
        };
        if let Some(observer) = &mut dispatched.observer {
            observer.head(&dispatched.reply.response);
        }
        if is_stream(&dispatched.reply.response) {
            return (SearchEvent::Stream, Some(dispatched));
        }
        let replica = dispatched.place.replica();
        tried.extend(replica.map(|replica| replica.spec().name.clone()));
        (SearchEvent::OtherReply { is_local: replica.is_some() }, None)
    }

    /// Returns the replicas that are not to be asked: those that broke off, and those that cannot
    /// continue a message that was begun.
    fn excluded(
        &self,
        view: &View,
        broken: &[ReplicaName],
        from: &ContinuationPosition,
    ) -> Excluded {
        let is_begun = matches!(from, ContinuationPosition::Behind { .. });
        // Only some engines can continue a message of a chat that was begun.
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

/// Replicas that are not to be asked.
#[derive(Debug)]
struct Excluded {
    slots: Vec<ReplicaSlot>,
    /// True if some replicas that serve the model cannot continue.
    has_others: bool,
    /// True if some replicas that serve the model are left.
    is_any_left: bool,
}

impl PendingContinuation {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ContinuationFound> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for PendingContinuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeking")
    }
}

/// Returns true if a reply is a stream of events that can be read.
pub(crate) fn is_stream<T>(response: &Response<T>) -> bool {
    response.status() == StatusCode::OK && has_events(response.headers())
}

/// Returns true if a body is a stream of events that can be read.
pub(crate) fn has_events(headers: &HeaderMap) -> bool {
    is_event_stream(headers) && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Returns the event of the search for a journey's error.
fn event_of(error: &GatewayError) -> SearchEvent {
    tracing::debug!(%error, "no other replica goes on");
    match error.kind {
        // None is open now; the check before has found that there could be one.
        ErrorKind::NoReplica | ErrorKind::Overloaded | ErrorKind::DeadlineExceeded => {
            SearchEvent::NotNow
        }
        ErrorKind::ModelNotFound => SearchEvent::NoPlaceLeft,
        _ => SearchEvent::Failed,
    }
}
