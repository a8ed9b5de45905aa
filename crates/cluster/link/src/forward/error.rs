//! Reasons for which a request could not be forwarded.

use thiserror::Error;

use super::handler::BoxError;
use crate::code::StreamCode;

/// Stage that a request had reached when forwarding it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardStage {
    /// The peer did not receive the request or never accepted it: the request can go to any other
    /// node.
    NotSent,
    /// The request was sent and no decision came back: the peer may work on it.
    Undecided,
    /// The peer had accepted the request.
    Accepted,
}

/// Reason for which a request could not be forwarded. [`Self::stage`] shows if another node may be
/// asked.
#[derive(Debug, Error)]
pub enum ForwardError {
    /// The peer is unknown, or there is no connection to it now.
    #[error("not connected")]
    NotConnected,
    /// The peer's limit of open requests is reached.
    #[error("the peer allows no more requests at a time")]
    Saturated,
    /// The head is larger than any peer accepts.
    #[error("the request's head can't be sent: {0}")]
    Head(String),
    /// The peer did not decide in time.
    #[error("the peer did not decide in time")]
    NoWord,
    /// The request's own deadline has passed.
    #[error("the deadline has passed")]
    Deadline(ForwardStage),
    /// The connection was lost.
    #[error("the connection is lost")]
    Lost(ForwardStage),
    /// The peer gave the request up.
    #[error("the peer gave up: {0:?}")]
    Reset(StreamCode, ForwardStage),
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Malformed(String, ForwardStage),
    /// The request's own body failed.
    #[error("the request's body failed: {0}")]
    Body(BoxError),
}

impl ForwardError {
    /// Returns the stage that the request had reached.
    #[must_use]
    pub fn stage(&self) -> ForwardStage {
        match self {
            Self::NotConnected | Self::Saturated | Self::Head(_) => ForwardStage::NotSent,
            // The head was being sent before the body failed.
            Self::NoWord | Self::Body(_) => ForwardStage::Undecided,
            Self::Deadline(stage)
            | Self::Lost(stage)
            | Self::Reset(_, stage)
            | Self::Malformed(_, stage) => *stage,
        }
    }
}
