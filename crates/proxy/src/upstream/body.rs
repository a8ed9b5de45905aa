//! Request bodies on their way to a replica.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spillway_protocol::{GatewayError, Segments, V2Look};

use crate::settings::Limits;
use crate::upstream::message_body::{ClientHalf, MessageBody};
use crate::upstream::streamed_body::{BodyFault, StreamedBody, StreamedBodyError};
use crate::wire_body::WireBody;

/// A request's body, as far as attempts are concerned.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// In memory: any number of attempts can send it.
    Buffered(Segments),
    /// Comes from the client while it is sent: one attempt only.
    Streamed {
        /// `None` once taken.
        body: Option<StreamedBody>,
        /// What was wrong with it, as far as it was sent.
        fault: BodyFault,
    },
    /// The client's half of a gRPC stream: one attempt only.
    Messages {
        /// `None` once taken.
        body: Option<MessageBody>,
        /// `None` once the reply's relay has it.
        half: Option<ClientHalf>,
    },
}

impl RequestBody {
    /// Whether no attempt can send it any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Streamed { body: None, .. } | Self::Messages { body: None, .. })
    }

    /// A body that is sent on while it comes in, within the limits.
    /// `watch` looks at it as it passes.
    pub(crate) fn streamed(incoming: WireBody, limits: &Limits, watch: Option<V2Look>) -> Self {
        let body = StreamedBody::new(incoming, limits, watch);
        Self::Streamed { fault: body.fault(), body: Some(body) }
    }

    /// What the client did wrong while its body was sent on.
    pub(crate) fn fault(&self) -> Option<&GatewayError> {
        match self {
            Self::Buffered(_) => None,
            Self::Streamed { fault, .. } => fault.get(),
            Self::Messages { half, .. } => half.as_ref()?.fault(),
        }
    }

    /// The client's half of a gRPC stream, for the relay of its reply.
    pub(crate) fn take_half(&mut self) -> Option<ClientHalf> {
        match self {
            Self::Buffered(_) | Self::Streamed { .. } => None,
            Self::Messages { half, .. } => half.take(),
        }
    }

    /// Bytes that it holds in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Buffered(segments) => segments.len(),
            Self::Streamed { .. } | Self::Messages { .. } => 0,
        }
    }

    /// Takes a body back that an attempt did not read.
    pub(crate) fn give_back(&mut self, returned: OutboundBody) {
        match (self, returned) {
            (Self::Streamed { body, .. }, OutboundBody::Streamed(returned)) => {
                *body = Some(returned);
            }
            (Self::Messages { body, .. }, OutboundBody::Messages(returned)) => {
                *body = Some(returned);
            }
            // One in memory was never away.
            _ => {}
        }
    }

    /// The body for one attempt; `None` if it was streamed to an earlier one.
    pub(crate) fn for_attempt(&mut self) -> Option<OutboundBody> {
        match self {
            Self::Buffered(segments) => Some(OutboundBody::of(segments)),
            Self::Streamed { body, .. } => body.take().map(OutboundBody::Streamed),
            Self::Messages { body, .. } => body.take().map(OutboundBody::Messages),
        }
    }
}

/// The body type of every request to a replica.
#[derive(Debug)]
pub(crate) enum OutboundBody {
    /// Slices of the client's own bytes.
    Buffered { slices: VecDeque<Bytes>, bytes_left: u64 },
    /// Straight from the client's connection.
    Streamed(StreamedBody),
    /// The same, message by message.
    Messages(MessageBody),
}

impl OutboundBody {
    /// A body that is held.
    pub(crate) fn of(segments: &Segments) -> Self {
        let bytes_left = segments.len() as u64;
        Self::Buffered { bytes_left, slices: segments.iter().cloned().collect() }
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = StreamedBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        match self.get_mut() {
            Self::Buffered { slices, bytes_left } => {
                let slice = slices.pop_front();
                *bytes_left -= slice.as_ref().map_or(0, |slice| slice.len() as u64);
                Poll::Ready(slice.map(|slice| Ok(Frame::data(slice))))
            }
            Self::Streamed(body) => body.poll_frame(cx),
            Self::Messages(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered { bytes_left, .. } => *bytes_left == 0,
            Self::Streamed(body) => body.is_end_stream(),
            Self::Messages(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Buffered { bytes_left, .. } => SizeHint::with_exact(*bytes_left),
            Self::Streamed(body) => body.size_hint(),
            Self::Messages(_) => SizeHint::default(),
        }
    }
}
