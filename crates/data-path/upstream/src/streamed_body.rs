//! Body that goes straight from the client's connection to a replica's, within limits.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spillway_protocol::{GatewayError, V2Look};
use spillway_transport::{
    DISCARD_TIME_MAX, DISCARDED_BYTES_MAX, Limits, PaceTimer, WireBody, WireError, refuse_oversize,
};

/// Progress of a body that is sent while it arrives, as the rest of the request sees it.
#[derive(Debug, Default)]
pub struct UploadProgress {
    /// Fault of the client's part, reported separately: hyper reduces the body's own error to an
    /// HTTP/2 reset.
    fault: OnceLock<GatewayError>,
    bytes: AtomicU64,
}

impl UploadProgress {
    /// Returns the client's fault, if any so far.
    pub fn fault(&self) -> Option<&GatewayError> {
        self.fault.get()
    }

    /// Returns the bytes that have passed so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_fault(&self, fault: GatewayError) {
        // The first fault ends the body, so there is never a second.
        drop(self.fault.set(fault));
    }
}

/// A client's body that is sent while it arrives.
#[derive(Debug)]
pub struct StreamedBody {
    upload: Arc<Mutex<Upload>>,
    bytes: u64,
    bytes_max: u64,
    watch: Option<V2Look>,
    pace: PaceTimer,
    /// Error of a refused body: the rest is discarded, within limits, so that the client can read
    /// the error.
    refused: Option<GatewayError>,
    progress: Arc<UploadProgress>,
}

/// Incoming part of a streamed body, shared with the reply.
#[derive(Debug)]
struct Upload {
    incoming: WireBody,
    /// True once the reply has ended: the rest of the body is not sent any more.
    is_abandoned: bool,
    /// Task that sends the body, while it waits for the client.
    sender: Option<Waker>,
}

/// Reply's hold on the upload of its request. Dropping it ends the upload: the body is released
/// even if its sender waits for the replica, so that the client's connection can end.
#[derive(Debug)]
pub struct UploadHold(Option<Arc<Mutex<Upload>>>);

impl UploadHold {
    /// Lets go of the upload without ending it: its request is sent again.
    pub(crate) fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for UploadHold {
    fn drop(&mut self) {
        let Some(upload) = self.0.take() else { return };
        let mut upload = locked(&upload);
        upload.is_abandoned = true;
        let (rest, sender) = (upload.incoming.take(), upload.sender.take());
        drop(upload);
        // Both may run code of others, which must not happen under the lock.
        drop(rest);
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

fn locked(upload: &Mutex<Upload>) -> MutexGuard<'_, Upload> {
    upload.lock().unwrap_or_else(PoisonError::into_inner)
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
        let upload = Upload { incoming, is_abandoned: false, sender: None };
        Self {
            upload: Arc::new(Mutex::new(upload)),
            bytes: 0,
            bytes_max: limits.body_bytes_max,
            watch,
            pace: PaceTimer::new(limits.stall_timeout_ms.duration()),
            refused: None,
            progress: Arc::default(),
        }
    }

    pub(crate) fn progress(&self) -> &Arc<UploadProgress> {
        &self.progress
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let upload = locked(&self.upload);
        !upload.is_abandoned && upload.incoming.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        locked(&self.upload).incoming.size_hint()
    }

    /// Returns the reply's hold on the upload.
    pub(crate) fn hold(&self) -> UploadHold {
        UploadHold(Some(Arc::clone(&self.upload)))
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        loop {
            let Poll::Ready(next) = self.poll_incoming(cx) else {
                let Poll::Ready(late) = self.pace.poll_late(cx) else { return Poll::Pending };
                let error = self.refused.take().unwrap_or(late);
                return Poll::Ready(Some(Err(self.refuse(error))));
            };
            if let Some(error) = self.refused.take() {
                match next {
                    Some(Ok(frame)) if self.may_discard(&frame) => self.refused = Some(error),
                    // The client has finished, broken off, or sent too much more: it gets the error
                    // now.
                    _ => return Poll::Ready(Some(Err(StreamedBodyError::Refused(error)))),
                }
                continue;
            }
            let Some(frame) = next.transpose()? else { return Poll::Ready(None) };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.pace.came(bytes);
            self.bytes += bytes as u64;
            match refuse_oversize(self.bytes, self.bytes_max).and_then(|()| self.look(&frame)) {
                Ok(()) => {
                    self.progress.note_bytes(bytes);
                    return Poll::Ready(Some(Ok(frame)));
                }
                Err(error) => self.start_discarding(error),
            }
        }
    }

    fn poll_incoming(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        let mut upload = locked(&self.upload);
        if upload.is_abandoned {
            return Poll::Ready(Some(Err(StreamedBodyError::abandoned())));
        }
        let polled = Pin::new(&mut upload.incoming).poll_frame(cx);
        if polled.is_pending() {
            let sender = upload.sender.get_or_insert_with(|| cx.waker().clone());
            sender.clone_from(cx.waker());
        }
        polled.map(|next| next.map(|frame| Ok(frame?)))
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
        // The arrival of the rest is not noted, so this time limits all of it.
        self.pace = PaceTimer::new(DISCARD_TIME_MAX);
    }

    fn may_discard(&mut self, frame: &Frame<Bytes>) -> bool {
        self.bytes += frame.data_ref().map_or(0, |piece| piece.len() as u64);
        self.bytes <= self.bytes_max.saturating_add(DISCARDED_BYTES_MAX)
    }

    fn refuse(&self, error: GatewayError) -> StreamedBodyError {
        self.progress.note_fault(error.clone());
        StreamedBodyError::Refused(error)
    }
}
