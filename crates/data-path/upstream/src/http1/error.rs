//! Errors of an HTTP/1.1 connection to a replica.

use std::io;

use crate::streamed_body::StreamedBodyError;

/// Failure of an exchange over HTTP/1.1.
#[derive(Debug, thiserror::Error)]
pub enum Http1Error {
    /// The socket failed.
    #[error("connection failed: {0}")]
    Socket(io::Error),
    /// The replica closed the connection before the end of its reply.
    #[error("connection closed before the reply had ended")]
    Closed,
    /// The head of the reply, or its trailers, can't be read.
    #[error("head or trailers: {0}")]
    Fields(httparse::Error),
    /// The head says in no clear way where its body ends.
    #[error("the head has {0}")]
    Unclear(&'static str),
    /// A chunk of the body can't be read.
    #[error("a chunk has {0}")]
    Chunk(&'static str),
    /// The replica sent more than a head may have, or too many informational replies before it.
    #[error("more bytes before the reply than a head may have")]
    LongHead,
    /// The client's body failed while it was sent.
    #[error("request body: {0}")]
    Body(Box<StreamedBodyError>),
    /// The client's body has another length than was announced.
    #[error("request body of another length than announced")]
    BodyLength,
}

impl Http1Error {
    /// Returns true if the replica broke the protocol.
    pub(crate) fn is_malformed(&self) -> bool {
        match self {
            Self::Fields(_) | Self::Unclear(_) | Self::Chunk(_) | Self::LongHead => true,
            Self::Socket(_) | Self::Closed | Self::Body(_) | Self::BodyLength => false,
        }
    }

    /// Returns true if the client's part failed.
    pub(crate) fn is_of_client(&self) -> bool {
        matches!(self, Self::Body(_) | Self::BodyLength)
    }
}
