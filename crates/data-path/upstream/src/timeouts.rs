//! Time-outs for replicas, already checked and in final units.

use std::time::Duration;

/// Time-outs for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time to set up a new connection with TCP and TLS.
    pub connect: Duration,
    /// Time from the request to the reply's head. Long by default: a queued unary request may wait
    /// for its turn and for its whole generation.
    pub first_byte: Duration,
    /// Time between two pieces of a reply's body.
    pub idle: Duration,
    /// Time for the whole request.
    pub total: Duration,
    /// Silence of a stream after which its client is sent a keep-alive; `None` sends none.
    pub keep_alive: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            first_byte: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(3600),
            keep_alive: None,
        }
    }
}
