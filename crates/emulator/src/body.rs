//! Body of a reply, whole or as a stream of events, with the injected faults that cut or stall it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use thiserror::Error;
use tokio::time::Sleep;

use crate::answer::Answer;
use crate::driver::{DriverProgress, Generation, Lost};
use crate::fault::{Close, Fault};
use crate::ledger::{CallOutcome, Ticket};
use crate::pieces::{Pieces, StreamPiece};
use crate::replica::EmulatedReplica;
use crate::socket::SocketSwitch;

/// Pause before a reply is cut, so that the bytes sent before have left the process.
const CUT_PAUSE: Duration = Duration::from_millis(10);

/// Writer of a stream's events in the form of one API. Each item added to `events` is one event.
pub(crate) trait EventFormat: Send {
    /// Writes the events before the first token.
    fn start(&mut self, events: &mut VecDeque<Bytes>);
    /// Writes the events of token `token` of answer `index`.
    fn token(&mut self, index: usize, answer: &Answer, token: u32, events: &mut VecDeque<Bytes>);
    /// Writes the events after the last token of answer `index`.
    fn done(&mut self, index: usize, answer: &Answer, events: &mut VecDeque<Bytes>);
    /// Writes the events after the last answer; `cached_tokens` of the prompts were cached.
    fn finish(&mut self, cached_tokens: u32, events: &mut VecDeque<Bytes>);
}

/// Answer to a request, with its progress.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) generation: Generation,
    pub(crate) answer: Answer,
    /// True if the cached tokens of this answer count in the usage.
    pub(crate) tells_cached: bool,
    next_token: u32,
    is_over: bool,
}

impl Track {
    pub(crate) fn new(generation: Generation, answer: Answer, tells_cached: bool) -> Self {
        Self { generation, answer, tells_cached, next_token: 0, is_over: false }
    }
}

/// Answers in generation, as a stream of events.
pub(crate) struct EventStream {
    tracks: Vec<Track>,
    format: Box<dyn EventFormat>,
    events: VecDeque<Bytes>,
    /// Number of answers that are not complete.
    open: usize,
    /// Index of the answer that is polled first, so that all answers have their turn.
    turn: usize,
    cached_tokens: u32,
}

impl EventStream {
    pub(crate) fn new(tracks: Vec<Track>, mut format: Box<dyn EventFormat>) -> Self {
        let mut events = VecDeque::new();
        format.start(&mut events);
        let open = tracks.len();
        Self { tracks, format, events, open, turn: 0, cached_tokens: 0 }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Lost>>> {
        while self.events.is_empty() {
            if self.open == 0 {
                return Poll::Ready(None);
            }
            match ready!(self.poll_tracks(cx)) {
                Ok((index, progress)) => self.advance(index, progress),
                Err(lost) => return Poll::Ready(Some(Err(lost))),
            }
        }
        Poll::Ready(self.events.pop_front().map(Ok))
    }

    /// Polls for the next progress of any answer. Returns the index of the answer with it.
    fn poll_tracks(&mut self, cx: &mut Context<'_>) -> Poll<Result<(usize, DriverProgress), Lost>> {
        let count = self.tracks.len();
        for index in (0..count).map(|step| (self.turn + step) % count) {
            let track = &mut self.tracks[index];
            if track.is_over {
                continue;
            }
            if let Poll::Ready(progress) = track.generation.poll_progress(cx) {
                self.turn = index + 1;
                return Poll::Ready(progress.map(|progress| (index, progress)));
            }
        }
        Poll::Pending
    }

    fn advance(&mut self, index: usize, progress: DriverProgress) {
        let (track, events) = (&mut self.tracks[index], &mut self.events);
        match progress {
            DriverProgress::Token => {
                self.format.token(index, &track.answer, track.next_token, events);
                track.next_token += 1;
                return;
            }
            DriverProgress::Finished { cached_tokens } => {
                self.cached_tokens += if track.tells_cached { cached_tokens } else { 0 };
                self.format.done(index, &track.answer, events);
            }
            DriverProgress::Cancelled => {}
        }
        track.is_over = true;
        self.open -= 1;
        // A cancelled stream ends without its last events.
        if self.open == 0 && progress != DriverProgress::Cancelled {
            self.format.finish(self.cached_tokens, events);
        }
    }

    fn is_over(&self) -> bool {
        self.open == 0 && self.events.is_empty()
    }
}

/// Reason why a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BodyError {
    /// An injected fault cut the reply.
    #[error("the reply was cut on demand")]
    Cut,
    /// The replica crashed.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl From<Infallible> for BodyError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Body of a reply. Closes the request's ticket when the last byte is taken.
pub(crate) struct ReplyBody {
    source: BodySource,
    progress: Delivery,
    /// Trailers sent behind the last byte.
    trailers: Option<HeaderMap>,
    /// Request that the body answers; `None` for replies that are not counted: health, metrics,
    /// control.
    request: Option<OpenRequest>,
}

enum BodySource {
    Whole(Bytes),
    Events(Box<EventStream>),
    /// Replies of a gRPC stream; each counts as an event.
    Messages(Pieces),
}

/// State of the delivery of a reply.
enum Delivery {
    // Sending => (Cutting | Stalled | Over)
    Sending {
        events: u64,
    },
    // Cutting => Over
    Cutting {
        pause: Pin<Box<Sleep>>,
        close: Close,
    },
    /// Nothing is sent until the client disconnects.
    Stalled,
    Over,
}

/// Request that a body answers.
pub(crate) struct OpenRequest {
    pub(crate) replica: Arc<EmulatedReplica>,
    pub(crate) socket: SocketSwitch,
    pub(crate) ticket: Ticket,
    /// Outcome of the request once the body is sent.
    pub(crate) outcome: CallOutcome,
}

impl ReplyBody {
    /// Creates a body with all bytes at once.
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::new(BodySource::Whole(bytes.into()))
    }

    /// Creates a body of events, sent as they are made.
    pub(crate) fn events(stream: EventStream) -> Self {
        Self::new(BodySource::Events(Box::new(stream)))
    }

    /// Creates a body of gRPC messages, sent as they are made, with trailers at the end.
    pub(crate) fn messages(pieces: Pieces) -> Self {
        Self::new(BodySource::Messages(pieces))
    }

    /// Adds trailers behind the last byte.
    pub(crate) fn with_trailers(self, trailers: HeaderMap) -> Self {
        Self { trailers: Some(trailers), ..self }
    }

    /// Ties the body to the request that it answers.
    pub(crate) fn answering(mut self, request: OpenRequest) -> Self {
        // hyper never polls an empty body, so the ticket has to be closed here.
        if matches!(&self.source, BodySource::Whole(bytes) if bytes.is_empty()) {
            request.ticket.close(request.outcome);
            return self;
        }
        self.request = Some(request);
        self
    }

    fn new(source: BodySource) -> Self {
        Self { source, progress: Delivery::Sending { events: 0 }, trailers: None, request: None }
    }

    /// Returns the state that a fault puts the reply into after `events` events; `None` without a
    /// fault. A whole body counts as a stream that has sent enough once half of it is sent.
    fn strike(&self, events: u64) -> Option<Delivery> {
        let request = self.request.as_ref()?;
        let due = |after: u64| match &self.source {
            BodySource::Whole(_) => events > 0,
            BodySource::Events(_) | BodySource::Messages(_) => events >= after,
        };
        match request.replica.fault() {
            Fault::Cut { after_events, close } if due(after_events) => {
                let pause = Box::pin(tokio::time::sleep(CUT_PAUSE));
                Some(Delivery::Cutting { pause, close })
            }
            Fault::Stall { after_events } if due(after_events) => Some(Delivery::Stalled),
            _ => None,
        }
    }

    /// Returns true if a whole body must be sent in two halves, for a fault to strike between them.
    fn must_halve(&self, events: u64) -> bool {
        let fault = self.request.as_ref().map(|request| request.replica.fault());
        events == 0 && matches!(fault, Some(Fault::Cut { .. } | Fault::Stall { .. }))
    }

    fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        events: u64,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let halve = self.must_halve(events);
        match &mut self.source {
            BodySource::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodySource::Whole(bytes) => {
                let length = if halve { bytes.len() / 2 } else { bytes.len() };
                Poll::Ready(Some(Ok(bytes.split_to(length))))
            }
            BodySource::Events(stream) => {
                stream.poll_event(cx).map(|event| event.map(|bytes| bytes.map_err(BodyError::from)))
            }
            BodySource::Messages(pieces) => match ready!(pieces.receiver.poll_recv(cx)) {
                Some(StreamPiece::Message(message)) => Poll::Ready(Some(Ok(message))),
                Some(StreamPiece::End(trailers)) => {
                    self.trailers = Some(trailers);
                    Poll::Ready(None)
                }
                // The task ended without trailers, so it was broken off.
                None => Poll::Ready(Some(Err(BodyError::Lost(Lost)))),
            },
        }
    }

    /// Returns true if the last byte is sent and no trailers follow.
    fn is_over(&self) -> bool {
        match &self.source {
            BodySource::Whole(bytes) => bytes.is_empty() && self.trailers.is_none(),
            BodySource::Events(stream) => stream.is_over(),
            // Trailers always follow.
            BodySource::Messages(_) => false,
        }
    }

    fn close(&mut self) {
        self.progress = Delivery::Over;
        if let Some(request) = self.request.take() {
            request.ticket.close(request.outcome);
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            match &mut this.progress {
                Delivery::Sending { events } => {
                    let events = *events;
                    if let Some(struck) = this.strike(events) {
                        this.progress = struck;
                        continue;
                    }
                    let bytes = ready!(this.poll_bytes(cx, events));
                    if bytes.is_none()
                        && let Some(trailers) = this.trailers.take()
                    {
                        this.close();
                        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                    this.progress = Delivery::Sending { events: events + 1 };
                    // Closed with the last bytes, not after them: hyper may not poll again.
                    if this.is_over() && !matches!(bytes, Some(Err(_))) {
                        this.close();
                    }
                    return Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)));
                }
                Delivery::Cutting { pause, close } => {
                    ready!(pause.as_mut().poll(cx));
                    if let Some(request) = this.request.take() {
                        // The ticket is dropped without an outcome, so the request counts as
                        // aborted.
                        request.socket.close(*close);
                    }
                    this.progress = Delivery::Over;
                    return Poll::Ready(Some(Err(BodyError::Cut)));
                }
                Delivery::Stalled => return Poll::Pending,
                Delivery::Over => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = matches!(self.progress, Delivery::Over);
        // hyper does not poll a body that has ended, and the ticket of its request would stay open.
        (has_ended || self.is_over()) && self.request.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Whole(bytes) if self.trailers.is_none() => {
                SizeHint::with_exact(bytes.len() as u64)
            }
            BodySource::Whole(_) | BodySource::Events(_) | BodySource::Messages(_) => {
                SizeHint::default()
            }
        }
    }
}
