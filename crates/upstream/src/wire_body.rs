//! Bodies of requests as they come in: over HTTP, or from another node.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

/// Error of any kind, for logs.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Body on a link between nodes.
pub type LinkBody = UnsyncBoxBody<Bytes, BoxError>;

/// Incoming body of a request.
#[derive(Debug)]
pub enum WireBody {
    /// Body from a client's connection.
    Http(Incoming),
    /// Body from another node.
    Link(LinkBody),
    /// No body: it was taken.
    Taken,
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

impl From<Incoming> for WireBody {
    fn from(incoming: Incoming) -> Self {
        Self::Http(incoming)
    }
}

impl WireBody {
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
            Self::Http(body) => {
                Pin::new(body).poll_frame(cx).map(|next| next.map(|frame| Ok(frame?)))
            }
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
