//! Body that can be sent a second time, as long as little of it was sent.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use crate::body::OutboundBody;
use crate::streamed_body::StreamedBodyError;

/// Most bytes that are kept: messages of usual calls, and what leaves before a server's refusal comes.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Body straight from the client, with what was sent of it until its reply began.
#[derive(Debug)]
pub struct KeptBody {
    /// The body itself; `None` once it was given back.
    body: Option<OutboundBody>,
    /// Beginning that was sent before and is sent again.
    again: VecDeque<Bytes>,
    /// Bytes in `again`.
    again_bytes: u64,
    /// All that was taken from the body.
    taken: Vec<Bytes>,
    taken_bytes: usize,
    /// Way back, unless the body can't be sent again.
    back: Option<oneshot::Sender<OutboundBody>>,
}

/// Place at which a body comes back that was dropped early enough. Drop it once the reply has begun.
pub(crate) type GivenBack = oneshot::Receiver<OutboundBody>;

impl KeptBody {
    /// Returns a body that keeps what is taken from `body`, and the place where it comes back.
    pub(crate) fn of(body: OutboundBody) -> (OutboundBody, GivenBack) {
        let (sender, given_back) = oneshot::channel();
        let mut kept = match body {
            OutboundBody::Kept(kept) => kept,
            body => Box::new(Self {
                body: Some(body),
                again: VecDeque::new(),
                again_bytes: 0,
                taken: Vec::new(),
                taken_bytes: 0,
                back: None,
            }),
        };
        kept.back = Some(sender);
        (OutboundBody::Kept(kept), given_back)
    }

    /// Returns the body that pieces are taken from.
    pub(crate) fn inner(&self) -> Option<&OutboundBody> {
        self.body.as_ref()
    }

    fn keep(&mut self, piece: &Bytes) {
        self.taken_bytes += piece.len();
        let is_wanted = self.back.as_ref().is_some_and(|back| !back.is_closed());
        if is_wanted && self.taken_bytes <= KEPT_BYTES_MAX {
            self.taken.push(piece.clone());
        } else {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.back = None;
        self.taken = Vec::new();
    }
}

impl Body for KeptBody {
    type Data = Bytes;
    type Error = StreamedBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        let this = self.get_mut();
        if let Some(piece) = this.again.pop_front() {
            this.again_bytes -= piece.len() as u64;
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let next = Pin::new(body).poll_frame(cx);
        match &next {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(piece) = frame.data_ref() {
                    this.keep(piece);
                }
            }
            // The client's part has failed, and would again.
            Poll::Ready(Some(Err(_))) => this.forget(),
            Poll::Ready(None) | Poll::Pending => {}
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.again.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + self.again_bytes);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + self.again_bytes);
        }
        hint
    }
}

impl Drop for KeptBody {
    fn drop(&mut self) {
        let (Some(back), Some(body)) = (self.back.take(), self.body.take()) else { return };
        let taken = std::mem::take(&mut self.taken);
        let body = Self {
            body: Some(body),
            again: taken.iter().cloned().collect(),
            again_bytes: self.taken_bytes as u64,
            taken,
            taken_bytes: self.taken_bytes,
            back: None,
        };
        // An error means that no one waits for it any more.
        drop(back.send(OutboundBody::Kept(Box::new(body))));
    }
}
