//! Fuzz targets of uploads, and of what replicas answer.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};

use super::form::model_in_form;
use super::witness::{RETRY_AFTER_MAX, retry_after};
use crate::client::fuzz::now;

/// A model that is found stands in the body, and a body that another reader sees none in has none.
pub(crate) fn form_upload(input: &[u8]) {
    // The first line is the content type, so that boundaries are mutated as well.
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let Ok(content_type) = HeaderValue::from_bytes(&input[..end]) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, content_type);
    let body = Bytes::copy_from_slice(input.get(end + 1..).unwrap_or_default());
    let Some(Ok(Some(model))) = now(model_in_form(&headers, &body)) else { return };
    assert!(model.len() <= 3 * 1_024, "a name of {} bytes", model.len());
    assert!(body.windows(5).any(|part| part.eq_ignore_ascii_case(b"model")));
}

/// A replica rests for no longer than the limit, whatever it asks for.
pub(crate) fn retry_after_header(input: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(input) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(header::RETRY_AFTER, value);
    assert!(retry_after(&headers).is_none_or(|wait| wait <= RETRY_AFTER_MAX));
}
