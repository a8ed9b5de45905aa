//! Errors of requests that no replica serves.

use spillway_protocol::{ErrorKind, GatewayError};
use spillway_route::ShedReason;

/// Returns the error for a client whose request is shed for this reason.
pub(super) fn shed_error(reason: ShedReason) -> GatewayError {
    // A test checks that each reason's code is one.
    let kind = ErrorKind::of_code(reason.code()).unwrap_or(ErrorKind::Overloaded);
    GatewayError::new(kind, reason.message()).with_shed(reason.name())
}

/// Returns the error for a request that two engines died of. A repetition would take others along, so
/// that clients' libraries are asked not to retry by themselves.
pub(crate) fn engines_died() -> GatewayError {
    let message = "two engines died while they worked on this request: it is not retried, since it \
                   may be the cause";
    GatewayError::new(ErrorKind::EnginesDied, message)
}

/// Returns the error for a state that no journey leads to.
pub(super) fn internal() -> GatewayError {
    GatewayError::new(ErrorKind::Internal, "the request ended in a state that should not exist")
}
