//! Media types and content codings, as headers name them.

use http::{HeaderMap, header};

/// Returns the type of a `Content-Type` without its parameters and the white space around it. Types
/// are compared without regard to case (RFC 9110, section 8.3.1).
#[must_use]
pub fn media_type(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Returns true if the body has the media type `wanted`.
#[must_use]
pub fn has_media_type(headers: &HeaderMap, wanted: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE);
    let rest = value.and_then(|value| strip_type(value.as_bytes(), wanted));
    rest.is_some_and(ends_type)
}

/// Returns what follows the beginning `wanted` of a `Content-Type`; `None` if it begins otherwise.
pub(crate) fn strip_type<'v>(value: &'v [u8], wanted: &str) -> Option<&'v [u8]> {
    let (begin, rest) = value.trim_ascii_start().split_at_checked(wanted.len())?;
    begin.eq_ignore_ascii_case(wanted.as_bytes()).then_some(rest)
}

/// Returns true if `rest` of a `Content-Type` holds parameters at most.
pub(crate) fn ends_type(rest: &[u8]) -> bool {
    rest.trim_ascii_start().first().is_none_or(|byte| *byte == b';')
}

/// Returns true if the body is compressed or coded in another way, so that it can't be read as it
/// is. `identity` is no coding (RFC 9110, section 12.5.3).
#[must_use]
pub fn is_encoded(headers: &HeaderMap) -> bool {
    // Most bodies have none, which a look at the map shows sooner than its iterator.
    if !headers.contains_key(header::CONTENT_ENCODING) {
        return false;
    }
    let values = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    codings.any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: header::HeaderName, values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn media_types_are_compared_without_case_parameters_and_white_space() {
        let is_events =
            |value| has_media_type(&headers(header::CONTENT_TYPE, &[value]), "text/event-stream");
        for value in [
            "text/event-stream",
            "Text/Event-Stream; charset=utf-8",
            "TEXT/EVENT-STREAM;charset=utf-8",
            "text/event-stream ; charset=utf-8",
            "text/event-stream\t;",
        ] {
            assert!(is_events(value), "{value:?}");
        }
        for value in [
            "",
            ";text/event-stream",
            "text/event-streams",
            "text/event-stream-2",
            "application/json; x=text/event-stream",
            "text/event-stream, text/html",
        ] {
            assert!(!is_events(value), "{value:?}");
        }
        assert!(!has_media_type(&HeaderMap::new(), "text/event-stream"));
    }

    #[test]
    fn identity_is_no_coding() {
        let is_encoded =
            |values: &[&'static str]| is_encoded(&headers(header::CONTENT_ENCODING, values));
        for values in
            [&[][..], &["identity"], &["Identity"], &[" identity , IDENTITY"], &["identity"; 2]]
        {
            assert!(!is_encoded(values), "{values:?}");
        }
        for values in [
            &["gzip"][..],
            &["GZIP"],
            &["identity, br"],
            &["identity", "zstd"],
            &["identity;q=1"],
            &[""],
        ] {
            assert!(is_encoded(values), "{values:?}");
        }
    }
}
