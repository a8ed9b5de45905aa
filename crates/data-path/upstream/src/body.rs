//! Request bodies that are sent to a replica.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spillway_protocol::{GatewayError, Segments, V2Look};
use spillway_transport::{Limits, WireBody};

use crate::kept_body::KeptBody;
use crate::message_body::{ClientHalf, MessageBody};
use crate::streamed_body::{StreamedBody, StreamedBodyError, UploadHold, UploadProgress};

/// Body of a request, for one or more attempts.
#[derive(Debug)]
pub enum RequestBody {
    /// Body in memory: any number of attempts can send it.
    Buffered(Segments),
    /// Body that comes from the client while it is sent: one attempt only.
    Streamed {
        /// The body; `None` once taken.
        body: Option<StreamedBody>,
        /// Progress of the client's part.
        upload: Arc<UploadProgress>,
    },
    /// Client's half of a gRPC stream: one attempt only.
    Messages {
        /// The body; `None` once taken.
        body: Option<Box<MessageBody>>,
        /// Handle on the client's half; `None` once the reply's relay has it.
        half: Option<ClientHalf>,
    },
}

impl RequestBody {
    /// Returns true if no further attempt can send the body.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Streamed { body: None, .. } | Self::Messages { body: None, .. })
    }

    /// Returns a body that is sent while it arrives, within the limits. `watch` examines it as it
    /// passes.
    pub fn streamed(incoming: WireBody, limits: &Limits, watch: Option<V2Look>) -> Self {
        let body = StreamedBody::new(incoming, limits, watch);
        Self::Streamed { upload: Arc::clone(body.progress()), body: Some(body) }
    }

    /// Returns the client's fault in a body that is being sent, if any.
    pub fn fault(&self) -> Option<&GatewayError> {
        match self {
            Self::Buffered(_) => None,
            Self::Streamed { upload, .. } => upload.fault(),
            Self::Messages { half, .. } => half.as_ref()?.fault(),
        }
    }

    /// Returns the progress of a body that is sent while it arrives; `None` for one in memory.
    pub fn upload(&self) -> Option<&Arc<UploadProgress>> {
        match self {
            Self::Buffered(_) => None,
            Self::Streamed { upload, .. } => Some(upload),
            Self::Messages { half, .. } => Some(half.as_ref()?.upload()),
        }
    }

    /// Takes the handle on the client's half of a gRPC stream, for the relay of its reply.
    pub fn take_half(&mut self) -> Option<ClientHalf> {
        match self {
            Self::Buffered(_) | Self::Streamed { .. } => None,
            Self::Messages { half, .. } => half.take(),
        }
    }

    /// Returns the bytes held in memory.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Buffered(segments) => segments.len(),
            Self::Streamed { .. } | Self::Messages { .. } => 0,
        }
    }

    /// Takes back a body that an attempt did not read.
    pub fn give_back(&mut self, returned: OutboundBody) {
        match (self, returned) {
            (Self::Streamed { body, .. }, OutboundBody::Streamed(returned)) => {
                *body = Some(returned);
            }
            (Self::Messages { body, .. }, OutboundBody::Messages(returned)) => {
                *body = Some(returned);
            }
            // A body in memory was never taken.
            _ => {}
        }
    }

    /// Returns the body for one attempt; `None` if it was streamed to an earlier one.
    pub fn for_attempt(&mut self) -> Option<OutboundBody> {
        match self {
            Self::Buffered(segments) => Some(OutboundBody::of(segments)),
            Self::Streamed { body, .. } => body.take().map(OutboundBody::Streamed),
            Self::Messages { body, .. } => body.take().map(OutboundBody::Messages),
        }
    }
}

/// Body type of all requests to replicas.
#[derive(Debug)]
pub enum OutboundBody {
    /// Slices of the client's own bytes.
    Buffered {
        /// Slices that were not sent yet.
        slices: VecDeque<Bytes>,
        /// Bytes in them.
        bytes_left: u64,
    },
    /// Bytes straight from the client's connection.
    Streamed(StreamedBody),
    /// Messages straight from the client's connection.
    Messages(Box<MessageBody>),
    /// A streamed body or messages that may be sent a second time.
    Kept(Box<KeptBody>),
}

impl OutboundBody {
    /// Returns a body that is in memory.
    pub fn of(segments: &Segments) -> Self {
        let bytes_left = segments.len() as u64;
        Self::Buffered { bytes_left, slices: segments.iter().cloned().collect() }
    }

    /// Returns the reply's hold on an upload; `None` for a body in memory, and for a gRPC stream,
    /// which has a [`ClientHalf`].
    pub(crate) fn hold(&self) -> Option<UploadHold> {
        match self {
            Self::Buffered { .. } | Self::Messages(_) => None,
            Self::Streamed(body) => Some(body.hold()),
            Self::Kept(body) => body.inner()?.hold(),
        }
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
            Self::Kept(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered { bytes_left, .. } => *bytes_left == 0,
            Self::Streamed(body) => body.is_end_stream(),
            Self::Messages(body) => body.is_end_stream(),
            Self::Kept(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Buffered { bytes_left, .. } => SizeHint::with_exact(*bytes_left),
            Self::Streamed(body) => body.size_hint(),
            Self::Kept(body) => body.size_hint(),
            // Messages may be renamed while they are sent, which changes their length.
            Self::Messages(_) => SizeHint::default(),
        }
    }
}
