//! A replica's reply on its way to the client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::response::Parts;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};
use spillway_protocol::grpc::{status_in, trailers_of};
use spillway_protocol::{CODE_HEADER, ErrorKind, GatewayError, Usage, response_id_in, usage_in};
use spillway_types::{Deadline, End, TenantName, TokenCounts};
use tokio::time::{Sleep, sleep_until};

use crate::client::PieceOut;
use crate::gateway::{Home, StoredResponse};
use crate::place::Place;
use crate::relay::events::{Events, Flavour};
use crate::request::{Record, Resume, Seeking, Witness};
use crate::upstream::{ClientHalf, Http1Connection};
use crate::wire_body::{WireBody, WireError};
use crate::worker::Worker;

/// How a reply is to be passed on.
#[derive(Debug)]
pub(crate) struct RelayPlan {
    pub(crate) worker: Arc<Worker>,
    pub(crate) flavour: Flavour,
    pub(crate) strip_usage: bool,
    pub(crate) is_stored: bool,
    /// Who alone may ask for it again.
    pub(crate) tenant: Option<TenantName>,
    pub(crate) idle: Duration,
    pub(crate) deadline: Deadline,
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

/// Why a reply was broken off towards the client, where its protocol has no event to say so.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RelayError(String);

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
    usage: Option<Usage>,
    /// The last pieces to send after the replica's part is over.
    pub(super) last_words: Option<Frame<Bytes>>,
    /// How the reply is to be broken off, once what was handed over before is on its way.
    broken: Option<RelayError>,
    /// A gRPC reply has told how it ends.
    has_status: bool,
    /// Made when there is something to wait for: a short reply never needs it.
    timer: Option<Pin<Box<Sleep>>>,
    pub(super) last_piece_at: Instant,
    has_begun: bool,
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
            has_status: false,
            timer: None,
            last_piece_at: Instant::now(),
            has_begun: false,
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
        let is_over = self.place.is_none() && self.seeking.is_none();
        is_over && self.last_words.is_none() && self.broken.is_none()
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
        let polled = self.poll_piece(cx);
        if matches!(polled, Poll::Ready(Some(Ok(_)))) {
            self.forget_if_unfit();
            self.piece_out = self.record.as_ref().map(Record::hand_over);
        }
        polled
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        loop {
            if let Some(piece) = self.events.as_mut().and_then(Events::pop) {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if let Some(words) = self.last_words.take() {
                return Poll::Ready(Some(Ok(words)));
            }
            if let Some(error) = self.broken.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if let Some((end, seeking)) = &mut self.seeking {
                let end = *end;
                match std::task::ready!(seeking.poll(cx)).settle(self) {
                    true => continue,
                    false => return self.break_off(end, cx),
                }
            }
            if self.place.is_none() {
                return Poll::Ready(None);
            }
            let Poll::Ready(next) = self.poll_replica(cx) else {
                return match self.poll_timer(cx) {
                    Poll::Ready(overdue) if self.goes_on(overdue) => continue,
                    Poll::Ready(overdue) => self.break_off(overdue, cx),
                    Poll::Pending => Poll::Pending,
                };
            };
            match next {
                Some(Ok(frame)) => match self.take_frame(frame) {
                    Some(frame) => return Poll::Ready(Some(Ok(frame))),
                    None => continue,
                },
                Some(Err(error)) => {
                    tracing::debug!(%error, "reply was cut");
                    if !self.goes_on(End::Cut) {
                        return self.break_off(End::Cut, cx);
                    }
                }
                // Servers that shut down end their streams in good order, if not with a good word.
                None if self.is_short() => {
                    if !self.goes_on(End::Cut) {
                        return self.break_off(End::Cut, cx);
                    }
                }
                None => self.finish(),
            }
        }
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
                if events.has_fault() {
                    self.break_by_word();
                    return None;
                }
                None
            }
            None => {
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

    /// A stored response is asked for again by its id, and only who gave it has it.
    fn remember_response(&self, first_piece: &[u8]) {
        if !self.plan.is_stored {
            return;
        }
        if let (Some(id), Some(place)) = (response_id_in(first_piece), &self.place) {
            let stored = StoredResponse { home: Home::of(place), tenant: self.plan.tenant.clone() };
            self.plan.worker.gateway.responses.insert(id.to_owned(), stored);
        }
    }

    fn read_usage(&mut self, piece: &[u8]) {
        if matches!(self.plan.flavour, Flavour::KServeV2 | Flavour::Grpc | Flavour::Raw) {
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

    /// Ready, with the reason, once the replica has been silent for too long or time is up.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        // In a call both sides may be silent in turn: only silence of both is idle.
        let sent_at = self.plan.client_half.as_ref().map(ClientHalf::last_sent);
        let idle_due = sent_at.map_or(self.last_piece_at, |sent| sent.max(self.last_piece_at));
        let idle_due = idle_due + self.plan.idle;
        let due = idle_due.min(self.plan.deadline.at());
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due.into())));
        // Pieces that came since it was set moved the due time; it is moved only when it fires.
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                let by_deadline = due < idle_due;
                return Poll::Ready(if by_deadline { End::DeadlinePassed } else { End::Stalled });
            }
            timer.as_mut().reset(due.into());
        }
        Poll::Pending
    }

    /// The replica's part is over. A gRPC reply that has not said how it ended was cut off: clients
    /// would be left to guess.
    fn finish(&mut self) {
        if self.plan.flavour == Flavour::Grpc && !self.has_status {
            self.last_words = Some(self.break_call_off(End::Cut));
        } else {
            self.complete();
        }
    }

    /// The replica's part ended as it should.
    fn complete(&mut self) {
        if let Some(events) = &mut self.events {
            self.last_words = events.finish().map(Frame::data);
        }
        let replica = self.place.as_ref().and_then(Place::replica);
        if let Some((connection, replica)) = self.connection.take().zip(replica) {
            replica.pool(self.plan.worker.id).put(connection, Instant::now());
        }
        self.close(End::Complete);
    }

    /// The replica's part ended badly: says so in the stream's own form, or breaks the client's
    /// reply off so that it can't be taken for a whole one.
    fn break_off(
        &mut self,
        end: End,
        cx: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        if self.plan.flavour == Flavour::Grpc {
            return Poll::Ready(Some(Ok(self.break_call_off(end))));
        }
        let error = ending_error(end);
        // A stream that already said its last word is complete, however its connection ends.
        if self.events.as_ref().is_some_and(Events::is_done) {
            self.close(End::Complete);
            return Poll::Ready(None);
        }
        let event = self.events.as_ref().and_then(|events| events.error_event(&error));
        self.close(end);
        match event {
            Some(event) => Poll::Ready(Some(Ok(Frame::data(event)))),
            None => {
                // An error at once would take a head along that waits to be written, and the client
                // would see a connection closed without a word.
                self.broken = Some(RelayError(error.message));
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// The trailers of a call whose replica told none.
    fn break_call_off(&mut self, end: End) -> Frame<Bytes> {
        // What the client did wrong may be what made the replica's half end.
        let fault = self.plan.client_half.as_ref().and_then(ClientHalf::fault).cloned();
        let end = if fault.is_some() { End::Answered } else { end };
        let trailers = trailers_of(&fault.unwrap_or_else(|| ending_error(end)));
        if let Some(code) = status_in(&trailers) {
            self.record_mut(|record| record.grpc_status(code));
        }
        self.close(end);
        Frame::trailers(trailers)
    }

    /// Notes how a gRPC reply ends, if this says so.
    fn note_status(&mut self, headers: &HeaderMap) {
        if self.plan.flavour == Flavour::Grpc
            && let Some(code) = status_in(headers)
        {
            self.has_status = true;
            self.record_mut(|record| record.grpc_status(code));
            if let Some(witness) = &mut self.witness {
                witness.grpc_status(code);
            }
        }
    }

    /// Frees the replica; dropping an unfinished connection aborts its request.
    pub(super) fn close(&mut self, end: End) {
        self.account();
        self.tell_witness(end);
        self.record_mut(|record| record.end(end));
        self.connection = None;
        self.plan.client_half = None;
        self.plan.resume = None;
        self.place = None;
    }

    /// What became of the replica's part.
    pub(super) fn tell_witness(&mut self, end: End) {
        let Some(witness) = &mut self.witness else { return };
        let (tokens, usage) = match &self.events {
            // Of a stream that told its usage throughout the last word may not have been said.
            Some(events) => {
                (events.tokens_of_replica(), events.usage().filter(|_| end == End::Complete))
            }
            None => {
                (self.record.as_ref().map(Record::token_counts).unwrap_or_default(), self.usage)
            }
        };
        witness.end(end, tokens, usage);
    }

    pub(super) fn account(&mut self) {
        if let Some(events) = &mut self.events {
            let (tokens, gaps) = events.account();
            self.record_mut(|record| record.tokens(tokens, gaps));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The client left: what was streamed so far still counts.
        if self.place.is_some() {
            self.account();
        }
    }
}

fn ending_error(end: End) -> GatewayError {
    let (kind, message) = match end {
        End::Stalled => (ErrorKind::StreamStalled, "the replica stopped sending"),
        End::DeadlinePassed => (
            ErrorKind::DeadlineExceeded,
            "the request's deadline passed in the middle of the reply",
        ),
        End::Complete
        | End::Answered
        | End::CancelledBeforeReply
        | End::CancelledInReply
        | End::Cut => (ErrorKind::StreamCut, "the replica broke off in the middle of the reply"),
    };
    GatewayError::new(kind, message)
}
