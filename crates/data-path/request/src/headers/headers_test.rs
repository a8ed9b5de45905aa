use std::sync::Arc;

use spillway_front::access::{AccessMode, AccessSwitch};
use spillway_front::client::ConnectionFacts;
use spillway_protocol::TrustedProxies;

use super::*;

fn client(trusted: &[&str]) -> ConnectionFacts {
    client_by(trusted, AccessMode::Keys)
}

fn client_by(trusted: &[&str], access: AccessMode) -> ConnectionFacts {
    let blocks = trusted.iter().map(|block| block.parse().expect("a block")).collect();
    let address = "192.0.2.9".parse().expect("an address");
    let access = Arc::new(AccessSwitch::new(access));
    ConnectionFacts::new(address, false, Arc::new(TrustedProxies::new(blocks)), access)
}

fn forwarded(client: &ConnectionFacts, headers: &[(&str, &str)], authorization: bool) -> HeaderMap {
    let mut builder = http::Request::builder().uri("/v1/models");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let (mut head, ()) = builder.body(()).expect("a request").into_parts();
    let identity = RequestIdentity::of(&head.headers, &mut fastrand::Rng::with_seed(1), false);
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
    // The id is unique at the replica, even if the client repeats it.
    let id = headers["x-request-id"].to_str().expect("text");
    assert!(id.starts_with("mine-1-") && id.len() == "mine-1-".len() + 16, "{id}");
    let longest = "x".repeat(128);
    let headers = forwarded(&client(&[]), &[("x-request-id", &longest)], false);
    assert!(headers["x-request-id"].to_str().is_ok_and(valid_request_id));
}

#[test]
fn headers_that_steer_a_model_server_go_on_only_where_their_field_may() {
    let headers = || {
        let names = [
            "x-data-parallel-rank",
            "x-override_priority",
            "x-override-priority",
            "x-session-id",
            "x-mine",
        ];
        names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")))
    };
    let left = |allowed: EngineFields, is_built_in| {
        let mut map: HeaderMap = headers().into_iter().collect();
        remove_engine_headers(&mut map, allowed, is_built_in);
        map.len()
    };
    assert_eq!(left(EngineFields::NONE, true), 1);
    assert_eq!(left(EngineFields::NONE, false), 2);
    assert_eq!(left(EngineFields::named("priority").unwrap_or_default(), true), 3);
}

#[test]
fn claims_of_a_guest_stay_only_if_they_are_about_its_tenant() {
    let terms = |tenant: Option<&str>| GuestTerms {
        model: None,
        version: None,
        time_left: Duration::ZERO,
        hop: 1,
        client: "192.0.2.9".parse().expect("an address"),
        prefix: Vec::new(),
        tenant: tenant.map(Into::into),
        priority: 0,
        residency: spillway_types::Residency::default(),
        usage: None,
        deaths: 0,
        named: None,
    };
    let left = |tenant: Option<&str>, claimed: &[&str]| {
        let mut headers = HeaderMap::new();
        headers.insert("x-tenant-id", HeaderValue::from_static("evil"));
        for claim in claimed {
            headers.append(&TENANT_CLAIM, HeaderValue::try_from(*claim).expect("a value"));
        }
        let identity = RequestIdentity::of(&headers, &mut fastrand::Rng::with_seed(1), false);
        prepare_guest(&mut headers, &terms(tenant), &identity, false);
        headers.contains_key("x-tenant-id")
    };
    assert!(left(Some("acme"), &["acme"]), "its node believed them");
    for (tenant, claimed) in [
        (Some("acme"), &["evil"][..]),
        (Some("acme"), &["acme", "evil"]),
        (Some("acme"), &[]),
        (None, &["evil"]),
        (None, &[]),
    ] {
        assert!(!left(tenant, claimed), "{tenant:?} {claimed:?}");
    }
}

#[test]
fn a_client_s_library_says_how_long_it_waits() {
    let patience = |headers: &[(&'static str, &'static str)]| {
        let pair =
            |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        client_patience(&headers.iter().map(pair).collect())
    };
    let (python, javascript) = ("x-stainless-read-timeout", "x-stainless-timeout");
    assert_eq!(patience(&[(python, "600")]), Some(Duration::from_secs(600)));
    assert_eq!(patience(&[(python, "2.5")]), Some(Duration::from_millis(2_500)));
    assert_eq!(patience(&[(javascript, "20"), (python, "30")]), Some(Duration::from_secs(20)));
    assert_eq!(patience(&[(javascript, "0"), (python, "30")]), Some(Duration::from_secs(30)));
    for nothing in ["", "None", "soon", "-1", "0", "inf", "nan", "1e300"] {
        assert_eq!(patience(&[(python, nothing)]), None, "{nothing:?}");
    }
    assert_eq!(patience(&[]), None);
}
