//! Body type of all replies to clients.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use spillway_protocol::grpc::GRPC_STATUS;

use crate::relay::pump::{Pump, PumpedRelay};
use crate::relay::relay_body::{Relay, RelayError};

/// Body of a reply: the gateway's own bytes, or a replica's bytes as they come.
#[derive(Debug)]
pub(crate) enum ReplyBody {
    Full(Option<Bytes>),
    /// A gRPC message of the gateway itself, and then trailers with the status OK.
    Message(VecDeque<Frame<Bytes>>),
    Relay(PumpedRelay),
}

impl ReplyBody {
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self::Full(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// Returns the number of unsent bytes of the gateway's own reply; `None` for a replica's reply.
    pub(crate) fn own_length(&self) -> Option<usize> {
        match self {
            Self::Full(bytes) => Some(bytes.as_ref().map_or(0, Bytes::len)),
            Self::Message(_) | Self::Relay(_) => None,
        }
    }

    pub(crate) fn message(message: Bytes) -> Self {
        let ok = HeaderMap::from_iter([(GRPC_STATUS.clone(), HeaderValue::from_static("0"))]);
        Self::Message([Frame::data(message), Frame::trailers(ok)].into())
    }

    /// Returns the body of a replica's reply. `pump` continues it while its client takes nothing.
    pub(crate) fn relay(relay: Relay, pump: Option<&Arc<Pump>>) -> Self {
        Self::Relay(PumpedRelay::new(relay, pump))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Message(frames) => Poll::Ready(frames.pop_front().map(Ok)),
            Self::Relay(relay) => relay.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Message(frames) => frames.is_empty(),
            Self::Relay(relay) => relay.has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Message(_) => SizeHint::default(),
            Self::Relay(relay) => relay.size_hint(),
        }
    }
}
