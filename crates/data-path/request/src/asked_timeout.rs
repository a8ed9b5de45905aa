//! Time limits that clients set for their requests.

use std::time::Duration;

use http::HeaderMap;
use spillway_protocol::grpc::{GRPC_TIMEOUT, parse_timeout, speaks_grpc};
use spillway_protocol::{ErrorKind, GatewayError};

use crate::headers::TIMEOUT_MS;

/// Returns the client's own time budget, the least of those in the headers; `None` without one.
///
/// # Errors
/// Returns an error if a header is malformed.
pub fn asked_timeout(headers: &HeaderMap) -> Result<Option<Duration>, GatewayError> {
    let of_call = call_timeout(headers)?;
    let Some(value) = headers.get(&TIMEOUT_MS) else { return Ok(of_call) };
    let milliseconds = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let asked = milliseconds.map(Duration::from_millis).ok_or_else(|| {
        let message = format!("the header {TIMEOUT_MS} must be a whole number of milliseconds");
        GatewayError::new(ErrorKind::BadRequest, message)
    })?;
    Ok(Some(of_call.map_or(asked, |of_call| asked.min(of_call))))
}

/// Returns the timeout that the client set for its call; `None` without one.
///
/// # Errors
/// Returns an error if the header is malformed.
fn call_timeout(headers: &HeaderMap) -> Result<Option<Duration>, GatewayError> {
    let Some(value) = headers.get(&GRPC_TIMEOUT).filter(|_| speaks_grpc(headers)) else {
        return Ok(None);
    };
    parse_timeout(value.as_bytes()).map(Some).ok_or_else(|| {
        let message = format!("the header {GRPC_TIMEOUT} must be up to eight digits and a unit");
        GatewayError::new(ErrorKind::BadRequest, message)
    })
}
