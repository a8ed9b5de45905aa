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

fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
    headers.iter().map(pair).collect()
}

/// Returns the names that are left, sorted.
fn names(headers: &HeaderMap) -> Vec<&str> {
    let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

#[test]
fn connection_names_headers_in_any_spelling_and_in_several_lines() {
    let sent = [
        ("connection", "X-One , x-two,,"),
        ("connection", "x-three;odd, close"),
        ("x-one", "1"),
        ("x-two", "2"),
        ("x-two", "2"),
        ("x-three", "3"),
        ("close", "4"),
    ];
    let mut reply = map(&sent);
    clean_reply(&mut reply, true);
    assert_eq!(names(&reply), ["x-three"], "what is no name names none");
    let forwarded = forwarded(&client(&[]), &sent, false);
    for name in ["connection", "x-one", "x-two", "close"] {
        assert!(!forwarded.contains_key(name), "{name}");
    }
}

#[test]
fn no_client_can_take_off_what_this_node_adds() {
    let sent = [
        ("connection", "x-forwarded-for, x-forwarded-proto, x-forwarded-host, via, traceparent"),
        ("connection", "x-request-id, host"),
        ("host", "gw.example"),
        ("x-request-id", "mine"),
    ];
    let headers = forwarded(&client(&[]), &sent, false);
    assert_eq!(headers["x-forwarded-for"], "192.0.2.9");
    assert_eq!(headers["x-forwarded-proto"], "http");
    assert_eq!(headers["x-forwarded-host"], "gw.example");
    for name in ["via", "traceparent", "x-request-id"] {
        assert!(headers.contains_key(name), "{name}");
    }
}

#[test]
fn headers_that_name_another_path_method_or_length_stay_here() {
    let sent = [
        ("x-original-url", "/admin"),
        ("x_original_url", "/admin"),
        ("x-rewrite-url", "/admin"),
        ("x-http-method-override", "DELETE"),
        ("x_http_method-override", "DELETE"),
        ("x-http-method", "DELETE"),
        ("x-method-override", "DELETE"),
        ("content-length", "5"),
        ("expect", "100-continue"),
        ("trailer", "x-odd"),
        ("proxy-authorization", "Basic eDp5"),
        ("proxy-connection", "keep-alive"),
    ];
    for is_forwarded in [false, true] {
        let headers = forwarded(&client(&[]), &sent, is_forwarded);
        for (name, _) in sent {
            assert!(!headers.contains_key(name), "{name}");
        }
    }
    let kept = forwarded(&client(&[]), &[("x-original-urls", "1"), ("content-type", "a/b")], false);
    assert!(kept.contains_key("x-original-urls") && kept.contains_key("content-type"));
}

#[test]
fn forwarding_headers_in_another_spelling_are_believed_of_no_stranger() {
    let sent = [
        ("x_forwarded_for", "203.0.113.5"),
        ("x-forwarded-port", "1"),
        ("x_forwarded-prefix", "/x"),
        ("forwarded", "for=203.0.113.5"),
        ("x-real-ip", "203.0.113.5"),
        ("x_real_ip", "203.0.113.5"),
    ];
    let stranger = forwarded(&client(&[]), &sent, false);
    let proxy = forwarded(&client(&["192.0.2.0/24"]), &sent, false);
    for (name, _) in sent {
        assert!(!stranger.contains_key(name), "{name}");
        assert!(proxy.contains_key(name), "{name}");
    }
}

#[test]
fn of_several_proxies_all_addresses_count_and_the_last_word_on_the_rest() {
    let sent = [
        ("x-forwarded-for", "203.0.113.5, 198.51.100.1"),
        ("x-forwarded-for", "198.51.100.2"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "inner"),
        ("x-forwarded-host", "outer"),
    ];
    let headers = forwarded(&client(&["192.0.2.0/24"]), &sent, false);
    let only = |name: &str| {
        let values: Vec<_> = headers.get_all(name).iter().collect();
        assert_eq!(values.len(), 1, "{name}: {values:?}");
        values[0].to_str().expect("text").to_owned()
    };
    assert_eq!(only("x-forwarded-for"), "203.0.113.5, 198.51.100.1, 198.51.100.2, 192.0.2.9");
    assert_eq!(
        (only("x-forwarded-proto"), only("x-forwarded-host")),
        ("https".into(), "outer".into())
    );
}

#[test]
fn te_is_set_for_grpc_alone() {
    for (content_type, expected) in
        [("application/grpc", Some("trailers")), ("application/json", None)]
    {
        let sent = [("content-type", content_type), ("te", "gzip, trailers")];
        let headers = forwarded(&client(&[]), &sent, false);
        let found = headers.get("te").map(|value| value.to_str().expect("text"));
        assert_eq!(found, expected, "{content_type}");
    }
}

#[test]
fn a_reply_commands_no_proxy_and_says_nothing_in_the_gateway_s_name() {
    let orders = [
        "alt-svc",
        "x-sendfile",
        "x-reproxy-url",
        "proxy-authenticate",
        "proxy-authentication-info",
        "x-accel-redirect",
        "x-accel-limit-rate",
        "x-lighttpd-send-file",
        "access-control-allow-origin",
        "access-control-max-age",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
    ];
    let kept =
        ["x-accel-buffering", "accept-ranges", "age", "content-type", "set-cookie", "x-mine"];
    for is_replica in [true, false] {
        let all = orders.iter().chain(&kept).chain(&["x-spillway-replica"]);
        let mut reply: HeaderMap = all
            .map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")))
            .collect();
        clean_reply(&mut reply, is_replica);
        for name in orders {
            assert!(!reply.contains_key(name), "{name}");
        }
        for name in kept {
            assert!(reply.contains_key(name), "{name}");
        }
        // Another node's words are the gateway's own.
        assert_eq!(reply.contains_key("x-spillway-replica"), !is_replica);
    }
}

#[test]
fn trailers_change_nothing_that_was_decided_by_headers() {
    let mut trailers = map(&[
        ("grpc-status", "0"),
        ("grpc-message", "x"),
        ("x-usage", "5"),
        ("server-timing", "a;dur=1"),
        ("authorization", "x"),
        ("cache-control", "public"),
        ("content-type", "text/html"),
        ("content-encoding", "gzip"),
        ("content-length", "5"),
        ("location", "/x"),
        ("set-cookie", "a=b"),
        ("www-authenticate", "Basic"),
        ("refresh", "0"),
        ("connection", "close"),
        ("x-accel-redirect", "/x"),
        ("trailer", "x"),
    ]);
    clean_trailers(&mut trailers);
    assert_eq!(names(&trailers), ["grpc-message", "grpc-status", "server-timing", "x-usage"]);
}

#[test]
fn a_hosted_api_learns_nothing_of_clients_and_clients_nothing_of_the_account() {
    let mut request = map(&[
        ("accept", "a/b"),
        ("content-type", "application/json"),
        ("anthropic-version", "1"),
        ("openai-beta", "x"),
        ("authorization", "Bearer k"),
        ("cookie", "a=b"),
        ("user-agent", "mine/1"),
        ("x-forwarded-for", "192.0.2.9"),
        ("traceparent", "x"),
        ("x-request-id", "x"),
        ("openai-organization", "theirs"),
    ]);
    keep_for_hosted_api(&mut request);
    let expected = ["accept", "anthropic-version", "content-type", "openai-beta", "user-agent"];
    assert_eq!(names(&request), expected);
    assert_eq!(request["user-agent"], "spillway");
    let mut reply = map(&[
        ("content-type", "text/event-stream"),
        ("content-length", "5"),
        ("date", "x"),
        ("set-cookie", "__cf=1; domain=api.example"),
        ("openai-organization", "ours"),
        ("x-ratelimit-remaining-requests", "1"),
        ("request-id", "x"),
    ]);
    keep_of_hosted_api(&mut reply);
    assert_eq!(names(&reply), ["content-length", "content-type", "date"]);
}

#[test]
fn the_time_left_is_told_in_the_header_that_the_client_used_and_in_grpc_s() {
    let left = Duration::from_millis(1_500);
    let ms = ("x-request-timeout-ms", "9000");
    let grpc = ("grpc-timeout", "9S");
    for (sent, traffic, expected_ms, expected_grpc) in [
        (&[][..], Traffic::Http, None, None),
        (&[], Traffic::Grpc, None, None),
        (&[ms], Traffic::Http, Some("1500"), None),
        (&[ms], Traffic::Grpc, Some("1500"), Some(left)),
        (&[grpc], Traffic::Grpc, None, Some(left)),
        (&[ms, grpc], Traffic::Grpc, Some("1500"), Some(left)),
    ] {
        let mut headers = map(sent);
        tell_time_left(&mut headers, left, traffic);
        let found = headers.get("x-request-timeout-ms").map(|value| value.to_str().expect("text"));
        assert_eq!(found, expected_ms, "{sent:?} {traffic:?}");
        let found = headers.get("grpc-timeout").map(HeaderValue::as_bytes);
        let found = found.and_then(spillway_protocol::grpc::parse_timeout);
        assert_eq!(found, expected_grpc, "{sent:?} {traffic:?}");
    }
    let mut headers = map(&[ms]);
    tell_time_left(&mut headers, Duration::MAX, Traffic::Http);
    assert_eq!(headers["x-request-timeout-ms"], u64::MAX.to_string());
}

#[test]
fn a_request_keeps_its_trace_from_the_caller_and_draws_a_new_one_only_without() {
    let of = |headers: &[(&'static str, &'static str)], is_drawn| {
        RequestIdentity::of(&map(headers), &mut fastrand::Rng::with_seed(1), is_drawn).trace_ids()
    };
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-";
    let sampled: &'static str = String::leak(format!("{parent}01"));
    let unsampled: &'static str = String::leak(format!("{parent}00"));
    for (trace, is_sampled) in [(sampled, true), (unsampled, false)] {
        for is_drawn in [true, false] {
            let ids = of(&[("traceparent", trace)], is_drawn);
            assert_eq!(ids.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
            assert_eq!(ids.parent, Some(0xb7ad_6b71_6920_3331));
            assert_eq!(ids.is_sampled, is_sampled, "the caller decides");
        }
    }
    for odd in ["", "00-0-0-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"] {
        for is_drawn in [true, false] {
            let ids = of(&[("traceparent", String::leak(odd.to_owned()))], is_drawn);
            assert_eq!((ids.parent, ids.is_sampled), (None, is_drawn), "{odd:?}");
            assert!(ids.trace != 0 && ids.span != 0);
        }
    }
}

#[test]
fn a_guest_s_client_is_known_even_if_its_sender_named_none() {
    let terms = crate::test_around::guest(None);
    let identity = RequestIdentity::of(&HeaderMap::new(), &mut fastrand::Rng::with_seed(1), false);
    for (sent, expected) in [(&[][..], "192.0.2.9"), (&[("x-forwarded-for", "a, b")], "a, b")] {
        let mut headers = map(sent);
        headers.insert("host", HeaderValue::from_static("sender"));
        headers.insert("connection", HeaderValue::from_static("x-odd"));
        headers.insert("x-odd", HeaderValue::from_static("1"));
        prepare_guest(&mut headers, &terms, &identity, false);
        assert_eq!(headers["x-forwarded-for"], expected);
        assert!(!headers.contains_key("host") && !headers.contains_key("x-odd"));
    }
}
