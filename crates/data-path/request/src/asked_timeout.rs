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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asked(headers: &[(&'static str, &'static str)]) -> Result<Option<u64>, ErrorKind> {
        let pair =
            |&(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value));
        let found = asked_timeout(&headers.iter().map(pair).collect());
        let ms = |asked: Duration| u64::try_from(asked.as_millis()).unwrap();
        found.map(|asked| asked.map(ms)).map_err(|error| error.kind)
    }

    #[test]
    fn the_shorter_of_both_limits_counts_and_grpc_s_only_for_calls() {
        let grpc = ("content-type", "application/grpc+proto");
        for (headers, expected) in [
            (&[][..], None),
            (&[("x-request-timeout-ms", "250")], Some(250)),
            (&[("x-request-timeout-ms", "0")], Some(0)),
            (&[("grpc-timeout", "2S")], None),
            (&[grpc, ("grpc-timeout", "2S")], Some(2_000)),
            (&[grpc, ("grpc-timeout", "2S"), ("x-request-timeout-ms", "250")], Some(250)),
            (&[grpc, ("grpc-timeout", "100m"), ("x-request-timeout-ms", "250")], Some(100)),
            (&[("content-type", "application/json"), ("grpc-timeout", "odd")], None),
        ] {
            assert_eq!(asked(headers), Ok(expected), "{headers:?}");
        }
    }

    #[test]
    fn a_limit_that_can_t_be_read_is_an_error_and_not_no_limit() {
        let grpc = ("content-type", "application/grpc");
        for value in ["", "-1", "1.5", "1e3", "100ms", "18446744073709551616", "0x10"] {
            let headers = [("x-request-timeout-ms", value)];
            assert_eq!(asked(&headers), Err(ErrorKind::BadRequest), "{value:?}");
        }
        for value in ["", "5", "S", "123456789S", "5x", "-5S"] {
            let headers = [grpc, ("grpc-timeout", value)];
            assert_eq!(asked(&headers), Err(ErrorKind::BadRequest), "{value:?}");
        }
        // One limit does not hide that the other is wrong.
        let both = [grpc, ("grpc-timeout", "5x"), ("x-request-timeout-ms", "250")];
        assert_eq!(asked(&both), Err(ErrorKind::BadRequest));
    }
}
