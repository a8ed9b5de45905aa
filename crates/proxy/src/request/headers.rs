//! What happens to headers on their way through.

use std::time::Duration;

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use spillway_protocol::grpc::{GRPC_TIMEOUT, format_timeout, speaks_grpc};
use spillway_protocol::{
    EngineFields, REQUEST_ID, TRACEPARENT, TraceContext, new_request_id, valid_request_id,
};

use crate::access::{CLIENT_KEYS, TENANT_CLAIM, is_claim, is_key_of_ours, is_own};
use crate::client::Client;
use crate::remote::GuestTerms;
use crate::replica::Replica;
use crate::upstream::{Line, LineKind, Traffic};

/// The client's time budget in milliseconds, and what is left of it towards the replica.
pub(crate) static TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");

/// How long OpenAI's libraries wait for a reply to begin, in seconds: for Python the time between two
/// pieces, the first included, and for JavaScript that to the reply's head.
static CLIENT_WAITS: [HeaderName; 2] = [
    HeaderName::from_static("x-stainless-read-timeout"),
    HeaderName::from_static("x-stainless-timeout"),
];

/// How long the client says that it waits for its reply to begin; `None` if it does not say so. What is
/// no number says nothing: nobody writes these headers by hand.
pub(crate) fn client_patience(headers: &HeaderMap) -> Option<Duration> {
    let seconds = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let told = CLIENT_WAITS.iter().filter_map(seconds).filter(|seconds| *seconds > 0.0);
    let least = told.fold(f64::INFINITY, f64::min);
    Duration::try_from_secs_f64(least).ok().filter(|patience| *patience <= PATIENCE_MAX)
}

/// Longer patience is the same as none that was told.
const PATIENCE_MAX: Duration = Duration::from_secs(86_400);

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
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
/// Trailers that would be taken for headers, which are settled by then (RFC 9110, section 6.5.1).
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

/// Whether only a trusted proxy may say it.
fn is_forwarding(name: &str) -> bool {
    name.starts_with("x-forwarded-") || matches!(name, "forwarded" | "x-real-ip")
}

/// Whether some frameworks go by it instead of the path or method that was checked here. Nobody needs it.
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

/// Whether it is an order to a proxy in front, which a replica has no right to give: to serve a file or
/// another address instead of the reply, or to come to the replica itself from now on.
fn is_order(name: &str) -> bool {
    match name {
        "alt-svc" | "x-sendfile" | "x-reproxy-url" | "proxy-authenticate" => true,
        "proxy-authentication-info" => true,
        "x-accel-buffering" => false,
        _ => name.starts_with("x-accel-") || name.starts_with("x-lighttpd-send-"),
    }
}

/// Applies `test` to a name, and to what servers make of it that read an underscore as a hyphen.
fn in_each_spelling(name: &HeaderName, test: impl Fn(&str) -> bool) -> bool {
    let name = name.as_str();
    test(name) || (name.contains('_') && test(&name.replace('_', "-")))
}

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

/// Takes out of a request that another node forwarded what that node should have taken out. Claims stay
/// if they are about the tenant that the node named.
pub(crate) fn prepare_guest(
    headers: &mut HeaderMap,
    (guest, identity): (&GuestTerms, &Identity),
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
}

/// Takes out what is for this node alone: headers of one hop, credentials, and what would have replicas
/// read another request than the one that was checked here.
fn remove_what_ends_here(headers: &mut HeaderMap, forward_authorization: bool) {
    remove_named_by_connection(headers);
    remove_all(headers, |name| {
        is_hop_by_hop(name)
            || DROPPED.contains(name)
            || (!forward_authorization && CLIENT_KEYS.contains(name))
            || in_each_spelling(name, is_override)
    });
    if forward_authorization {
        remove_keys_of_ours(headers);
    }
    if speaks_grpc(headers) {
        // Of the headers that end at each hop this one is said anew: servers insist on it.
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Takes out of a reply's headers what concerns one connection only (RFC 9110, section 7.6.1). Of a
/// replica's reply also what only this gateway may say, and orders to proxies in front of it.
pub(crate) fn clean_reply(headers: &mut HeaderMap, is_replica: bool) {
    remove_named_by_connection(headers);
    remove_all(headers, |name| {
        is_hop_by_hop(name) || is_order(name.as_str()) || (is_replica && is_own(name))
    });
}

/// Takes out of a reply's trailers what could be taken for a header.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    remove_all(trailers, |name| {
        is_hop_by_hop(name)
            || DROPPED.contains(name)
            || NO_TRAILERS.contains(name)
            || is_order(name.as_str())
    });
}

/// Takes out headers by which model servers and the routers in front of them let requests be steered,
/// unless the field that each stands for is `allowed`. What a session's header means to a server behind a
/// path of its own is not known, so it goes on there.
pub(crate) fn remove_engine_headers(
    headers: &mut HeaderMap,
    allowed: EngineFields,
    is_built_in: bool,
) {
    let steers = |name: &str| {
        let field = match name {
            "x-session-id" if is_built_in => "session_id",
            name => engine_header(name).unwrap_or_default(),
        };
        EngineFields::named(field).is_some_and(|field| !allowed.contains(field))
    };
    remove_all(headers, |name| in_each_spelling(name, steers));
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
    // All lines count: the proxy nearest to this node may have added one of its own.
    let earlier = headers.get_all(&X_FORWARDED_FOR).iter().map(HeaderValue::to_str);
    let earlier: Vec<&str> = earlier.collect::<Result<_, _>>().unwrap_or_default();
    // Addresses and a value that was a header already can't hold what a header can't.
    let value = (!earlier.is_empty())
        .then(|| HeaderValue::try_from(format!("{}, {}", earlier.join(", "), client.address)).ok());
    let value = value.flatten().unwrap_or_else(|| client.address_text.clone());
    headers.insert(X_FORWARDED_FOR.clone(), value);
}

/// Of what several proxies have said the word of the nearest one counts.
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

/// Whether a reply is a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod headers_test;
