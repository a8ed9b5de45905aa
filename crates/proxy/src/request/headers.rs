//! What happens to headers on their way through.

use std::time::Duration;

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use spillway_protocol::grpc::{GRPC_TIMEOUT, format_timeout, speaks_grpc};
use spillway_protocol::{
    EngineFields, REQUEST_ID, TRACEPARENT, TraceContext, new_request_id, valid_request_id,
};

use crate::access::{CLIENT_KEYS, is_claim, is_key_of_ours};
use crate::client::Client;
use crate::replica::Replica;
use crate::upstream::{Line, LineKind, Traffic};

/// The client's time budget in milliseconds, and what is left of it towards the replica.
pub(crate) static TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Headers that end at each hop, besides those that `Connection` names.
static HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Never passed on: the length follows from the body, expectations were met by reading it, trailers
/// of requests are not kept (those of replies are), and credentials for a proxy were for this one.
static DROPPED: [HeaderName; 4] =
    [header::CONTENT_LENGTH, header::EXPECT, header::TRAILER, header::PROXY_AUTHORIZATION];
/// What only a trusted proxy may say.
static FORWARDING: [HeaderName; 4] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-host"),
    header::FORWARDED,
];

/// Bytes of a client's id that are kept, so that with what is put behind it it is a valid one.
const CHOSEN_ID_BYTES_MAX: usize = 111;

/// What names this request in logs and traces, here and at the replica.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) request_id: HeaderValue,
    /// The same, made unique for the replica where the client chose it.
    upstream_id: HeaderValue,
    trace: TraceContext,
}

impl Identity {
    /// The client's own id and trace where they are valid, else fresh ones.
    pub(crate) fn of(headers: &HeaderMap, dice: &mut fastrand::Rng) -> Self {
        let chosen = headers.get(&REQUEST_ID).filter(|id| id.to_str().is_ok_and(valid_request_id));
        let request_id = chosen.cloned().unwrap_or_else(|| new_request_id(dice.u128(..)));
        let upstream_id = match chosen {
            Some(chosen) => unique_request_id(chosen, dice.u64(..)),
            None => request_id.clone(),
        };
        let span = dice.u64(1..);
        let trace = headers
            .get(&TRACEPARENT)
            .and_then(TraceContext::parse)
            .map_or_else(|| TraceContext::new(dice.u128(1..), span, false), |up| up.child(span));
        Self { request_id, upstream_id, trace }
    }
}

/// Turns a client's request head into the part of a replica's that is the same for every attempt.
pub(crate) fn prepare_forwarding(
    head: &mut Parts,
    client: &Client,
    identity: &Identity,
    forward_authorization: bool,
) {
    let (trusted, believed) = (client.is_trusted(), client.is_believed());
    let host = head.headers.remove(header::HOST).or_else(|| authority_of(head));
    let headers = &mut head.headers;
    remove_named_by_connection(headers);
    remove_all(headers, |name| {
        is_hop_by_hop(name)
            || DROPPED.contains(name)
            || (!forward_authorization && CLIENT_KEYS.contains(name))
            || (!trusted && FORWARDING.contains(name))
            || (!believed && is_claim(name))
    });
    if forward_authorization {
        remove_keys_of_ours(headers);
    }
    if speaks_grpc(headers) {
        // Of the headers that end at each hop this one is said anew: servers insist on it.
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    append_address(headers, client);
    let scheme = if client.is_tls { "https" } else { "http" };
    insert_if_absent(headers, &X_FORWARDED_PROTO, || Some(HeaderValue::from_static(scheme)));
    insert_if_absent(headers, &X_FORWARDED_HOST, || host);
    headers.insert(header::VIA, HeaderValue::from_static("1.1 spillway"));
    headers.insert(REQUEST_ID.clone(), identity.upstream_id.clone());
    headers.insert(TRACEPARENT.clone(), identity.trace.to_header_value());
}

/// Takes out headers by which model servers and the routers in front of them let requests be steered,
/// unless the field that each stands for is `allowed`. What a session's header means to a server behind a
/// path of its own is not known, so it goes on there.
pub(crate) fn remove_engine_headers(
    headers: &mut HeaderMap,
    allowed: EngineFields,
    is_built_in: bool,
) {
    remove_all(headers, |name| {
        let field = match name.as_str() {
            "x-session-id" if is_built_in => "session_id",
            name => engine_header(name).unwrap_or_default(),
        };
        EngineFields::named(field).is_some_and(|field| !allowed.contains(field))
    });
}

/// The field that a header stands for.
fn engine_header(name: &str) -> Option<&'static str> {
    if !name.starts_with("x-") {
        return None;
    }
    Some(match name {
        "x-override-rid" => "rid",
        "x-override-bootstrap-host" => "bootstrap_host",
        "x-override-bootstrap-port" => "bootstrap_port",
        "x-override-bootstrap-room" => "bootstrap_room",
        "x-override-conversation-id" => "conversation_id",
        "x-override-priority" => "priority",
        "x-override-disagg-prefill-dp-rank" => "disagg_prefill_dp_rank",
        "x-override-routed-dp-rank" | "x-smg-target-worker" | "x-smg-routing-key" => {
            "routed_dp_rank"
        }
        "x-data-parallel-rank" | "x-dp-rank" | "x-data-parallel-host-port" => "data_parallel_rank",
        "x-prefiller-host-port"
        | "x-prefiller-url"
        | "x-encoder-hosts-ports"
        | "x-worker-instance-id"
        | "x-prefill-instance-id"
        | "x-decode-instance-id" => "kv_transfer_params",
        _ => return None,
    })
}

/// A client's id of a request with something behind it that no other request has: servers make their own id
/// of it, and of two requests with the same one may end the other.
fn unique_request_id(chosen: &HeaderValue, random: u64) -> HeaderValue {
    let chosen = chosen.to_str().unwrap_or_default();
    let kept = &chosen[..chosen.len().min(CHOSEN_ID_BYTES_MAX)];
    HeaderValue::try_from(format!("{kept}-{random:016x}"))
        .unwrap_or_else(|_| new_request_id(random.into()))
}

/// Takes the client's credentials out, for a replica of a route that does not forward them.
pub(crate) fn remove_client_keys(headers: &mut HeaderMap) {
    remove_all(headers, |name| CLIENT_KEYS.contains(name));
}

/// Takes out what let the client in here, and leaves what is meant for the replica.
fn remove_keys_of_ours(headers: &mut HeaderMap) {
    for name in &CLIENT_KEYS {
        let values = headers.get_all(name);
        if !values.iter().any(is_key_of_ours) {
            continue;
        }
        let others: Vec<_> =
            values.iter().filter(|value| !is_key_of_ours(value)).cloned().collect();
        headers.remove(name);
        for other in others {
            headers.append(name, other);
        }
    }
}

/// Adds what depends on the replica.
pub(crate) fn address_to(headers: &mut HeaderMap, replica: &Replica, line: &Line<'_>) {
    if line.kind == LineKind::Http1 {
        headers.insert(header::HOST, line.authority.clone());
    }
    if let Some((name, value)) = &replica.spec().credential {
        headers.insert(name.clone(), value.clone());
    }
}

/// Tells the replica what is left of the client's time, in the words that were used and, in a call
/// over gRPC, always in its own.
pub(crate) fn tell_time_left(headers: &mut HeaderMap, left: Duration, traffic: Traffic) {
    let is_asked = headers.contains_key(&TIMEOUT_MS);
    if is_asked {
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        headers.insert(TIMEOUT_MS.clone(), HeaderValue::from(left_ms));
    }
    if traffic == Traffic::Grpc
        && (is_asked || headers.contains_key(&GRPC_TIMEOUT))
        && let Ok(left) = HeaderValue::try_from(format_timeout(left))
    {
        headers.insert(GRPC_TIMEOUT.clone(), left);
    }
}

/// Removes what concerns one connection only (RFC 9110, section 7.6.1).
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    remove_named_by_connection(headers);
    remove_all(headers, is_hop_by_hop);
}

fn remove_named_by_connection(headers: &mut HeaderMap) {
    if !headers.contains_key(header::CONNECTION) {
        return;
    }
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
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

/// Removes matching headers. Looking at the few that are there is cheaper than looking up the many
/// that could be.
fn remove_all(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_unwanted(name)).cloned() {
        headers.remove(name);
    }
}

/// HTTP/2 requests carry their host in the URI.
fn authority_of(head: &Parts) -> Option<HeaderValue> {
    HeaderValue::from_str(head.uri.authority()?.as_str()).ok()
}

fn append_address(headers: &mut HeaderMap, client: &Client) {
    let value = match headers.get(&X_FORWARDED_FOR).and_then(|value| value.to_str().ok()) {
        // Addresses and a value that was a header already can't hold what a header can't.
        Some(earlier) => HeaderValue::try_from(format!("{earlier}, {}", client.address)).ok(),
        None => None,
    };
    headers.insert(X_FORWARDED_FOR.clone(), value.unwrap_or_else(|| client.address_text.clone()));
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

/// Whether a reply is a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spillway_protocol::TrustedProxies;

    use super::*;
    use crate::access::{AccessMode, AccessSwitch};
    use crate::client::Client;

    fn client(trusted: &[&str]) -> Client {
        client_by(trusted, AccessMode::Keys)
    }

    fn client_by(trusted: &[&str], access: AccessMode) -> Client {
        let blocks = trusted.iter().map(|block| block.parse().expect("a block")).collect();
        let address = "192.0.2.9".parse().expect("an address");
        let access = Arc::new(AccessSwitch::new(access));
        Client::new(address, false, (Arc::new(TrustedProxies::new(blocks)), access))
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
    fn a_key_of_ours_goes_no_further_whatever_the_route_says() {
        let keys = [
            ("authorization", "Bearer sw_a_1"),
            ("x-api-key", "theirs"),
            ("x-api-key", "sw_b_2"),
            ("api-key", "sw_c"),
        ];
        let kept = forwarded(&client(&[]), &keys, true);
        assert!(!kept.contains_key("authorization") && !kept.contains_key("api-key"));
        let left: Vec<_> = kept.get_all("x-api-key").iter().collect();
        assert_eq!(left, ["theirs"]);
    }

    #[test]
    fn only_a_trusted_proxy_of_a_listener_that_believes_it_says_whose_a_request_is() {
        let claims = [("x-spillway-tenant", "acme"), ("x-tenant-id", "acme"), ("x-priority", "0")];
        let proxy: &[&str] = &["192.0.2.0/24"];
        for (trusted, mode, is_kept) in [
            (proxy, AccessMode::Headers, true),
            (&[], AccessMode::Headers, false),
            (proxy, AccessMode::Keys, false),
            (proxy, AccessMode::None, false),
        ] {
            let headers = forwarded(&client_by(trusted, mode), &claims, false);
            for (name, _) in claims {
                assert_eq!(headers.contains_key(name), is_kept, "{name} {mode:?} {trusted:?}");
            }
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
        // Unique at the replica, however often the client sends it.
        let id = headers["x-request-id"].to_str().expect("text");
        assert!(id.starts_with("mine-1-") && id.len() == "mine-1-".len() + 16, "{id}");
        let longest = "x".repeat(128);
        let headers = forwarded(&client(&[]), &[("x-request-id", &longest)], false);
        assert!(headers["x-request-id"].to_str().is_ok_and(valid_request_id));
    }

    #[test]
    fn headers_that_steer_a_model_server_go_on_only_where_their_field_may() {
        let headers = || {
            let names = ["x-data-parallel-rank", "x-override-priority", "x-session-id", "x-mine"];
            names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")))
        };
        let left = |allowed: EngineFields, is_built_in| {
            let mut map: HeaderMap = headers().into_iter().collect();
            remove_engine_headers(&mut map, allowed, is_built_in);
            map.len()
        };
        assert_eq!(left(EngineFields::NONE, true), 1);
        assert_eq!(left(EngineFields::NONE, false), 2);
        assert_eq!(left(EngineFields::named("priority").unwrap_or_default(), true), 2);
    }
}
