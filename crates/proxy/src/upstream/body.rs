//! Request bodies on their way to a replica.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use spillway_protocol::Segments;

/// A request's body, as far as attempts are concerned.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// In memory: any number of attempts can send it.
    Buffered(Segments),
    /// Comes from the client while it is sent: one attempt only. `None` once taken.
    Streamed(Option<Incoming>),
}

impl RequestBody {
    /// Whether no attempt can send it any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Streamed(None))
    }

    /// The body for one attempt; `None` if it was streamed to an earlier one.
    pub(crate) fn for_attempt(&mut self) -> Option<OutboundBody> {
        match self {
            Self::Buffered(segments) => Some(OutboundBody::Buffered {
                bytes_left: segments.len() as u64,
                slices: segments.iter().cloned().collect(),
            }),
            Self::Streamed(incoming) => incoming.take().map(OutboundBody::Streamed),
        }
    }
}

/// The body type of every request to a replica.
#[derive(Debug)]
pub(crate) enum OutboundBody {
    /// Slices of the client's own bytes.
    Buffered { slices: VecDeque<Bytes>, bytes_left: u64 },
    /// Straight from the client's connection.
    Streamed(Incoming),
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Buffered { slices, bytes_left } => {
                let slice = slices.pop_front();
                *bytes_left -= slice.as_ref().map_or(0, |slice| slice.len() as u64);
                Poll::Ready(slice.map(|slice| Ok(Frame::data(slice))))
            }
            Self::Streamed(incoming) => Pin::new(incoming).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered { bytes_left, .. } => *bytes_left == 0,
            Self::Streamed(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Buffered { bytes_left, .. } => SizeHint::with_exact(*bytes_left),
            Self::Streamed(incoming) => incoming.size_hint(),
        }
    }
}
