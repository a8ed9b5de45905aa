//! Fuzz target for headers of replicas' replies.

use http::{HeaderMap, HeaderValue, header};

use super::attempt_observer::{RETRY_AFTER_MAX, retry_after};

/// Asserts that a replica never rests longer than the limit, whatever it asks for.
pub(crate) fn retry_after_header(input: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(input) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(header::RETRY_AFTER, value);
    assert!(retry_after(&headers).is_none_or(|wait| wait <= RETRY_AFTER_MAX));
}
