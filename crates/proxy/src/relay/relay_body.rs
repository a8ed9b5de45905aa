//! Relays a replica's reply to the client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header;
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use spillway_protocol::{CODE_HEADER, CacheMask, Usage, response_id_in, usage_in};
use spillway_types::{Deadline, End, ModelName, TenantName, TokenCounts};
use tokio::time::{Sleep, sleep_until};

use crate::relay::behind::Behind;
use crate::relay::events::Events;
use crate::request::{AttemptObserver, PendingContinuation, RequestRecord, StreamContinuation};
use crate::worker::Worker;
use spillway_front::client::PieceOut;
use spillway_request::flavour::Flavour;
use spillway_request::headers::clean_trailers;
use spillway_request::reply_hasher::ReplyHasher;
use spillway_upstream::connection::ClientHalf;
use spillway_upstream::learning::ForwardReplied;
use spillway_upstream::place::Place;
use spillway_upstream::replica::DOWN_LOOK;
use spillway_upstream::stored_responses::{Home, NotKept, StoredResponse};
use spillway_upstream::upstream_body::UpstreamBody;
use spillway_upstream::wake;

/// Plan for relaying a reply.
#[derive(Debug)]
pub(crate) struct RelayPlan {
    pub(crate) worker: Arc<Worker>,
    pub(crate) flavour: Flavour,
    pub(crate) strip_usage: bool,
    /// Model that the client named, if the replica stores the reply.
    pub(crate) stored_for: Option<ModelName>,
    /// Tenant that alone may ask for the stored reply again.
    pub(crate) tenant: Option<TenantName>,
    /// Longest time from the request to the first event or byte of the reply.
    pub(crate) first_byte: Duration,
    /// Longest silence after the first event or byte.
    pub(crate) idle: Duration,
    /// Time at which the replica or region was asked.
    pub(crate) asked_at: Instant,
    pub(crate) deadline: Deadline,
    /// Hides cached tokens in replies of a replica that does not keep the caches of isolated
    /// tenants apart.
    pub(crate) mask: Option<Box<CacheMask>>,
    /// Client's half of a gRPC stream.
    pub(crate) client_half: Option<ClientHalf>,
    /// Hasher of the reply for the prefix index; `None` if the index does not learn it.
    pub(crate) hasher: Option<Box<ReplyHasher>>,
    /// Report on the reply of another region, for the index of forwards.
    pub(crate) forwarded: Option<Box<ForwardReplied>>,
    /// Means to continue the stream at another replica if it fails.
    pub(crate) resume: Option<Box<StreamContinuation>>,
}

/// Replica's end of a reply.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) body: UpstreamBody,
    /// Place at the replica or region, held until the reply ends.
    pub(crate) place: Place,
    /// Judges the replica by its reply; `None` for other regions.
    pub(crate) observer: Option<AttemptObserver>,
}

/// Longest silence of a region before a reply of it that has not begun is given up.
const REGION_GRACE: Duration = Duration::from_secs(4);

/// Error that breaks off a reply where its protocol has no event for errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RelayError(pub(super) String);

/// A reply that must be broken off towards the client.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: RelayError,
    /// True if the client had a turn to take the bytes handed over before.
    pub(super) has_waited: bool,
}

/// Relay of one reply. Polling it also drives the replica's connection.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(super) plan: RelayPlan,
    pub(super) body: UpstreamBody,
    /// Place of the reply, while a replica or region serves it; dropping it releases the place.
    pub(super) place: Option<Place>,
    pub(super) observer: Option<AttemptObserver>,
    /// Record of the request; lent to `seeking` while another replica is looked for.
    pub(super) record: Option<RequestRecord>,
    /// Search for a replica that continues the stream, with the end that made it necessary.
    pub(super) seeking: Option<(End, PendingContinuation)>,
    pub(super) events: Option<Events>,
    /// Token usage in a reply of one piece.
    pub(super) usage: Option<Usage>,
    /// Last piece to send after the replica's part is over.
    pub(super) last_words: Option<Frame<Bytes>>,
    /// Error that breaks off the reply, once the bytes handed over before are on their way.
    pub(super) broken: Option<Broken>,
    /// Lag of the client.
    pub(super) behind: Behind,
    /// True if a gRPC reply has told its status.
    pub(super) has_status: bool,
    /// Timer; made at the first wait, since a short reply never needs it.
    timer: Option<Pin<Box<Sleep>>>,
    pub(super) last_piece_at: Instant,
    /// Time of the last check if the replica is down.
    looked_at: Instant,
    /// Start of the silence of the region that serves the reply, as of the last check.
    silent_since: Option<Instant>,
    /// True while the replica must wait for the client.
    is_paused: bool,
    /// True if the replica was asked for more since the last piece or the last pause: only then
    /// does its silence mean anything.
    is_asked: bool,
    has_begun: bool,
    /// True once an event has come, not counting comments; for a reply without events, a first
    /// byte.
    pub(super) has_spoken: bool,
    /// The last piece, until the next is asked for.
    piece_out: Option<PieceOut>,
}

impl Relay {
    /// Takes over a reply whose head is about to be sent, and corrects that head where the body
    /// will differ.
    pub(crate) fn new(
        plan: RelayPlan,
        head: &mut Parts,
        upstream: Upstream,
        record: RequestRecord,
    ) -> Self {
        let events = Events::of(&head.headers, plan.flavour, plan.strip_usage);
        let thread = plan.resume.as_ref().and_then(|resume| resume.thread());
        let events = events.map(|events| events.followed(thread));
        if events.is_some() {
            // An error event may have to be added at the end.
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let mut relay = Self {
            plan,
            body: upstream.body,
            place: Some(upstream.place),
            observer: upstream.observer,
            record: Some(record),
            seeking: None,
            events,
            usage: None,
            last_words: None,
            broken: None,
            behind: Behind::default(),
            has_status: false,
            timer: None,
            last_piece_at: wake::now(),
            looked_at: wake::now(),
            silent_since: None,
            is_paused: false,
            is_asked: true,
            has_begun: false,
            has_spoken: false,
            piece_out: None,
        };
        relay.note_status(&head.headers);
        // A reply without a body is complete at once.
        if relay.body.is_end_stream() && !relay.is_short() {
            relay.finish();
        }
        relay
    }

    /// Returns true if everything was handed over.
    pub(crate) fn has_ended(&self) -> bool {
        let is_over = !self.is_served() && self.behind.has_all();
        is_over && self.last_words.is_none() && self.broken.is_none()
    }

    /// Returns true if more is to come from the replica or region.
    pub(super) fn is_served(&self) -> bool {
        self.place.is_some() || self.seeking.is_some()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        // The gateway may have to end such a reply itself, so its length is unknown.
        let is_open = self.events.is_some() || self.plan.flavour == Flavour::Grpc;
        if is_open { SizeHint::default() } else { self.body.size_hint() }
    }

    /// Returns the next piece for the client. To be polled only while the client takes pieces.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        self.piece_out = None;
        let next = match self.behind.catch_up() {
            Some(frame) => Some(frame),
            None => ready!(self.poll_piece(cx)),
        };
        let Some(frame) = next else { return self.poll_broken(cx) };
        // Reset until the client has taken the piece.
        self.is_asked = false;
        self.piece_out = self.record.as_ref().map(RequestRecord::hand_over);
        Poll::Ready(Some(Ok(frame)))
    }

    /// Returns the next piece after all that was read before; `None` at the end, even a bad one.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if std::mem::take(&mut self.is_paused) {
            self.is_asked = false;
            // The timer was set for the deadline, which is later.
            self.timer = None;
        }
        let next = ready!(self.poll_next(cx));
        if next.is_some() {
            self.forget_if_unfit();
        }
        let Some(mask) = &mut self.plan.mask else { return Poll::Ready(next) };
        Poll::Ready(next.map(|frame| frame.map_data(|piece| mask.mask(piece))))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        loop {
            if let Some(piece) = self.events.as_mut().and_then(Events::pop) {
                return Poll::Ready(Some(Frame::data(piece)));
            }
            if let Some(words) = self.last_words.take() {
                return Poll::Ready(Some(words));
            }
            if let Some((end, seeking)) = &mut self.seeking {
                let end = *end;
                // Without another replica the client learns how the first one ended.
                if !ready!(seeking.poll(cx)).settle(self) {
                    self.break_off(end);
                }
                continue;
            }
            if self.place.is_none() {
                return Poll::Ready(None);
            }
            let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(cx) else {
                let overdue = ready!(self.poll_timer(cx));
                self.end_badly(overdue);
                continue;
            };
            match next {
                Some(Ok(frame)) => {
                    if let Some(frame) = self.take_frame(frame) {
                        return Poll::Ready(Some(frame));
                    }
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "reply was cut");
                    self.end_badly(End::Cut);
                }
                // Servers that shut down end their streams in good order, even in the middle of an
                // answer.
                None if self.is_short() => self.end_badly(End::Cut),
                None => self.finish(),
            }
        }
    }

    /// Returns the end of the reply: an error if the reply must be broken off.
    fn poll_broken(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let Some(mut broken) = self.broken.take() else { return Poll::Ready(None) };
        if broken.has_waited {
            return Poll::Ready(Some(Err(broken.error)));
        }
        // An immediate error would also discard a head that waits to be written, and the client
        // would see a closed connection without any reply.
        broken.has_waited = true;
        self.broken = Some(broken);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Processes a frame from the replica; `None` if its bytes come out through `events`.
    fn take_frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let piece = match frame.into_data() {
            Ok(piece) => piece,
            // Trailers end a reply and pass almost unchanged.
            Err(mut trailers) => {
                if let Some(trailers) = trailers.trailers_mut() {
                    self.note_status(trailers);
                    // This header marks errors of the gateway, even if the replica is a gateway
                    // too.
                    trailers.remove(&CODE_HEADER);
                    clean_trailers(trailers);
                }
                self.complete();
                return Some(trailers);
            }
        };
        let now = wake::now();
        self.last_piece_at = now;
        if let Some(observer) = &mut self.observer {
            observer.piece(now);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.record_mut(|record| record.first_byte(now));
            self.remember_response(&piece);
        }
        let is_last = self.body.is_end_stream();
        let passed = match &mut self.events {
            Some(events) => {
                let hasher = &mut self.plan.hasher;
                events.push(piece, now, |event| {
                    if let Some(hasher) = hasher {
                        hasher.event(event);
                    }
                });
                self.has_spoken |= events.has_spoken();
                if events.has_fault() {
                    self.break_by_word();
                    return None;
                }
                None
            }
            None => {
                self.has_spoken = true;
                self.read_usage(&piece);
                if let Some(hasher) = &mut self.plan.hasher {
                    hasher.piece(&piece);
                }
                Some(Frame::data(piece))
            }
        };
        // The end is known already, so the replica's place need not wait until the client asks for
        // more.
        if is_last && !self.is_short() {
            self.finish();
        }
        passed
    }

    /// Returns true if the answer is incomplete and another replica could continue it.
    fn is_short(&self) -> bool {
        self.plan.resume.is_some() && self.events.as_ref().is_some_and(Events::is_short)
    }

    pub(super) fn record_mut(&mut self, edit: impl FnOnce(&mut RequestRecord)) {
        if let Some(record) = &mut self.record {
            edit(record);
        }
    }

    /// Remembers the place of a stored response by its id, under which only the same tenant can ask
    /// for it.
    fn remember_response(&self, first_piece: &[u8]) {
        let (Some(model), Some(place)) = (&self.plan.stored_for, &self.place) else { return };
        let Some(id) = response_id_in(first_piece) else { return };
        let (home, tenant) = (Home::of(place), self.plan.tenant.clone());
        let stored = StoredResponse { home, tenant, model: model.clone() };
        let responses = &self.plan.worker.gateway.responses;
        match responses.keep(id, stored, wake::now()) {
            Ok(()) => {}
            Err(NotKept::Taken) => tracing::warn!(
                id, tenant = ?self.plan.tenant,
                "a replica gave out the id of another response: this reply can't be asked for again"
            ),
            Err(NotKept::LongId) => tracing::debug!(
                bytes = id.len(),
                "the id of a response is too long: the reply can't be asked for again"
            ),
        }
    }

    fn read_usage(&mut self, piece: &[u8]) {
        // These replies tell no usage; it is estimated by their length.
        if matches!(self.plan.flavour, Flavour::KServeV2 | Flavour::Grpc | Flavour::Raw) {
            self.record_mut(|record| record.reply_bytes(piece.len()));
            return;
        }
        if let Some(usage) = usage_in(piece) {
            self.usage = Some(usage);
            let tokens = TokenCounts {
                prompt: usage.prompt_tokens,
                completion: usage.completion_tokens,
                cached: usage.cached_tokens.unwrap_or(0),
            };
            self.record_mut(|record| record.tokens(tokens, None));
        }
    }

    /// Returns the time at which the replica has been silent for too long. Until the first event
    /// the limit is the time to first byte: engines send a stream's head at once, and then read the
    /// prompt.
    fn silence_due(&self) -> Instant {
        let (heard_at, allowed) = match self.has_spoken {
            true => (self.last_piece_at, self.plan.idle),
            false => (self.plan.asked_at, self.plan.first_byte),
        };
        // In a call both sides may be silent in turn: only silence of both counts.
        let sent_at = self.plan.client_half.as_ref().map(ClientHalf::last_sent);
        sent_at.map_or(heard_at, |sent| sent.max(heard_at)) + allowed
    }

    /// Returns ready, with the reason, once the replica has been silent for too long, is down, or
    /// time is up.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let silence_due = self.silence_due();
            let deadline = self.plan.deadline.at();
            let due = if self.is_paused { deadline } else { silence_due.min(deadline) };
            let wake_at = self.wake_at(due);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(wake_at.into())));
            if timer.as_mut().poll(cx).is_pending() {
                self.is_asked = true;
                return Poll::Pending;
            }
            let now = wake::now();
            if now < due {
                // Pieces that arrived since then moved the due time; the timer is moved only when
                // it fires.
                if !self.is_paused && self.is_server_gone(now) {
                    return Poll::Ready(End::Cut);
                }
                self.looked_at = now;
                let wake_at = self.wake_at(due);
                if let Some(timer) = &mut self.timer {
                    timer.as_mut().reset(wake_at.into());
                }
            } else if self.is_paused || due < silence_due {
                // A paused reply is due at its deadline alone: the replica waits for the client.
                return Poll::Ready(End::DeadlinePassed);
            } else if std::mem::replace(&mut self.is_asked, true) {
                return Poll::Ready(End::Stalled);
            } else {
                // Nobody asked the replica for more all the while, so its silence begins to count
                // now.
                self.last_piece_at = now;
                self.plan.asked_at = now;
            }
        }
    }

    /// Returns the time to wake up for a reply that is due at `due`. A replica that is down is
    /// noticed by regular checks, which cost requests no lock.
    fn wake_at(&self, due: Instant) -> Instant {
        let is_watched = match &self.place {
            Some(Place::Replica(_)) => true,
            Some(Place::Region(_)) => !self.has_spoken,
            None => false,
        };
        if is_watched && !self.is_paused { due.min(self.looked_at + DOWN_LOOK) } else { due }
    }

    /// Returns true if the server of the reply is gone: a replica that is down, or, before the
    /// first event, a region that is silent. A reply that has begun outlives a short network cut.
    fn is_server_gone(&mut self, now: Instant) -> bool {
        match &self.place {
            Some(Place::Replica(lease)) => lease.replica().is_gone(self.plan.asked_at, now),
            Some(Place::Region(place)) => {
                let regions = self.plan.worker.gateway.regions();
                if regions.is_reachable(&place.region) {
                    self.silent_since = None;
                    return false;
                }
                let since = *self.silent_since.get_or_insert(now);
                now.saturating_duration_since(since) >= REGION_GRACE
            }
            None => false,
        }
    }

    /// Stops reading from the replica until the next [`Relay::poll_piece`]. Ready, with the reason,
    /// once the request's time is up.
    pub(super) fn poll_paused(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.is_paused = true;
        self.poll_timer(cx)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The client left: the tokens streamed so far still count.
        if self.place.is_some() {
            self.account();
        }
        if !self.behind.has_all() {
            self.record_mut(RequestRecord::left_behind);
        }
    }
}
