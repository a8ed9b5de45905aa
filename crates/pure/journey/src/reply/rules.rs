//! Rules of one reply.

use std::time::{Duration, Instant};

/// Rules of one reply, fixed when its head is passed on.
#[derive(Clone, Copy, Debug)]
pub struct ReplyRules {
    /// Form in which the reply can end badly.
    pub form: FailureForm,
    /// Longest time from the request to the first content or byte.
    pub first_byte: Duration,
    /// Longest silence after the first content or byte.
    pub idle: Duration,
    /// Moment at which the request's time is over.
    pub deadline: Instant,
    /// Silence towards the client after which a keep-alive is sent; `None` sends none.
    pub keep_alive: Option<Duration>,
}

/// Form of a reply, which decides how the client learns of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureForm {
    /// Events: an error event ends the stream, and another target may continue it.
    Events,
    /// A gRPC call: trailers with an error status end it.
    Call,
    /// Any other body: the connection or HTTP/2 stream is broken off.
    Bytes,
}
