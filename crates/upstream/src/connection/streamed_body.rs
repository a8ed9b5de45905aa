//! Body that goes straight from the client's connection to a replica's, within limits.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spillway_protocol::{GatewayError, V2Look};
use tokio::time::{Instant, Sleep, sleep};

use crate::body_limits::{DISCARD_TIME_MAX, DISCARDED_BYTES_MAX, refuse_oversize, too_slow};
use crate::settings::Limits;
use crate::wire_body::{WireBody, WireError};

/// Fault of the client's part, told separately: HTTP/2 reduces the body's own error to a reset on
/// its way through hyper.
pub(crate) type BodyFault = Arc<OnceLock<GatewayError>>;

/// A client's body that is sent while it arrives.
#[derive(Debug)]
pub struct StreamedBody {
    incoming: WireBody,
    bytes: u64,
    bytes_max: u64,
    watch: Option<V2Look>,
    pause_max: Duration,
    /// Timer; made at the first pause, since a complete body never needs it.
    pause: Option<Pin<Box<Sleep>>>,
    is_pausing: bool,
    /// Error of a refused body: the rest is discarded, within limits, so that the client can read
    /// the error.
    refused: Option<GatewayError>,
    fault: BodyFault,
}

/// Error of a client's body that is sent while it arrives.
#[derive(Debug, thiserror::Error)]
pub enum StreamedBodyError {
    /// The body is too long or too slow.
    #[error(transparent)]
    Refused(GatewayError),
    /// The connection or link of the body failed.
    #[error(transparent)]
    Broken(#[from] WireError),
    /// The reply is no longer wanted. Carries the code that the stream is reset with.
    #[error("the call was given up")]
    Abandoned(#[source] h2::Error),
}

impl StreamedBodyError {
    pub(crate) fn abandoned() -> Self {
        Self::Abandoned(h2::Reason::CANCEL.into())
    }
}

impl StreamedBody {
    pub(crate) fn new(incoming: WireBody, limits: &Limits, watch: Option<V2Look>) -> Self {
        Self {
            incoming,
            bytes: 0,
            bytes_max: limits.body_bytes_max,
            watch,
            pause_max: limits.body_timeout,
            pause: None,
            is_pausing: false,
            refused: None,
            fault: BodyFault::default(),
        }
    }

    pub(crate) fn fault(&self) -> BodyFault {
        Arc::clone(&self.fault)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        loop {
            let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                let Poll::Ready(late) = self.poll_pause(cx) else { return Poll::Pending };
                let error = self.refused.take().unwrap_or(late);
                return Poll::Ready(Some(Err(self.refuse(error))));
            };
            if let Some(error) = self.refused.take() {
                match next {
                    Some(Ok(frame)) if self.may_discard(&frame) => self.refused = Some(error),
                    // The client has finished, broken off, or sent too much more: it is told now.
                    _ => return Poll::Ready(Some(Err(StreamedBodyError::Refused(error)))),
                }
                continue;
            }
            self.is_pausing = false;
            let Some(frame) = next.transpose()? else { return Poll::Ready(None) };
            self.bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
            match refuse_oversize(self.bytes, self.bytes_max).and_then(|()| self.look(&frame)) {
                Ok(()) => return Poll::Ready(Some(Ok(frame))),
                Err(error) => self.start_discarding(error),
            }
        }
    }

    fn look(&mut self, frame: &Frame<Bytes>) -> Result<(), GatewayError> {
        match (&mut self.watch, frame.data_ref()) {
            (Some(watch), Some(piece)) => watch.look(piece),
            _ => Ok(()),
        }
    }

    fn start_discarding(&mut self, error: GatewayError) {
        drop(self.refuse(error.clone()));
        self.refused = Some(error);
        // One pause for the whole rest.
        self.pause = Some(Box::pin(sleep(DISCARD_TIME_MAX)));
        self.is_pausing = true;
    }

    fn may_discard(&mut self, frame: &Frame<Bytes>) -> bool {
        self.bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
        self.bytes <= self.bytes_max.saturating_add(DISCARDED_BYTES_MAX)
    }

    /// Returns ready once the client has sent nothing for too long.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<GatewayError> {
        let pause_max = self.pause_max;
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(pause_max)));
        if !self.is_pausing {
            self.is_pausing = true;
            pause.as_mut().reset(Instant::now() + pause_max);
        }
        pause.as_mut().poll(cx).map(|()| too_slow(pause_max))
    }

    fn refuse(&self, error: GatewayError) -> StreamedBodyError {
        // The first fault ends the body, so there is never a second.
        drop(self.fault.set(error.clone()));
        StreamedBodyError::Refused(error)
    }
}
