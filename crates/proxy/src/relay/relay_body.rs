//! A replica's reply on its way to the client.

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

use crate::client::PieceOut;
use crate::place::Place;
use crate::relay::behind::Behind;
use crate::relay::events::{Events, Flavour};
use crate::replica::DOWN_LOOK;
use crate::request::{Record, Resume, Seeking, Witness, clean_trailers};
use crate::stored_responses::{Home, NotKept, StoredResponse};
use crate::upstream::{ClientHalf, Http1Connection};
use crate::wire_body::{WireBody, WireError};
use crate::worker::Worker;

/// How a reply is to be passed on.
#[derive(Debug)]
pub(crate) struct RelayPlan {
    pub(crate) worker: Arc<Worker>,
    pub(crate) flavour: Flavour,
    pub(crate) strip_usage: bool,
    /// The model that the client named, if the replica stores the reply.
    pub(crate) stored_for: Option<ModelName>,
    /// Who alone may ask for it again.
    pub(crate) tenant: Option<TenantName>,
    /// Longest time from the request to the first event or byte of the reply.
    pub(crate) first_byte: Duration,
    /// Longest silence after that.
    pub(crate) idle: Duration,
    /// When whoever serves the reply was asked.
    pub(crate) asked_at: Instant,
    pub(crate) deadline: Deadline,
    /// Hides what a replica had cached that keeps the prompts of isolated tenants no more apart than others.
    pub(crate) mask: Option<Box<CacheMask>>,
    /// The client's half of a gRPC stream.
    pub(crate) client_half: Option<ClientHalf>,
    /// By which somebody else can go on with a stream that breaks off.
    pub(crate) resume: Option<Box<Resume>>,
}

/// The replica's end of a reply.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) body: WireBody,
    /// The connection to drive; `None` over HTTP/2, whose connection drives itself.
    pub(crate) connection: Option<Box<Http1Connection>>,
    /// The place there, held until the reply ends.
    pub(crate) place: Place,
    /// Judges the replica by its reply; none judges those of other regions.
    pub(crate) witness: Option<Witness>,
}

/// How long a region may be silent before a reply of it is given up that has not begun.
const REGION_GRACE: Duration = Duration::from_secs(4);

/// Why a reply was broken off towards the client, where its protocol has no event to say so.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RelayError(pub(super) String);

/// A reply that is to be broken off towards the client.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) error: RelayError,
    /// The client was given a turn to take what was handed over before.
    pub(super) has_waited: bool,
}

/// A reply in passing. Whoever polls it drives the replica's connection along.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(super) plan: RelayPlan,
    pub(super) body: WireBody,
    pub(super) connection: Option<Box<Http1Connection>>,
    /// `Some` while somebody serves the reply; gives the place there back.
    pub(super) place: Option<Place>,
    pub(super) witness: Option<Witness>,
    /// Lent to `seeking` while somebody is looked for.
    pub(super) record: Option<Record>,
    /// Somebody is looked for who goes on with a stream that ended in this way.
    pub(super) seeking: Option<(End, Seeking)>,
    pub(super) events: Option<Events>,
    /// What a reply in one piece told of its tokens.
    pub(super) usage: Option<Usage>,
    /// The last pieces to send after the replica's part is over.
    pub(super) last_words: Option<Frame<Bytes>>,
    /// How the reply is to be broken off, once what was handed over before is on its way.
    pub(super) broken: Option<Broken>,
    /// How far the client is behind.
    pub(super) behind: Behind,
    /// A gRPC reply has told how it ends.
    pub(super) has_status: bool,
    /// Made when there is something to wait for: a short reply never needs it.
    timer: Option<Pin<Box<Sleep>>>,
    pub(super) last_piece_at: Instant,
    /// When it was looked at last whether the replica is down.
    looked_at: Instant,
    /// Since when the region that serves the reply has been silent, as far as that was looked at.
    silent_since: Option<Instant>,
    /// The replica has to wait for the client.
    is_paused: bool,
    /// It was asked for more since the last piece, or since it had to wait: only then its silence says
    /// something.
    is_asked: bool,
    has_begun: bool,
    /// An event has come, comments aside; of a reply without events a first byte.
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
        record: Record,
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
            connection: upstream.connection,
            place: Some(upstream.place),
            witness: upstream.witness,
            record: Some(record),
            seeking: None,
            events,
            usage: None,
            last_words: None,
            broken: None,
            behind: Behind::default(),
            has_status: false,
            timer: None,
            last_piece_at: Instant::now(),
            looked_at: Instant::now(),
            silent_since: None,
            is_paused: false,
            is_asked: true,
            has_begun: false,
            has_spoken: false,
            piece_out: None,
        };
        relay.note_status(&head.headers);
        if relay.body.is_end_stream() && !relay.is_short() {
            relay.finish();
        }
        relay
    }

    /// Whether everything was handed over.
    pub(crate) fn has_ended(&self) -> bool {
        let is_over = !self.is_served() && self.behind.has_all();
        is_over && self.last_words.is_none() && self.broken.is_none()
    }

    /// Whether more is to come from whoever serves the reply.
    pub(super) fn is_served(&self) -> bool {
        self.place.is_some() || self.seeking.is_some()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        // A reply whose end may be told by somebody else has no known length.
        let is_open = self.events.is_some() || self.plan.flavour == Flavour::Grpc;
        if is_open { SizeHint::default() } else { self.body.size_hint() }
    }

    /// The next piece for the client. Asked for only while the client takes what it gets.
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
        // Until the client has taken it.
        self.is_asked = false;
        self.piece_out = self.record.as_ref().map(Record::hand_over);
        Poll::Ready(Some(Ok(frame)))
    }

    /// What comes next, behind all that was read before; `None` once nothing does, for a bad end too.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if std::mem::take(&mut self.is_paused) {
            self.is_asked = false;
            // It was set for the deadline, which is later.
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
                if !ready!(seeking.poll(cx)).settle(self) {
                    self.break_off(end);
                }
                continue;
            }
            if self.place.is_none() {
                return Poll::Ready(None);
            }
            let Poll::Ready(next) = self.poll_replica(cx) else {
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
                // Servers that shut down end their streams in good order, if not with a good word.
                None if self.is_short() => self.end_badly(End::Cut),
                None => self.finish(),
            }
        }
    }

    /// The end of the reply: an error if it is to be broken off.
    fn poll_broken(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let Some(mut broken) = self.broken.take() else { return Poll::Ready(None) };
        if broken.has_waited {
            return Poll::Ready(Some(Err(broken.error)));
        }
        // An error at once would take a head along that waits to be written, and the client would see
        // a connection closed without a word.
        broken.has_waited = true;
        self.broken = Some(broken);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_replica(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        match &mut self.connection {
            Some(connection) => connection.poll_body(&mut self.body, cx),
            None => Pin::new(&mut self.body).poll_frame(cx),
        }
    }

    /// Notes a frame from the replica; `None` if its bytes come out through `events`.
    fn take_frame(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        let piece = match frame.into_data() {
            Ok(piece) => piece,
            // Trailers end a reply, and go on as they are.
            Err(mut trailers) => {
                if let Some(trailers) = trailers.trailers_mut() {
                    self.note_status(trailers);
                    // It tells the gateway's own errors, also where a replica is one.
                    trailers.remove(&CODE_HEADER);
                    clean_trailers(trailers);
                }
                self.complete();
                return Some(trailers);
            }
        };
        let now = Instant::now();
        self.last_piece_at = now;
        if let Some(witness) = &mut self.witness {
            witness.piece(now);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.record_mut(|record| record.first_byte(now));
            self.remember_response(&piece);
        }
        let is_last = self.body.is_end_stream();
        let passed = match &mut self.events {
            Some(events) => {
                events.push(piece, now);
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
                Some(Frame::data(piece))
            }
        };
        if is_last && !self.is_short() {
            self.finish();
        }
        passed
    }

    /// Whether somebody else could go on with the stream, and its answer has not come to an end.
    fn is_short(&self) -> bool {
        self.plan.resume.is_some() && self.events.as_ref().is_some_and(Events::is_short)
    }

    pub(super) fn record_mut(&mut self, edit: impl FnOnce(&mut Record)) {
        if let Some(record) = &mut self.record {
            edit(record);
        }
    }

    /// Keeps the id of a stored response: it is asked for again by that, and only who gave it has it.
    fn remember_response(&self, first_piece: &[u8]) {
        let (Some(model), Some(place)) = (&self.plan.stored_for, &self.place) else { return };
        let Some(id) = response_id_in(first_piece) else { return };
        let (home, tenant) = (Home::of(place), self.plan.tenant.clone());
        let stored = StoredResponse { home, tenant, model: model.clone() };
        let responses = &self.plan.worker.gateway.responses;
        match responses.keep(id, stored, Instant::now()) {
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

    /// When the replica's silence is too long. Until it has spoken, that is as long as it may take to
    /// begin: engines send a stream's head at once, and then read the prompt.
    fn silence_due(&self) -> Instant {
        let (heard_at, allowed) = match self.has_spoken {
            true => (self.last_piece_at, self.plan.idle),
            false => (self.plan.asked_at, self.plan.first_byte),
        };
        // In a call both sides may be silent in turn: only silence of both counts.
        let sent_at = self.plan.client_half.as_ref().map(ClientHalf::last_sent);
        sent_at.map_or(heard_at, |sent| sent.max(heard_at)) + allowed
    }

    /// Ready, with the reason, once the replica has been silent for too long, is down, or time is up.
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
            let now = Instant::now();
            if now < due {
                // Pieces that came since it was set moved the due time; it is moved only when it fires.
                if !self.is_paused && self.is_server_gone(now) {
                    return Poll::Ready(End::Cut);
                }
                self.looked_at = now;
                let wake_at = self.wake_at(due);
                if let Some(timer) = &mut self.timer {
                    timer.as_mut().reset(wake_at.into());
                }
            } else if self.is_paused || due < silence_due {
                return Poll::Ready(End::DeadlinePassed);
            } else if std::mem::replace(&mut self.is_asked, true) {
                return Poll::Ready(End::Stalled);
            } else {
                self.last_piece_at = now;
                self.plan.asked_at = now;
            }
        }
    }

    /// When to look next at a reply that is due then. That a replica is down is noticed by looking,
    /// which costs requests no lock.
    fn wake_at(&self, due: Instant) -> Instant {
        let is_watched = match &self.place {
            Some(Place::Replica(_)) => true,
            Some(Place::Region(_)) => !self.has_spoken,
            None => false,
        };
        if is_watched && !self.is_paused { due.min(self.looked_at + DOWN_LOOK) } else { due }
    }

    /// Whether whoever serves the reply is gone: a replica that is down, or, before the reply's first
    /// event, a region that is silent. A reply that has begun outlives a short cut.
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

    /// The replica is not asked for more until the next [`Relay::poll_piece`]; ready, with the reason,
    /// once time is up all the same.
    pub(super) fn poll_paused(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        self.is_paused = true;
        self.poll_timer(cx)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The client left: what was streamed so far still counts.
        if self.place.is_some() {
            self.account();
        }
        if !self.behind.has_all() {
            self.record_mut(Record::left_behind);
        }
    }
}
