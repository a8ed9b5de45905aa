//! Body lent to an attempt that may be refused before it is read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::body::OutboundBody;
use crate::streamed_body::StreamedBodyError;

/// Place where a lent body comes back. Locked once by either side, and never contended.
pub(crate) type Lender = Arc<Mutex<Option<OutboundBody>>>;

/// Body that comes back if it is dropped unread.
#[derive(Debug)]
pub struct LentBody {
    body: Option<OutboundBody>,
    lender: Lender,
    is_read: bool,
}

impl LentBody {
    /// Lends `body`, and returns the place where it may come back.
    pub fn new(body: OutboundBody) -> (Self, Lender) {
        let lender = Lender::default();
        (Self { body: Some(body), lender: Arc::clone(&lender), is_read: false }, lender)
    }
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = StreamedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let next = Pin::new(body).poll_frame(cx);
        self.is_read |= next.is_ready();
        next
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if !self.is_read {
            let mut lender = self.lender.lock().unwrap_or_else(PoisonError::into_inner);
            *lender = self.body.take();
        }
    }
}
