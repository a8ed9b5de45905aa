//! Stream of gRPC messages that goes straight from the client's connection to a replica's.
//!
//! Unlike other bodies it may be silent for as long as the call lives, since the client may wait
//! for replies in between. The length limit applies to each message, not to the whole.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use spillway_protocol::GatewayError;
use spillway_protocol::grpc::Messages;
use spillway_transport::{PaceTimer, WireBody};
use tokio::sync::oneshot;

use crate::streamed_body::{StreamedBodyError, UploadProgress};

/// Client's half of a call, as a request body.
#[derive(Debug)]
pub struct MessageBody {
    incoming: WireBody,
    has_ended: bool,
    messages: Messages,
    /// Pace within messages.
    pace: PaceTimer,
    started: std::time::Instant,
    sent_ms: Arc<AtomicU64>,
    upload: Arc<UploadProgress>,
    leash: oneshot::Receiver<Infallible>,
}

/// Handle of the rest of the call on the client's half. Dropping it ends that half: a replica whose
/// reply is no longer read must not go on waiting for messages.
#[derive(Debug)]
pub struct ClientHalf {
    started: std::time::Instant,
    /// Time at which the last piece was sent, in milliseconds after `started`.
    sent_ms: Arc<AtomicU64>,
    upload: Arc<UploadProgress>,
    _leash: oneshot::Sender<Infallible>,
}

impl MessageBody {
    /// Returns the body and its handle. `messages` already has the bytes read of `incoming` so far.
    /// A message may pause for `pause_max`.
    pub fn new(incoming: WireBody, messages: Messages, pause_max: Duration) -> (Self, ClientHalf) {
        let (holder, leash) = oneshot::channel();
        let started = std::time::Instant::now();
        let upload = Arc::<UploadProgress>::default();
        let sent_ms = Arc::new(AtomicU64::new(0));
        let half = ClientHalf {
            started,
            sent_ms: Arc::clone(&sent_ms),
            upload: Arc::clone(&upload),
            _leash: holder,
        };
        let body = Self {
            incoming,
            has_ended: false,
            messages,
            pace: PaceTimer::new(pause_max),
            started,
            sent_ms,
            upload,
            leash,
        };
        (body, half)
    }

    /// Returns true if nothing more comes.
    pub fn is_end_stream(&self) -> bool {
        !self.messages.has_more() && (self.has_ended || self.incoming.is_end_stream())
    }

    /// Polls the next frame, which holds whole messages.
    ///
    /// # Errors
    /// Returns an error if the client's part is broken or too slow.
    pub fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        // No value is ever sent, so a ready leash means that the handle is gone.
        if Pin::new(&mut self.leash).poll(cx).is_ready() {
            return Poll::Ready(Some(Err(StreamedBodyError::abandoned())));
        }
        loop {
            if let Some(piece) = self.messages.pop() {
                self.note_sent();
                self.upload.note_bytes(piece.len());
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            let Poll::Ready(next) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                // Between messages the client may wait for replies.
                if !self.messages.is_within_message() {
                    return Poll::Pending;
                }
                return match self.pace.poll_late(cx) {
                    Poll::Ready(error) => Poll::Ready(Some(Err(self.refuse(error)))),
                    Poll::Pending => Poll::Pending,
                };
            };
            // gRPC has no trailers in this direction.
            match next.transpose()?.map(Frame::into_data) {
                Some(Ok(piece)) => {
                    self.pace.came(piece.len());
                    if let Err(fault) = self.messages.push(piece) {
                        return Poll::Ready(Some(Err(self.refuse(fault.into()))));
                    }
                }
                Some(Err(_)) => {}
                None => self.has_ended = true,
            }
        }
    }

    fn note_sent(&self) {
        let passed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.sent_ms.store(passed_ms, Ordering::Relaxed);
    }

    fn refuse(&self, error: GatewayError) -> StreamedBodyError {
        self.upload.note_fault(error);
        StreamedBodyError::abandoned()
    }
}

impl ClientHalf {
    /// Returns the client's fault, if any.
    pub fn fault(&self) -> Option<&GatewayError> {
        self.upload.fault()
    }

    /// Returns the progress of the client's half.
    pub(crate) fn upload(&self) -> &Arc<UploadProgress> {
        &self.upload
    }

    /// Returns the time at which the last piece was sent.
    pub fn last_sent(&self) -> std::time::Instant {
        self.started + Duration::from_millis(self.sent_ms.load(Ordering::Relaxed))
    }
}
