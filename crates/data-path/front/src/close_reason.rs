//! Reasons for which client connections are closed.

use std::error::Error;

/// Reasons why the gateway closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client began a request head and did not finish it in time.
    SlowHead,
    /// The connection had no request for too long.
    Idle,
    /// The client does not take the bytes that wait for it.
    Stalled,
    /// The client abandons requests faster than any honest client.
    Resets,
    /// The client sends more HTTP/2 control frames than any honest client.
    Frames,
}

impl CloseReason {
    /// Returns the reason if the HTTP library closed the connection itself: it limits the requests
    /// that are abandoned before the gateway sees them.
    pub fn of_error(error: &hyper::Error) -> Option<Self> {
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(error) = cause.downcast_ref::<h2::Error>() {
                // Only errors that this side raised count: a client may send the same reason.
                let is_ours = error.is_go_away() && error.is_library();
                let is_calm = error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
                return (is_ours && is_calm).then_some(Self::Resets);
            }
            source = cause.source();
        }
        None
    }
}
