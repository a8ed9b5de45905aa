//! Relays a replica's reply to the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::header;
use http::response::Parts;
use http_body::{Body, Frame, SizeHint};
use spillway_front::client::PieceOut;
use spillway_journey::{
    FailureForm, PartEnd, PieceKind, Reply, ReplyAction, ReplyEvent, ReplyRules, SourceSight,
    SourceState,
};
use spillway_protocol::CODE_HEADER;
use spillway_request::headers::clean_trailers;
use spillway_transport::coarse_clock;
use spillway_types::DownCause;
use spillway_upstream::{ClientHalf, UpstreamBody};
use spillway_view::HeldSlot;
use tokio::time::{Sleep, sleep_until};

use crate::relay::backpressure::Behind;
use crate::relay::content::Content;
use crate::relay::relay_plan::RelayPlan;
use crate::request::{AttemptObserver, PendingContinuation, RequestRecord};

/// Replica's end of a reply.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) body: UpstreamBody,
    /// Target at the replica or region, held until the reply ends.
    pub(crate) target: HeldSlot,
    /// Judges the replica by its reply; `None` for other regions.
    pub(crate) observer: Option<AttemptObserver>,
}

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

/// Relay of one reply: drives the reply's state machine with its body, its timer and its client.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(super) plan: RelayPlan,
    /// State machine that decides what follows each piece, failure and silence.
    pub(super) reply: Reply,
    /// Source of the reply; `None` once its part is over. Dropping it aborts the request there.
    pub(super) upstream: Option<Upstream>,
    /// Record of the request; lent to `seeking` while another target is looked for.
    pub(super) record: Option<RequestRecord>,
    /// Search for a target that continues the stream.
    pub(super) seeking: Option<PendingContinuation>,
    pub(super) content: Content,
    /// Piece of the gateway's own that goes out next: last events, trailers, keep-alive.
    pub(super) own_piece: Option<Frame<Bytes>>,
    /// Error that breaks off the reply, once the bytes handed over before it have been sent.
    pub(super) broken: Option<Broken>,
    /// Lag of the client.
    pub(super) behind: Behind,
    /// Timer; made at the first wait, since a short reply never needs it.
    timer: Option<Pin<Box<Sleep>>>,
    /// The last piece, until the next is asked for.
    piece_out: Option<PieceOut>,
}

impl Relay {
    /// Takes over a reply whose head is about to be sent, and corrects that head where the body
    /// will differ.
    pub(crate) fn new(
        mut plan: RelayPlan,
        head: &mut Parts,
        upstream: Upstream,
        record: RequestRecord,
    ) -> Self {
        let content = Content::of(head, &mut plan);
        if matches!(content, Content::Events(_)) {
            // An error event may have to be added at the end.
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let rules = ReplyRules {
            form: content.form(),
            first_byte: plan.first_byte,
            idle: plan.idle,
            deadline: plan.deadline.at(),
            keep_alive: plan.keep_alive,
        };
        let (asked_at, is_continuable) = (plan.asked_at, plan.resume.is_some());
        let (source, now) = (upstream.target.source(), coarse_clock::now());
        let mut relay = Self {
            reply: Reply::new(rules, source, is_continuable, asked_at, now),
            plan,
            upstream: Some(upstream),
            record: Some(record),
            seeking: None,
            content,
            own_piece: None,
            broken: None,
            behind: Behind::default(),
            timer: None,
            piece_out: None,
        };
        relay.note_status(&head.headers);
        // A reply without a body is complete at once.
        if relay.upstream.as_ref().is_some_and(|upstream| upstream.body.is_end_stream()) {
            relay.part_ended();
        }
        relay
    }

    /// Returns true if everything was handed over.
    pub(crate) fn has_ended(&self) -> bool {
        let is_over = !self.is_served() && self.behind.has_all();
        is_over && self.own_piece.is_none() && self.broken.is_none() && !self.content.has_more()
    }

    /// Returns true if more is to come from the replica or region.
    pub(super) fn is_served(&self) -> bool {
        self.upstream.is_some() || self.seeking.is_some()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        // The gateway may have to end such a reply itself, so its length is unknown.
        match (&self.upstream, self.content.form()) {
            (Some(upstream), FailureForm::Bytes) => upstream.body.size_hint(),
            (None, FailureForm::Bytes) => SizeHint::with_exact(0),
            (_, FailureForm::Events | FailureForm::Call) => SizeHint::default(),
        }
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
        self.report(ReplyEvent::Passed);
        self.piece_out = self.record.as_ref().map(RequestRecord::hand_over);
        Poll::Ready(Some(Ok(frame)))
    }

    /// Returns the next piece after all that was read before; `None` at the end, even a bad one.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if self.reply.is_client_behind() {
            self.report(ReplyEvent::ClientCaughtUp);
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
            if let Some(piece) = self.content.pop() {
                return Poll::Ready(Some(Frame::data(piece)));
            }
            if let Some(piece) = self.own_piece.take() {
                return Poll::Ready(Some(piece));
            }
            if let Some(seeking) = &mut self.seeking {
                match seeking.poll(cx) {
                    Poll::Ready(found) => self.found(found),
                    Poll::Pending => ready!(self.poll_timer(cx)),
                }
                continue;
            }
            let Some(upstream) = &mut self.upstream else { return Poll::Ready(None) };
            let Poll::Ready(next) = Pin::new(&mut upstream.body).poll_frame(cx) else {
                ready!(self.poll_timer(cx));
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
                    self.report(ReplyEvent::Broke);
                }
                None => self.part_ended(),
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

    /// Reports an input to the state machine, and carries out what follows.
    pub(super) fn report(&mut self, event: ReplyEvent) {
        self.report_at(event, coarse_clock::now());
    }

    fn report_at(&mut self, event: ReplyEvent, now: Instant) {
        let action = self.reply.on(event, now);
        if action != ReplyAction::Proceed {
            self.carry_out(action);
        }
    }

    /// Takes a frame from the source; `None` if its bytes come out through `content`.
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
                self.report(ReplyEvent::Ended(PartEnd::Whole));
                return Some(trailers);
            }
        };
        let now = coarse_clock::now();
        // A reply that reports no usage is estimated by its length.
        self.record_mut(|record| record.reply_bytes(piece.len()));
        let is_last = self.upstream.as_ref().is_some_and(|upstream| upstream.body.is_end_stream());
        let (passed, kind) = self.content.take(piece, now, self.plan.hasher.as_deref_mut());
        let is_answer = kind != PieceKind::NoContent;
        if let Some(observer) = self.observer() {
            observer.piece(is_answer, now);
        }
        if is_answer && self.record.as_ref().is_some_and(|record| !record.has_first_byte()) {
            self.record_mut(|record| record.first_byte(now));
        }
        self.report_at(ReplyEvent::Piece(kind), now);
        self.note_facts();
        match self.content.fault() {
            Some(fault) => self.report(fault),
            // The end is known already, so the replica's target need not wait until the client asks
            // for more.
            None if is_last => self.part_ended(),
            None => {}
        }
        passed.map(Frame::data)
    }

    /// Reports that the source ended its part in good order.
    fn part_ended(&mut self) {
        let end = self.content.part_end();
        self.report(ReplyEvent::Ended(end));
    }

    pub(super) fn record_mut(&mut self, edit: impl FnOnce(&mut RequestRecord)) {
        if let Some(record) = &mut self.record {
            edit(record);
        }
    }

    pub(super) fn observer(&mut self) -> Option<&mut AttemptObserver> {
        self.upstream.as_mut()?.observer.as_mut()
    }

    /// Waits for the next moment at which the state machine judges the source. Ready when an action
    /// was carried out.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let client_sent = self.plan.client_half.as_ref().map(ClientHalf::last_sent);
            let Some(wake_at) = self.reply.wake_at(client_sent) else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(wake_at.into())));
            // Pieces move the moment on; the timer is moved only when it fires or is too late.
            if timer.deadline().into_std() > wake_at {
                timer.as_mut().reset(wake_at.into());
            }
            if timer.as_mut().poll(cx).is_pending() {
                self.report(ReplyEvent::Asked);
                return Poll::Pending;
            }
            let now = coarse_clock::now();
            if now < wake_at {
                timer.as_mut().reset(wake_at.into());
                continue;
            }
            let sight = SourceSight { state: self.source_state(now), client_sent };
            let action = self.reply.on_time(sight, now);
            if action != ReplyAction::Proceed {
                self.carry_out(action);
                return Poll::Ready(());
            }
            // It has fired, and cannot be polled before it is set again.
            self.timer = None;
        }
    }

    /// Returns the state of the target that serves the reply.
    fn source_state(&self, now: Instant) -> SourceState {
        let gateway = &self.plan.worker.gateway;
        let is_leaving = match self.upstream.as_ref().map(|upstream| &upstream.target) {
            None => false,
            Some(HeldSlot::Replica(lease)) => {
                let replica = lease.replica();
                match replica.lost(self.reply.asked_at(), now) {
                    Some(DownCause::Failure) => return SourceState::Down,
                    Some(DownCause::Silence) if self.may_move() => return SourceState::Silent,
                    _ => {}
                }
                replica.is_leaving() || gateway.routing.regions().is_evacuated
            }
            Some(HeldSlot::Region(target)) => {
                let regions = gateway.routing.regions();
                if !regions.is_reachable(&target.region) {
                    return SourceState::OutOfReach;
                }
                if gateway.routing.remote().is_some_and(|remote| !remote.is_alive(&target.node)) {
                    return SourceState::Disconnected;
                }
                regions.is_leaving(&target.region)
            }
        };
        if is_leaving && self.may_move() { SourceState::Leaving } else { SourceState::Well }
    }

    /// Stops reading from the source until the next [`Relay::poll_piece`]. Ready once the request's
    /// time is up.
    pub(super) fn poll_paused(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.report(ReplyEvent::ClientBehind);
        self.poll_timer(cx)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The client left: the tokens streamed so far still count.
        if self.upstream.is_some() {
            self.account();
        }
        if !self.behind.has_all() {
            self.record_mut(RequestRecord::left_behind);
        }
    }
}
