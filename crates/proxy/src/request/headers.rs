//! What happens to headers on their way through.

use std::net::IpAddr;

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use spillway_protocol::{REQUEST_ID, TRACEPARENT, TraceContext, valid_request_id};

use crate::client::Client;
use crate::replica::{Replica, ReplicaProtocol};

/// The client's time budget in milliseconds, and what is left of it towards the replica.
pub(crate) static TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
/// Where clients put keys, besides `Authorization`.
static KEY_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-api-key"), HeaderName::from_static("api-key")];

/// What names this request in logs and traces, here and at the replica.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) request_id: HeaderValue,
    trace: TraceContext,
}

impl Identity {
    /// The client's own id and trace where they are valid, else fresh ones.
    pub(crate) fn of(headers: &HeaderMap, dice: &mut fastrand::Rng) -> Self {
        let request_id = headers
            .get(&REQUEST_ID)
            .filter(|value| value.to_str().is_ok_and(valid_request_id))
            .cloned()
            .unwrap_or_else(|| fresh_id(dice));
        let span = dice.u64(1..);
        let trace = headers
            .get(&TRACEPARENT)
            .and_then(TraceContext::parse)
            .map_or_else(|| TraceContext::new(dice.u128(1..), span, false), |up| up.child(span));
        Self { request_id, trace }
    }
}

/// Turns a client's request head into the part of a replica's that is the same for every attempt.
pub(crate) fn prepare_forwarding(
    head: &mut Parts,
    client: &Client,
    identity: &Identity,
    forward_authorization: bool,
) {
    let trusted = client.trusted_proxies.trusts(client.address);
    let host = head.headers.remove(header::HOST).or_else(|| authority_of(head));
    let headers = &mut head.headers;
    remove_hop_by_hop(headers);
    // The body's length follows from the body; expectations were met by reading it.
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    // Trailers of requests are not passed on, so none may be announced. Those of replies are.
    headers.remove(header::TRAILER);
    headers.remove(header::PROXY_AUTHORIZATION);
    if !forward_authorization {
        headers.remove(header::AUTHORIZATION);
        for key in &KEY_HEADERS {
            headers.remove(key);
        }
    }
    if !trusted {
        for spoofable in [&X_FORWARDED_FOR, &X_FORWARDED_PROTO, &X_FORWARDED_HOST] {
            headers.remove(spoofable);
        }
        headers.remove(header::FORWARDED);
    }
    append_address(headers, client.address);
    let scheme = if client.is_tls { "https" } else { "http" };
    insert_if_absent(headers, &X_FORWARDED_PROTO, || Some(HeaderValue::from_static(scheme)));
    insert_if_absent(headers, &X_FORWARDED_HOST, || host);
    headers.insert(header::VIA, HeaderValue::from_static("1.1 spillway"));
    headers.insert(REQUEST_ID.clone(), identity.request_id.clone());
    headers.insert(TRACEPARENT.clone(), identity.trace.to_header_value());
}

/// Adds what depends on the replica.
pub(crate) fn address_to(headers: &mut HeaderMap, replica: &Replica) {
    if replica.spec().protocol == ReplicaProtocol::Http1 {
        headers.insert(header::HOST, replica.authority.clone());
    }
    if let Some((name, value)) = &replica.spec().credential {
        headers.insert(name.clone(), value.clone());
    }
}

/// Removes what concerns one connection only (RFC 9110, section 7.6.1).
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    for name in [&KEEP_ALIVE, &PROXY_CONNECTION] {
        headers.remove(name);
    }
    for name in [header::TE, header::TRANSFER_ENCODING, header::UPGRADE] {
        headers.remove(name);
    }
}

/// HTTP/2 requests carry their host in the URI.
fn authority_of(head: &Parts) -> Option<HeaderValue> {
    HeaderValue::from_str(head.uri.authority()?.as_str()).ok()
}

fn append_address(headers: &mut HeaderMap, address: IpAddr) {
    let text = match headers.get(&X_FORWARDED_FOR).and_then(|value| value.to_str().ok()) {
        Some(earlier) => format!("{earlier}, {address}"),
        None => address.to_string(),
    };
    // Addresses and a value that was a header already can't hold what a header can't.
    if let Ok(value) = HeaderValue::try_from(text) {
        headers.insert(X_FORWARDED_FOR.clone(), value);
    }
}

fn insert_if_absent(
    headers: &mut HeaderMap,
    name: &HeaderName,
    value: impl FnOnce() -> Option<HeaderValue>,
) {
    if let Entry::Vacant(vacant) = headers.entry(name)
        && let Some(value) = value()
    {
        vacant.insert(value);
    }
}

fn fresh_id(dice: &mut fastrand::Rng) -> HeaderValue {
    let mut text = [0; 32];
    for (place, byte) in text.chunks_exact_mut(2).zip(dice.u128(..).to_be_bytes()) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        place[0] = DIGITS[usize::from(byte >> 4)];
        place[1] = DIGITS[usize::from(byte & 15)];
    }
    // Hexadecimal digits are a valid header, so the fallback never shows.
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spillway_protocol::TrustedProxies;

    use super::*;
    use crate::client::Client;

    fn client(trusted: &[&str]) -> Client {
        let blocks = trusted.iter().map(|block| block.parse().expect("a block")).collect();
        Client {
            address: "192.0.2.9".parse().expect("an address"),
            is_tls: false,
            trusted_proxies: Arc::new(TrustedProxies::new(blocks)),
            meter: Arc::default(),
        }
    }

    fn forwarded(client: &Client, headers: &[(&str, &str)], authorization: bool) -> HeaderMap {
        let mut builder = http::Request::builder().uri("/v1/models");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let (mut head, ()) = builder.body(()).expect("a request").into_parts();
        let identity = Identity::of(&head.headers, &mut fastrand::Rng::with_seed(1));
        prepare_forwarding(&mut head, client, &identity, authorization);
        head.headers
    }

    #[test]
    fn a_client_s_keys_stay_here_unless_the_route_says_so() {
        let keys = [("authorization", "Bearer sk"), ("x-api-key", "k"), ("api-key", "k")];
        let stripped = forwarded(&client(&[]), &keys, false);
        let kept = forwarded(&client(&[]), &keys, true);
        for (name, _) in keys {
            assert!(!stripped.contains_key(name), "{name}");
            assert!(kept.contains_key(name), "{name}");
        }
    }

    #[test]
    fn hop_by_hop_headers_and_those_that_connection_names_are_dropped() {
        let sent = [
            ("connection", "keep-alive, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("x-kept", "1"),
        ];
        let headers = forwarded(&client(&[]), &sent, false);
        for (name, _) in &sent[..6] {
            assert!(!headers.contains_key(*name), "{name}");
        }
        assert_eq!(headers["x-kept"], "1");
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_about_earlier_addresses() {
        let sent = [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-proto", "https")];
        let untrusted = forwarded(&client(&[]), &sent, false);
        assert_eq!(untrusted["x-forwarded-for"], "192.0.2.9");
        assert_eq!(untrusted["x-forwarded-proto"], "http");
        let trusted = forwarded(&client(&["192.0.2.0/24"]), &sent, false);
        assert_eq!(trusted["x-forwarded-for"], "203.0.113.5, 192.0.2.9");
        assert_eq!(trusted["x-forwarded-proto"], "https");
    }

    #[test]
    fn a_trace_goes_on_and_an_invalid_request_id_is_replaced() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let headers = forwarded(&client(&[]), &[("traceparent", parent)], false);
        let child = headers["traceparent"].to_str().expect("text");
        assert_eq!(&child[..35], &parent[..35]);
        assert_ne!(child, parent, "a span of its own");
        assert_eq!(headers["x-request-id"].len(), 32);
        let headers = forwarded(&client(&[]), &[("x-request-id", "mine-1")], false);
        assert_eq!(headers["x-request-id"], "mine-1");
    }
}
