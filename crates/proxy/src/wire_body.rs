//! Bodies as they come in: over HTTP, or from another node.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

/// An error of any kind, where only a person or a log reads it.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A body on a link between nodes.
pub type LinkBody = UnsyncBoxBody<Bytes, BoxError>;

/// A body that comes in, a request's or a reply's.
#[derive(Debug)]
pub(crate) enum WireBody {
    /// From a client's or a replica's connection.
    Http(Incoming),
    /// From another node.
    Link(LinkBody),
}

/// A body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The HTTP connection failed, or its peer reset the stream.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The link failed, or the other node reset the stream.
    #[error("the link to the other node broke off: {0}")]
    Link(BoxError),
}

impl From<Incoming> for WireBody {
    fn from(incoming: Incoming) -> Self {
        Self::Http(incoming)
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
            Self::Http(body) => {
                Pin::new(body).poll_frame(cx).map(|next| next.map(|frame| Ok(frame?)))
            }
            Self::Link(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|next| next.map(|frame| frame.map_err(WireError::Link))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_end_stream(),
            Self::Link(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Link(body) => body.size_hint(),
        }
    }
}
