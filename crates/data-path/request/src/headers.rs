//! Headers of requests and replies that pass through the gateway.

use std::time::Duration;

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use spillway_front::access::{CLIENT_KEYS, TENANT_CLAIM, is_claim, is_key_of_ours, is_own};
use spillway_front::client::ConnectionFacts;
use spillway_protocol::grpc::{GRPC_TIMEOUT, format_timeout, speaks_grpc};
use spillway_protocol::{
    EngineFields, REQUEST_ID, TRACEPARENT, TraceContext, has_media_type, new_request_id,
    valid_request_id,
};
use spillway_types::TraceIds;
use spillway_upstream::{LineKind, Traffic, UpstreamLine};
use spillway_view::{GuestTerms, Replica};

/// Client's time budget in milliseconds; towards the replica, the time left.
pub static TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");

/// Headers with the time that OpenAI's libraries wait for a reply to begin, in seconds: for Python
/// the time between two pieces, the first included, and for JavaScript the time to the reply's
/// head.
static CLIENT_WAITS: [HeaderName; 2] = [
    HeaderName::from_static("x-stainless-read-timeout"),
    HeaderName::from_static("x-stainless-timeout"),
];

/// Returns the time that the client waits for its reply to begin; `None` if it does not say.
/// Malformed values are ignored: these headers are not written by hand.
pub fn client_patience(headers: &HeaderMap) -> Option<Duration> {
    let seconds = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let told = CLIENT_WAITS.iter().filter_map(seconds).filter(|seconds| *seconds > 0.0);
    // The client gives up at the shorter of both times.
    let least = told.fold(f64::INFINITY, f64::min);
    // Without any header `least` is infinite, and that is no duration.
    Duration::try_from_secs_f64(least).ok().filter(|patience| *patience <= PATIENCE_MAX)
}

/// Longest patience; longer values are ignored.
const PATIENCE_MAX: Duration = Duration::from_secs(86_400);

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Header in which a proxy reports the host that the client asked for.
pub static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// Headers that end at each hop, besides those that `Connection` names.
static HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers that are never passed on: the length follows from the body, expectations were met by
/// reading it, trailers of requests are not kept (those of replies are), and proxy credentials were
/// for this proxy.
static DROPPED: [HeaderName; 4] =
    [header::CONTENT_LENGTH, header::EXPECT, header::TRAILER, header::PROXY_AUTHORIZATION];
/// Fields that are not allowed as trailers, since headers are settled by then (RFC 9110, section
/// 6.5.1).
static NO_TRAILERS: [HeaderName; 14] = [
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::HOST,
    header::LINK,
    header::LOCATION,
    header::SET_COOKIE,
    header::TRAILER,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("refresh"),
];

/// Headers of a request that go to a hosted API.
static OF_HOSTED_REQUESTS: [HeaderName; 6] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_TYPE,
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("anthropic-beta"),
    HeaderName::from_static("openai-beta"),
];
/// Headers of a hosted API's reply that go to the client.
static OF_HOSTED_REPLIES: [HeaderName; 6] = [
    header::CACHE_CONTROL,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::DATE,
    header::TRANSFER_ENCODING,
];

/// Returns true for headers that only a trusted proxy may set.
fn is_forwarding(name: &str) -> bool {
    name.starts_with("x-forwarded-") || matches!(name, "forwarded" | "x-real-ip")
}

/// Returns true for headers that some frameworks use instead of the path or method checked here. No
/// client needs them.
fn is_override(name: &str) -> bool {
    matches!(
        name,
        "x-original-url"
            | "x-rewrite-url"
            | "x-http-method-override"
            | "x-http-method"
            | "x-method-override"
    )
}

/// Returns true for headers of a reply that command a proxy in front of the gateway, which a
/// replica has no right to: to serve a file or another address instead, or to connect to the
/// replica itself. Which pages may read a reply is not the replica's to say, either (`[cors]`).
fn is_order(name: &str) -> bool {
    match name {
        "alt-svc" | "x-sendfile" | "x-reproxy-url" | "proxy-authenticate" => true,
        "proxy-authentication-info" => true,
        // Servers of streams use it to ask that proxies do not hold events back.
        "x-accel-buffering" => false,
        // Nearly all headers begin with another letter.
        _ => match name.as_bytes().first() {
            Some(b'x') => name.starts_with("x-accel-") || name.starts_with("x-lighttpd-send-"),
            Some(b'a') => name.starts_with("access-control-"),
            _ => false,
        },
    }
}

/// Applies `test` to a name, and to its spelling with hyphens for underscores, as some servers read
/// it.
fn in_each_spelling(name: &HeaderName, test: impl Fn(&str) -> bool) -> bool {
    let name = name.as_str();
    test(name) || (name.contains('_') && test(&name.replace('_', "-")))
}

/// Bytes kept of a client's request id, so that the id with its suffix stays valid.
const CHOSEN_ID_BYTES_MAX: usize = 111;

/// Request id and trace context, here and at the replica.
#[derive(Clone, Debug)]
pub struct RequestIdentity {
    /// Id of the request, the client's own if it sent one.
    pub request_id: HeaderValue,
    /// Request id for the replica, made unique if the client chose the id.
    upstream_id: HeaderValue,
    /// Trace with this node's span.
    trace: TraceContext,
    /// Span of the caller; `None` if the trace begins here.
    parent: Option<u64>,
}

impl RequestIdentity {
    /// Takes the client's own id and trace if they are valid, else makes new ones. A new trace is
    /// recorded if it `is_drawn`.
    pub fn of(headers: &HeaderMap, dice: &mut fastrand::Rng, is_drawn: bool) -> Self {
        let chosen = headers.get(&REQUEST_ID).filter(|id| id.to_str().is_ok_and(valid_request_id));
        let request_id = chosen.cloned().unwrap_or_else(|| new_request_id(dice.u128(..)));
        let upstream_id = match chosen {
            Some(chosen) => unique_request_id(chosen, dice.u64(..)),
            None => request_id.clone(),
        };
        // An id of zero is invalid in a trace context.
        let span = dice.u64(1..);
        let caller = headers.get(&TRACEPARENT).and_then(TraceContext::parse);
        let parent = caller.map(|caller| caller.parent);
        let trace = match caller {
            Some(caller) => caller.child(span),
            None => TraceContext::new(dice.u128(1..), span, is_drawn),
        };
        Self { request_id, upstream_id, trace, parent }
    }

    /// Returns the request's place in its trace.
    #[must_use]
    pub fn trace_ids(&self) -> TraceIds {
        TraceIds {
            trace: self.trace.trace_id,
            parent: self.parent,
            span: self.trace.parent,
            is_sampled: self.trace.sampled(),
        }
    }
}

/// Turns a client's request head into the part of a replica's that does not depend on the attempt.
pub fn prepare_forwarding(
    head: &mut Parts,
    client: &ConnectionFacts,
    identity: &RequestIdentity,
    forward_authorization: bool,
) {
    let (trusted, believed) = (client.is_trusted(), client.is_believed());
    // The host becomes X-Forwarded-Host; each attempt sets the replica's own.
    let host = head.headers.remove(header::HOST).or_else(|| authority_of(head));
    let headers = &mut head.headers;
    remove_what_ends_here(headers, forward_authorization);
    remove_all(headers, |name| {
        (!trusted && in_each_spelling(name, is_forwarding)) || (!believed && is_claim(name))
    });
    append_address(headers, client);
    keep_last(headers, &X_FORWARDED_PROTO);
    keep_last(headers, &X_FORWARDED_HOST);
    let scheme = if client.is_tls { "https" } else { "http" };
    insert_if_absent(headers, &X_FORWARDED_PROTO, || Some(HeaderValue::from_static(scheme)));
    insert_if_absent(headers, &X_FORWARDED_HOST, || host);
    headers.insert(header::VIA, HeaderValue::from_static("1.1 spillway"));
    headers.insert(REQUEST_ID.clone(), identity.upstream_id.clone());
    headers.insert(TRACEPARENT.clone(), identity.trace.to_header_value());
}

/// Removes headers of a forwarded request that its sender should have removed. Identity claims stay
/// if they are about the tenant that the sender named.
pub fn prepare_guest(
    headers: &mut HeaderMap,
    guest: &GuestTerms,
    identity: &RequestIdentity,
    forward_authorization: bool,
) {
    remove_what_ends_here(headers, forward_authorization);
    let tenant = guest.tenant.as_ref().map(|tenant| tenant.as_str().as_bytes());
    let mut claimed = headers.get_all(&TENANT_CLAIM).iter().map(HeaderValue::as_bytes);
    let is_claimed = tenant.is_some() && claimed.next() == tenant && claimed.next().is_none();
    remove_all(headers, |name| name == header::HOST || (!is_claimed && is_claim(name)));
    insert_if_absent(headers, &X_FORWARDED_FOR, || {
        HeaderValue::try_from(guest.client.to_string()).ok()
    });
    headers.insert(REQUEST_ID.clone(), identity.request_id.clone());
    headers.insert(TRACEPARENT.clone(), identity.trace.to_header_value());
}

/// Removes headers for this node alone: those of one hop, credentials, and those that could make
/// replicas read another request than the one that was checked here.
fn remove_what_ends_here(headers: &mut HeaderMap, forward_authorization: bool) {
    remove_named_by_connection(headers);
    remove_all(headers, |name| {
        is_hop_by_hop(name)
            || DROPPED.contains(name)
            || (!forward_authorization && CLIENT_KEYS.contains(name))
            || in_each_spelling(name, is_override)
    });
    if forward_authorization {
        // The client's own credentials pass, but never a key of this gateway.
        remove_keys_of_ours(headers);
    }
    if speaks_grpc(headers) {
        // TE is the only header of one hop that is set again: gRPC servers insist on it.
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Removes headers of a reply that concern one connection only (RFC 9110, section 7.6.1). From a
/// replica's reply, also headers of the gateway and commands to proxies.
pub fn clean_reply(headers: &mut HeaderMap, is_replica: bool) {
    remove_named_by_connection(headers);
    remove_all(headers, |name| {
        is_hop_by_hop(name) || is_order(name.as_str()) || (is_replica && is_own(name))
    });
}

/// Removes trailers of a reply that could be taken for headers.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    remove_all(trailers, |name| {
        is_hop_by_hop(name)
            || DROPPED.contains(name)
            || NO_TRAILERS.contains(name)
            || is_order(name.as_str())
    });
}

/// Removes headers that steer requests in model servers and their routers, unless the field that a
/// header sets is `allowed`. A session header is kept behind a path prefix, since its meaning to
/// that server is unknown.
pub fn remove_engine_headers(headers: &mut HeaderMap, allowed: EngineFields, is_built_in: bool) {
    let steers = |name: &str| {
        let field = match name {
            "x-session-id" if is_built_in => "session_id",
            name => engine_header(name).unwrap_or_default(),
        };
        EngineFields::named(field).is_some_and(|field| !allowed.contains(field))
    };
    remove_all(headers, |name| in_each_spelling(name, steers));
}

/// Returns the request field that a header sets; `None` for other headers.
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

/// Appends a random suffix to a client's request id: servers make their own id of it, and of two
/// requests with the same id one may end the other.
fn unique_request_id(chosen: &HeaderValue, random: u64) -> HeaderValue {
    let chosen = chosen.to_str().unwrap_or_default();
    let kept = &chosen[..chosen.len().min(CHOSEN_ID_BYTES_MAX)];
    HeaderValue::try_from(format!("{kept}-{random:016x}"))
        .unwrap_or_else(|_| new_request_id(random.into()))
}

/// Removes the client's credentials, for a replica of a route that does not forward them.
pub fn remove_client_keys(headers: &mut HeaderMap) {
    remove_all(headers, |name| CLIENT_KEYS.contains(name));
}

/// Removes keys of this gateway and leaves credentials for the replica.
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

/// Sets the headers that depend on the replica.
pub fn address_to(headers: &mut HeaderMap, replica: &Replica, line: &UpstreamLine<'_>) {
    if line.kind == LineKind::Http1 {
        headers.insert(header::HOST, line.authority.clone());
    }
    if let Some((name, value)) = &replica.spec().credential {
        // Also those under other names: the replica gets one identity, and no client's secret.
        remove_client_keys(headers);
        headers.insert(name.clone(), value.clone());
    }
}

/// Removes all headers of a request but those that a hosted API needs to understand it: names,
/// addresses, cookies and traces of clients stay here.
pub fn keep_for_hosted_api(headers: &mut HeaderMap) {
    remove_all(headers, |name| !OF_HOSTED_REQUESTS.contains(name));
    // Some refuse requests without one.
    headers.insert(header::USER_AGENT, HeaderValue::from_static("spillway"));
}

/// Removes all headers of a hosted API's reply but those that say how to read it. Others name the
/// operator's account there, or set cookies for its domain.
pub fn keep_of_hosted_api(headers: &mut HeaderMap) {
    remove_all(headers, |name| !OF_HOSTED_REPLIES.contains(name));
}

/// Sets the time left of the client's budget, in the headers that the client used and, for a gRPC
/// call, always in gRPC's own.
pub fn tell_time_left(headers: &mut HeaderMap, left: Duration, traffic: Traffic) {
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

/// Removes matching headers. Testing the few that are present is cheaper than looking up the many
/// that could be.
fn remove_all(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_unwanted(name)).cloned() {
        headers.remove(name);
    }
}

/// Returns the host in the URI, where HTTP/2 requests have it.
fn authority_of(head: &Parts) -> Option<HeaderValue> {
    HeaderValue::from_str(head.uri.authority()?.as_str()).ok()
}

fn append_address(headers: &mut HeaderMap, client: &ConnectionFacts) {
    // All lines count: the proxy nearest to this node may have added one of its own.
    let earlier = headers.get_all(&X_FORWARDED_FOR).iter().map(HeaderValue::to_str);
    let earlier: Vec<&str> = earlier.collect::<Result<_, _>>().unwrap_or_default();
    // Addresses and a former header value contain no byte that is invalid in a header.
    let value = (!earlier.is_empty())
        .then(|| HeaderValue::try_from(format!("{}, {}", earlier.join(", "), client.address)).ok());
    let value = value.flatten().unwrap_or_else(|| client.address_text.clone());
    headers.insert(X_FORWARDED_FOR.clone(), value);
}

/// Keeps the last of several values: the word of the nearest proxy counts.
fn keep_last(headers: &mut HeaderMap, name: &HeaderName) {
    let mut values = headers.get_all(name).iter();
    let is_repeated = values.next().is_some() && values.next().is_some();
    if is_repeated && let Some(last) = headers.get_all(name).iter().next_back().cloned() {
        headers.insert(name.clone(), last);
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

/// Returns true if a reply is a stream of events.
pub fn is_event_stream(headers: &HeaderMap) -> bool {
    has_media_type(headers, "text/event-stream")
}

#[cfg(test)]
mod headers_test;
