//! Limits of request bodies: how much is still read of a refused one, and the refusals.

use std::time::Duration;

use spillway_protocol::{ErrorKind, GatewayError};

use crate::limits::Limits;

/// Most bytes of a refused body that are read before its reply.
pub const DISCARDED_BYTES_MAX: u64 = 1 << 20;
/// Longest time for which a refused body is read before its reply.
pub const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);

/// Longest silence of a client that still sends a body after its reply. Longer than a mobile network
/// is away.
pub const REST_SILENCE_MAX: Duration = Duration::from_secs(5);
/// Longest time for the rest of a body after its reply. A client at 10 Mbit/s sends 37 MB in it, more
/// than a body may have by default.
pub const REST_TIME_MAX: Duration = Duration::from_secs(30);
/// Time for such a rest while the gateway drains.
pub const REST_FAREWELL_TIME: Duration = Duration::from_secs(1);

/// Returns the most bytes that are read of a body after its reply: a client whose body is within the
/// limits can send all of it.
#[must_use]
pub fn rest_bytes_max(limits: &Limits) -> u64 {
    limits.body_bytes_max.max(DISCARDED_BYTES_MAX)
}

/// Refuses a body of at least `bytes` if that is too long.
///
/// # Errors
/// Returns an error if `bytes` exceeds `bytes_max`.
pub fn refuse_oversize(bytes: u64, bytes_max: u64) -> Result<(), GatewayError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("the request body is larger than the {bytes_max} bytes allowed here");
    Err(GatewayError::new(ErrorKind::BodyTooLarge, message))
}
