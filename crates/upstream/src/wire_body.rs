//! Incoming bodies: over HTTP, or from another node.

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

/// Incoming body of a request or reply.
#[derive(Debug)]
pub enum WireBody {
    /// Body from a client's or a replica's connection.
    Http(Incoming),
    /// Body from another node.
    Link(LinkBody),
    /// Body whose first frame was read already.
    Begun(Box<BegunBody>),
    /// No body: it was taken.
    Taken,
}

/// A body and its first frame.
#[derive(Debug)]
pub struct BegunBody {
    /// First frame; `None` once it was taken.
    first: Option<Result<Frame<Bytes>, WireError>>,
    rest: WireBody,
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

    /// Puts `first`, which was read from this body, back in front of it.
    pub fn beginning_with(self, first: Option<Result<Frame<Bytes>, WireError>>) -> Self {
        match first {
            Some(_) => Self::Begun(Box::new(BegunBody { first, rest: self })),
            None => self,
        }
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
            Self::Begun(body) => match body.first.take() {
                Some(first) => Poll::Ready(Some(first)),
                None => Pin::new(&mut body.rest).poll_frame(cx),
            },
            Self::Taken => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_end_stream(),
            Self::Link(body) => body.is_end_stream(),
            Self::Begun(body) => body.first.is_none() && body.rest.is_end_stream(),
            Self::Taken => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Link(body) => body.size_hint(),
            Self::Begun(body) => body.size_hint(),
            Self::Taken => SizeHint::with_exact(0),
        }
    }
}

impl BegunBody {
    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(|first| first.as_ref().ok());
        let bytes = first.and_then(Frame::data_ref).map_or(0, |piece| piece.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(bytes));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(bytes));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn a_body_that_was_looked_at_is_whole_again() {
        let whole = Full::new(Bytes::from_static(b"rest")).map_err(BoxError::from);
        let body = WireBody::Link(whole.boxed_unsync());
        let first = Ok(Frame::data(Bytes::from_static(b"first ")));
        let mut body = body.beginning_with(Some(first));
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(10), false));
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first ");
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "rest");
    }
}
