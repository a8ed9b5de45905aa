//! Body of a reply, whole or as a stream of events, with the injected faults that cut or stall it.

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

use crate::driver::Lost;
use crate::event_stream::EventStream;
use crate::fault::{Close, DeathSign, Fault};
use crate::ledger::{CallOutcome, Ticket};
use crate::pieces::{Pieces, StreamPiece};
use crate::replica::EmulatedReplica;
use crate::socket::SocketSwitch;
use crate::wire::{Cutter, EventCompressor, compress};

/// Pause before a reply is cut, so that the bytes sent before have left the process.
const CUT_PAUSE: Duration = Duration::from_millis(10);
/// Time between the error of a dying replica and its crash, so that the error has left the process.
pub(crate) const DEATH_PAUSE: Duration = Duration::from_millis(50);

/// Reason why a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum BodyError {
    /// An injected fault cut the reply.
    #[error("the reply was cut on demand")]
    Cut,
    /// The replica crashed.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// An event could not be compressed.
    #[error("the reply could not be compressed")]
    Compression,
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
    /// Trailers sent after the last byte.
    trailers: Option<HeaderMap>,
    /// Compressor of a stream; `None` if it is sent as it is.
    compressor: Option<EventCompressor>,
    /// Cutter of the bytes that are sent; `None` if they are sent as they are made.
    cutter: Option<Cutter>,
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
    // Sending => (Ending | Cutting | Stalled | Over)
    Sending {
        events: u64,
    },
    /// A fault has written the end of the stream, which no further fault changes.
    // Ending => Over
    Ending,
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
    /// True if the request kills a replica whose fault is `Die`.
    pub(crate) is_poisoned: bool,
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

    /// Adds trailers after the last byte.
    pub(crate) fn with_trailers(self, trailers: HeaderMap) -> Self {
        Self { trailers: Some(trailers), ..self }
    }

    /// Returns true if the body is no stream.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.source, BodySource::Whole(_))
    }

    /// Compresses the body with gzip. Returns false if it stays as it is, because it is empty or a
    /// gRPC stream.
    pub(crate) fn compress(&mut self) -> bool {
        match &mut self.source {
            BodySource::Whole(bytes) if bytes.is_empty() => return false,
            BodySource::Whole(bytes) => match compress(bytes) {
                Ok(compressed) => *bytes = compressed,
                Err(_) => return false,
            },
            BodySource::Events(_) => self.compressor = Some(EventCompressor::new()),
            BodySource::Messages(_) => return false,
        }
        true
    }

    /// Cuts the body at random positions from now on.
    pub(crate) fn cut(&mut self, seed: u64) {
        self.cutter = match &self.source {
            BodySource::Whole(_) => Some(Cutter::of_whole(seed)),
            BodySource::Events(_) => Some(Cutter::of_stream(seed)),
            BodySource::Messages(_) => None,
        };
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
        let progress = Delivery::Sending { events: 0 };
        Self { source, progress, trailers: None, compressor: None, cutter: None, request: None }
    }

    /// Returns the state that a fault puts the reply into after `events` events; `None` without a
    /// fault. A whole body counts as a stream that has sent enough once half of it is sent.
    fn strike(&mut self, events: u64) -> Option<Delivery> {
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
            fault => self.strike_stream(fault, events),
        }
    }

    /// Returns the state after a fault that writes an end of its own; `None` if there is none, or
    /// if the reply is no stream of events.
    fn strike_stream(&mut self, fault: Fault, events: u64) -> Option<Delivery> {
        let request = self.request.as_ref()?;
        let BodySource::Events(stream) = &mut self.source else { return None };
        if !stream.is_between_tokens() {
            return None;
        }
        match fault {
            Fault::Die { after_events, with, only_poisoned }
                if events >= after_events && (request.is_poisoned || !only_poisoned) =>
            {
                request.ticket.note_early_end();
                if with == DeathSign::Silence {
                    request.replica.die_later(Duration::ZERO);
                    return Some(Delivery::Stalled);
                }
                request.replica.die_later(DEATH_PAUSE);
                stream.fail();
            }
            fault => {
                stream.end_early(fault.early_end(events)?);
                request.ticket.note_early_end();
            }
        }
        Some(Delivery::Ending)
    }

    /// Returns true if a whole body must be sent in two halves, for a fault to strike between them.
    fn must_halve(&self, events: u64) -> bool {
        let fault = self.request.as_ref().map(|request| request.replica.fault());
        events == 0 && matches!(fault, Some(Fault::Cut { .. } | Fault::Stall { .. }))
    }

    /// Polls for the next bytes to send, cut into pieces if that is asked for.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if let Some(cutter) = &mut self.cutter {
            ready!(cutter.poll_rest(cx));
        }
        loop {
            if let Some(cutter) = &mut self.cutter
                && cutter.is_due()
            {
                return Poll::Ready(cutter.take().map(Ok));
            }
            let polled = self.poll_source(cx);
            let Some(cutter) = &mut self.cutter else { return polled };
            match polled {
                Poll::Ready(Some(Ok(bytes))) => cutter.push(&bytes),
                // Nothing more is ready, so the rest goes out.
                Poll::Ready(_) | Poll::Pending => match cutter.take() {
                    Some(piece) => return Poll::Ready(Some(Ok(piece))),
                    None => return polled,
                },
            }
        }
    }

    /// Polls for the next bytes of the source, unless a fault holds them back.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            match &mut self.progress {
                Delivery::Sending { events } => {
                    let events = *events;
                    if let Some(struck) = self.strike(events) {
                        self.progress = struck;
                        continue;
                    }
                    let bytes = ready!(self.poll_bytes(cx, events));
                    self.progress = Delivery::Sending { events: events + 1 };
                    return Poll::Ready(bytes);
                }
                Delivery::Ending => return self.poll_bytes(cx, 0),
                Delivery::Cutting { pause, close } => {
                    ready!(pause.as_mut().poll(cx));
                    if let Some(request) = self.request.take() {
                        // The ticket is dropped without an outcome, so the request counts as
                        // aborted.
                        request.socket.close(*close);
                    }
                    self.progress = Delivery::Over;
                    return Poll::Ready(Some(Err(BodyError::Cut)));
                }
                Delivery::Stalled => return Poll::Pending,
                Delivery::Over => return Poll::Ready(None),
            }
        }
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
                let event = ready!(stream.poll_event(cx)).transpose()?;
                if let (Some(request), Some(_)) = (&self.request, &event) {
                    request.ticket.note_usage(stream.usage());
                }
                let Some(compressor) = &mut self.compressor else {
                    return Poll::Ready(event.map(Ok));
                };
                let bytes = match &event {
                    Some(event) => compressor.compress(event, stream.is_over()),
                    None => compressor.finish(),
                };
                let bytes = bytes.map_err(|_| BodyError::Compression)?;
                Poll::Ready((event.is_some() || !bytes.is_empty()).then_some(Ok(bytes)))
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
        if self.cutter.as_ref().is_some_and(|cutter| cutter.bytes() > 0) {
            return false;
        }
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
        let bytes = ready!(this.poll_piece(cx));
        if bytes.is_none()
            && let Some(trailers) = this.trailers.take()
        {
            this.close();
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        // Closed with the last bytes, not after them: hyper may not poll again.
        if this.is_over() && !matches!(bytes, Some(Err(_))) {
            this.close();
        }
        Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = matches!(self.progress, Delivery::Over);
        // hyper does not poll a body that has ended, and the ticket of its request would stay open.
        (has_ended || self.is_over()) && self.request.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Whole(bytes) if self.trailers.is_none() => {
                let held = self.cutter.as_ref().map_or(0, Cutter::bytes);
                SizeHint::with_exact((bytes.len() + held) as u64)
            }
            BodySource::Whole(_) | BodySource::Events(_) | BodySource::Messages(_) => {
                SizeHint::default()
            }
        }
    }
}
