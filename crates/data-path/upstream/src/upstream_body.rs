//! Bodies of replies as they come in: from a replica, or from another region.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use spillway_transport::{BoxError, LinkBody};

use crate::http1::{Http1Connection, Http1Error};
use crate::http2::{Http2Body, Http2Error};

/// Next frame of a reply.
type NextFrame = Option<Result<Frame<Bytes>, UpstreamBodyError>>;

/// Incoming body of a reply.
#[derive(Debug)]
pub enum UpstreamBody {
    /// Body from a replica over HTTP/1.1, with its connection.
    Http1(Box<Http1Connection>),
    /// Body from a replica over HTTP/2.
    Http2(Http2Body),
    /// Body from another region.
    Link(LinkBody),
    /// Body whose first frame was read already.
    Begun(Box<BegunBody>),
    /// No body: the reply has ended.
    Over,
}

/// A body and its first frame.
#[derive(Debug)]
pub struct BegunBody {
    /// First frame; `None` once it was taken.
    first: NextFrame,
    rest: UpstreamBody,
}

/// Error of a reply that broke off.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamBodyError {
    /// The HTTP/1.1 connection failed.
    #[error(transparent)]
    Http1(#[from] Http1Error),
    /// The HTTP/2 connection failed, or the replica reset the stream.
    #[error(transparent)]
    Http2(#[from] Http2Error),
    /// The link failed, or the other node reset the stream.
    #[error("the link to the other node broke off: {0}")]
    Link(BoxError),
}

impl UpstreamBody {
    /// Ends the body and returns its HTTP/1.1 connection; `None` if it has none.
    pub fn take_connection(&mut self) -> Option<Box<Http1Connection>> {
        match std::mem::replace(self, Self::Over) {
            Self::Http1(connection) => Some(connection),
            Self::Begun(mut body) => body.rest.take_connection(),
            Self::Http2(_) | Self::Link(_) | Self::Over => None,
        }
    }

    /// Puts `first`, which was read from this body, back in front of it.
    pub fn beginning_with(self, first: NextFrame) -> Self {
        match first {
            Some(_) => Self::Begun(Box::new(BegunBody { first, rest: self })),
            None => self,
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextFrame> {
        match self.get_mut() {
            Self::Http1(body) => {
                Pin::new(&mut **body).poll_frame(cx).map(|next| next.map(|frame| Ok(frame?)))
            }
            Self::Http2(body) => {
                Pin::new(body).poll_frame(cx).map(|next| next.map(|frame| Ok(frame?)))
            }
            Self::Link(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|next| next.map(|frame| frame.map_err(UpstreamBodyError::Link))),
            Self::Begun(body) => match body.first.take() {
                Some(first) => Poll::Ready(Some(first)),
                None => Pin::new(&mut body.rest).poll_frame(cx),
            },
            Self::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Link(body) => body.is_end_stream(),
            Self::Begun(body) => body.first.is_none() && body.rest.is_end_stream(),
            Self::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Link(body) => body.size_hint(),
            Self::Begun(body) => body.size_hint(),
            Self::Over => SizeHint::with_exact(0),
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
        let body = UpstreamBody::Link(whole.boxed_unsync());
        let first = Ok(Frame::data(Bytes::from_static(b"first ")));
        let mut body = body.beginning_with(Some(first));
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(10), false));
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "first ");
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "rest");
    }
}
