//! Checks of a request's head that do not depend on the endpoint, made before anything else is
//! read.

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Version};
use spillway_protocol::{ErrorKind, GatewayError};

/// Methods that any request may have, in the form of an `Allow` header. `CONNECT` and `TRACE`
/// address the proxy itself and are never passed on, and the effect of others on a connection is
/// unknown.
pub const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Most bytes that nodes may have added to the headers of a forwarded request.
const ADDED_BYTES_MAX: usize = 4 << 10;

/// Bytes that HTTP/2 counts for a field beside its name and value (RFC 9113, section 6.5.2).
const FIELD_BYTES: usize = 32;

/// Checks the head of a client's request.
///
/// Returns an error if the head is larger than `bytes_max` over HTTP/2, the method is not passed on, the request asks for another protocol or an
/// unknown transfer coding, or its host or credential is missing or ambiguous.
pub fn check_head(head: &Parts, bytes_max: usize) -> Result<(), GatewayError> {
    // The library that reads HTTP/1.1 has this limit itself.
    if head.version == Version::HTTP_2 && list_bytes(head) > bytes_max {
        return Err(headers_too_large(bytes_max));
    }
    check_method(&head.method)?;
    check_host(head)?;
    check_authorization(&head.headers)?;
    // HTTP/2 has neither transfer codings nor upgrades.
    if head.version < Version::HTTP_2 {
        check_coding(&head.headers)?;
        check_upgrade(&head.headers)?;
    }
    Ok(())
}

/// Checks the head of a request that another node forwarded: that node may not have checked it, or
/// may have other limits.
///
/// # Errors
/// Returns an error if the method is not passed on, or the headers are longer than a client's may
/// be.
pub fn check_guest_head(head: &Parts, bytes_max: usize) -> Result<(), GatewayError> {
    check_method(&head.method)?;
    let bytes =
        |(name, value): (&header::HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    let sum = head.headers.iter().map(bytes).sum::<usize>();
    if sum > bytes_max.saturating_add(ADDED_BYTES_MAX) {
        let message = format!("the headers have {sum} bytes, and {bytes_max} are the limit");
        return Err(GatewayError::new(ErrorKind::HeadersTooLarge, message));
    }
    Ok(())
}

/// Returns the size of a head as HTTP/2 counts it, except for the names of its pseudo-header fields.
fn list_bytes(head: &Parts) -> usize {
    let field = |(name, value): (&header::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + FIELD_BYTES
    };
    let fields: usize = head.headers.iter().map(field).sum();
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    fields + path + head.uri.authority().map_or(0, |authority| authority.as_str().len())
}

/// Returns the error for a client's request whose head is larger than the limit.
pub fn headers_too_large(bytes_max: usize) -> GatewayError {
    let message =
        format!("the request's head is larger than {bytes_max} bytes, or has too many fields");
    GatewayError::new(ErrorKind::HeadersTooLarge, message)
}

fn check_method(method: &Method) -> Result<(), GatewayError> {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS => Ok(()),
        _ => {
            let message = format!("{} is not served here", shown(method));
            Err(GatewayError::new(ErrorKind::MethodNotAllowed, message))
        }
    }
}

/// Cuts a method for display: it may be as long as a head.
fn shown(method: &Method) -> &str {
    method.as_str().get(..32).unwrap_or(method.as_str())
}

/// Checks that the host is unambiguous (RFC 9112, section 3.2, and RFC 9113, section 8.3.1): a
/// server that reads another `Host` than the gateway would serve another site.
fn check_host(head: &Parts) -> Result<(), GatewayError> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad("there is more than one Host"));
    }
    let authority = head.uri.authority();
    if authority.is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(bad("the address has a user name in it"));
    }
    match (host, authority) {
        (None, _) if head.version == Version::HTTP_11 => Err(bad("HTTP/1.1 needs a Host")),
        (Some(host), _) if !host.as_bytes().iter().all(is_host_byte) => {
            Err(bad("the Host is no name and no address"))
        }
        (Some(host), Some(authority)) if !is_same(host, authority, head.uri.scheme_str()) => {
            Err(bad("the Host is another one than that of the address"))
        }
        _ => Ok(()),
    }
}

/// Checks that there is one credential: of two, the gateway could use one and a replica or a log
/// the other.
fn check_authorization(headers: &HeaderMap) -> Result<(), GatewayError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let first = values.next();
    // The same credential twice leaves no doubt which one counts.
    if values.any(|other| Some(other) != first) {
        return Err(bad("there is more than one Authorization"));
    }
    Ok(())
}

fn is_host_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(byte)
}

fn is_same(host: &HeaderValue, authority: &Authority, scheme: Option<&str>) -> bool {
    let port: &[u8] = if scheme == Some("https") { b":443" } else { b":80" };
    let (host, authority) = (host.as_bytes(), authority.as_str().as_bytes());
    host.eq_ignore_ascii_case(authority) || {
        // The scheme's default port may be left out.
        let bare = |text| <[u8]>::strip_suffix(text, port).unwrap_or(text);
        bare(host).eq_ignore_ascii_case(bare(authority))
    }
}

/// Checks the transfer codings: only `chunked` is known, and only once (RFC 9112, sections 6.1 and
/// 7).
fn check_coding(headers: &HeaderMap) -> Result<(), GatewayError> {
    if !headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(());
    }
    let values = headers.get_all(header::TRANSFER_ENCODING);
    let mut count = 0;
    for coding in values.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')) {
        if !coding.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            let message = "of transfer codings only chunked is known here";
            return Err(GatewayError::new(ErrorKind::NotImplemented, message));
        }
        count += 1;
    }
    if count == 1 { Ok(()) } else { Err(bad("the body is chunked more than once")) }
}

/// Refuses WebSocket upgrades. Other upgrades may be ignored (RFC 9110, section 7.8), but a
/// WebSocket client cannot continue without its upgrade.
fn check_upgrade(headers: &HeaderMap) -> Result<(), GatewayError> {
    let mut wanted = headers.get_all(header::UPGRADE).iter();
    let is_socket = |protocol: &[u8]| {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"websocket")
    };
    if wanted.any(|value| value.as_bytes().split(|byte| *byte == b',').any(is_socket)) {
        let message = "WebSockets are not served here";
        return Err(GatewayError::new(ErrorKind::NotImplemented, message));
    }
    Ok(())
}

fn bad(why: &str) -> GatewayError {
    GatewayError::new(ErrorKind::BadRequest, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        version: Version,
        (method, uri): (&str, &str),
        headers: &[(&str, &str)],
    ) -> Result<(), ErrorKind> {
        let mut builder = http::Request::builder().version(version).method(method).uri(uri);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let (head, ()) = builder.body(()).expect("a request").into_parts();
        check_head(&head, 1_000).map_err(|error| error.kind)
    }

    #[test]
    fn a_head_over_http2_has_a_limit_that_counts_each_field() {
        let (long, fields) = ("x".repeat(900), [("a", "1"); 30]);
        for (size, fields) in [(1, &[("a", long.as_str())][..]), (2, &fields)] {
            let uri = format!("http://gw.example/{}", "x".repeat(100 * size));
            for (version, expected) in
                [(Version::HTTP_2, Err(ErrorKind::HeadersTooLarge)), (Version::HTTP_10, Ok(()))]
            {
                assert_eq!(check(version, ("POST", &uri), fields), expected, "{version:?}");
            }
        }
    }

    #[test]
    fn usual_heads_pass() {
        let host = ("host", "gw.example:8080");
        for (version, uri, headers) in [
            (Version::HTTP_11, "/x", &[host][..]),
            (Version::HTTP_11, "/x", &[("host", "[::1]:80")]),
            (Version::HTTP_11, "/x", &[("host", "")]),
            (Version::HTTP_11, "/x", &[host, ("transfer-encoding", "Chunked")]),
            (
                Version::HTTP_11,
                "/x",
                &[host, ("upgrade", "h2c, TLS/1.2"), ("connection", "upgrade")],
            ),
            (Version::HTTP_11, "http://GW.example:8080/x", &[host]),
            (Version::HTTP_11, "http://gw.example:80/x", &[("host", "gw.example")]),
            (Version::HTTP_10, "/x", &[]),
            (Version::HTTP_2, "http://gw.example:8080/x", &[]),
            (Version::HTTP_2, "https://gw.example/x", &[("host", "gw.example:443")]),
        ] {
            assert_eq!(check(version, ("POST", uri), headers), Ok(()), "{uri} {headers:?}");
        }
    }

    #[test]
    fn a_host_that_may_be_read_in_two_ways_is_refused() {
        for (version, uri, headers) in [
            (Version::HTTP_11, "/x", &[][..]),
            (Version::HTTP_11, "http://a/x", &[]),
            (Version::HTTP_11, "/x", &[("host", "a"), ("host", "b")]),
            (Version::HTTP_11, "/x", &[("host", "a"), ("host", "a")]),
            (Version::HTTP_10, "/x", &[("host", "a"), ("host", "b")]),
            (Version::HTTP_11, "/x", &[("host", "a, b")]),
            (Version::HTTP_11, "/x", &[("host", "a/b")]),
            (Version::HTTP_11, "/x", &[("host", "user@a")]),
            (Version::HTTP_11, "http://a/x", &[("host", "b")]),
            (Version::HTTP_11, "http://a:81/x", &[("host", "a")]),
            (Version::HTTP_11, "http://user@a/x", &[("host", "a")]),
            (Version::HTTP_2, "http://user@a/x", &[]),
            (Version::HTTP_2, "http://a/x", &[("host", "b")]),
            (Version::HTTP_2, "https://a/x", &[("host", "a:80")]),
        ] {
            let found = check(version, ("POST", uri), headers);
            assert_eq!(found, Err(ErrorKind::BadRequest), "{uri} {headers:?}");
        }
    }

    #[test]
    fn two_credentials_in_one_header_are_refused() {
        let with = |values: &[&'static str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(values.iter().map(|value| ("authorization", *value)));
            check(Version::HTTP_11, ("POST", "/x"), &headers)
        };
        assert_eq!(with(&["Bearer a", "Bearer b"]), Err(ErrorKind::BadRequest));
        assert_eq!(with(&["Bearer a", "Basic a"]), Err(ErrorKind::BadRequest));
        assert_eq!(with(&["Bearer a", "Bearer a"]), Ok(()));
        assert_eq!(with(&["Bearer a"]), Ok(()));
    }

    #[test]
    fn methods_that_speak_to_proxies_or_are_unknown_are_refused() {
        for method in ["CONNECT", "TRACE", "TRACK", "DEBUG", "get", "PRI", "FOO"] {
            let found = check(Version::HTTP_11, (method, "/x"), &[("host", "a")]);
            assert_eq!(found, Err(ErrorKind::MethodNotAllowed), "{method}");
        }
        for method in METHODS.split(", ") {
            assert_eq!(check(Version::HTTP_11, (method, "/x"), &[("host", "a")]), Ok(()));
        }
    }

    #[test]
    fn codings_and_protocols_that_would_be_lost_are_refused() {
        use ErrorKind::{BadRequest, NotImplemented};
        for (name, values, expected) in [
            ("transfer-encoding", &["gzip, chunked"][..], NotImplemented),
            ("transfer-encoding", &["gzip", "chunked"], NotImplemented),
            ("transfer-encoding", &["identity, chunked"], NotImplemented),
            ("transfer-encoding", &["chunked;a=b"], NotImplemented),
            ("transfer-encoding", &[", chunked"], NotImplemented),
            ("transfer-encoding", &["chunked, chunked"], BadRequest),
            ("transfer-encoding", &["chunked", "chunked"], BadRequest),
            ("upgrade", &["websocket"], NotImplemented),
            ("upgrade", &["h2c, WebSocket/13"], NotImplemented),
            ("upgrade", &["h2c", "websocket"], NotImplemented),
        ] {
            let mut headers = vec![("host", "a")];
            headers.extend(values.iter().map(|value| (name, *value)));
            let found = check(Version::HTTP_11, ("POST", "/x"), &headers);
            assert_eq!(found, Err(expected), "{name} {values:?}");
        }
    }

    #[test]
    fn methods_and_headers_of_guests_are_bounded() {
        let head = |bytes| {
            let request = http::Request::builder().header("a", "b".repeat(bytes)).body(());
            request.expect("a request").into_parts().0
        };
        assert!(check_guest_head(&head(1000), 1000).is_ok());
        let refused = check_guest_head(&head(6000), 1000).expect_err("too long");
        assert_eq!(refused.kind, ErrorKind::HeadersTooLarge);
        let mut traced = head(1);
        traced.method = Method::TRACE;
        let refused = check_guest_head(&traced, 1000).expect_err("a method of proxies");
        assert_eq!(refused.kind, ErrorKind::MethodNotAllowed);
    }
}
