//! Limits of request bodies: what is still read of a refused one, and the refusals.

use std::time::Duration;

use spillway_protocol::{ErrorKind, GatewayError};

/// Most bytes of a refused body that are still read.
pub const DISCARDED_BYTES_MAX: u64 = 1 << 20;
/// Longest time for which a refused body is still read.
pub const DISCARD_TIME_MAX: Duration = Duration::from_secs(1);

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

/// Returns the error for a body that did not arrive within `bound`.
#[must_use]
pub fn too_slow(bound: Duration) -> GatewayError {
    let message = format!("the request body did not arrive within {} s", bound.as_secs_f32());
    GatewayError::new(ErrorKind::BodyTimeout, message)
}
