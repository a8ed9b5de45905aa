//! Bodies of requests as they come in: over HTTP, or from another node.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use crate::unread_body::UnreadBody;

/// Error of any kind, for logs.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Body on a link between nodes.
pub type LinkBody = UnsyncBoxBody<Bytes, BoxError>;

/// Incoming body of a request.
#[derive(Debug)]
pub enum WireBody {
    /// Body from a client's connection.
    Http(HttpBody),
    /// Body from another node.
    Link(LinkBody),
    /// No body: it was taken.
    Taken,
}

/// Body from a client's connection.
#[derive(Debug)]
pub struct HttpBody {
    /// The body; `None` once dropped.
    incoming: Option<Incoming>,
    /// Treatment of the rest; `None` once the whole body was read.
    unread: Option<UnreadBody>,
}

/// Error of a body that broke off.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The HTTP connection failed, or its peer reset the stream.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The link failed, or the other node reset the stream.
    #[error("the link to the other node broke off: {0}")]
    Link(BoxError),
}

impl HttpBody {
    fn new(incoming: Incoming, unread: &UnreadBody) -> Self {
        let has_ended = incoming.is_end_stream();
        unread.note(!has_ended);
        Self { incoming: Some(incoming), unread: (!has_ended).then(|| unread.clone()) }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        let has_ended = match &polled {
            Poll::Ready(Some(Ok(_))) => incoming.is_end_stream(),
            Poll::Ready(None) => true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if has_ended && let Some(unread) = self.unread.take() {
            unread.note(false);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for HttpBody {
    fn drop(&mut self) {
        if let (Some(rest), Some(unread)) = (self.incoming.take(), self.unread.take()) {
            unread.take_rest(rest);
        }
    }
}

impl WireBody {
    /// Returns the body of a client's request; `unread` says what becomes of a rest of it.
    pub fn of_client(incoming: Incoming, unread: &UnreadBody) -> Self {
        Self::Http(HttpBody::new(incoming, unread))
    }

    /// Takes the body and leaves [`WireBody::Taken`].
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Taken)
    }
}

impl Body for WireBody {
    type Data = Bytes;
    type Error = WireError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        match self.get_mut() {
            Self::Http(body) => body.poll_frame(cx).map(|next| next.map(|frame| Ok(frame?))),
            Self::Link(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|next| next.map(|frame| frame.map_err(WireError::Link))),
            Self::Taken => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_end_stream(),
            Self::Link(body) => body.is_end_stream(),
            Self::Taken => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Link(body) => body.size_hint(),
            Self::Taken => SizeHint::with_exact(0),
        }
    }
}
