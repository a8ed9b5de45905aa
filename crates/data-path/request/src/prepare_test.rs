use serde_json::{Value, json};
use spillway_protocol::{EngineFields, ErrorKind, Protocol, SaltField};
use spillway_types::{Residency, TenantName};
use spillway_view::{ContinuationSpec, RouteSpec};

use super::*;
use crate::test_around::{
    Around, Asked, Pieces, Served, guest, model, prefixed, replica, run, sent,
};

const CHAT: &str = "/v1/chat/completions";

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hello"}]})
}

fn post(path: &str, body: &Value) -> Asked {
    Asked::post(path, body.to_string())
}

#[test]
fn a_name_leads_to_its_model_and_an_alias_is_replaced_in_the_body() {
    let around = Around::new(Served::models(&["a", "b"]).with_alias("best", "b"));
    for (named, served) in [("a", "a"), ("b", "b"), ("best", "b")] {
        let prepared = around.prepared(post(CHAT, &chat(named)));
        assert_eq!(model(&prepared), Some(served), "{named}");
        let body: Value = serde_json::from_str(&sent(&prepared)).unwrap();
        assert_eq!(body, chat(served), "only the name changes");
        assert_eq!(prepared.path, CHAT);
        assert_eq!(prepared.route.spec.name.as_str(), "all");
    }
}

#[test]
fn a_body_with_the_right_name_is_sent_byte_for_byte() {
    let around = Around::new(Served::models(&["a"]));
    for body in [
        r#"{"model":"a","messages":[]}"#,
        " {\n\t\"messages\" : [ ] , \"model\" : \"a\" } \n",
        r#"{"model":"\u0061","messages":[],"odd":1e400}"#,
        "{\"model\":\"a\",\"prompt\":\"\u{0}\"}".replace('\u{0}', "\\u0000").as_str(),
    ] {
        let prepared = around.prepared(Asked::post(CHAT, body.to_owned()));
        assert_eq!(sent(&prepared), body);
    }
}

#[test]
fn malformed_and_unservable_requests_are_told_apart() {
    use ErrorKind::{
        BadRequest, MethodNotAllowed, ModelNotFound, RouteNotFound, UnsupportedMediaType,
    };
    let around = Around::new(Served::models(&["a", "b"]));
    for (asked, expected) in [
        (Asked::post(CHAT, ""), BadRequest),
        (Asked::post(CHAT, "no JSON"), BadRequest),
        (Asked::post(CHAT, "[]"), BadRequest),
        (Asked::post(CHAT, r#"{"model":"a""#), BadRequest),
        (Asked::post(CHAT, r#"{"model":1}"#), BadRequest),
        (Asked::post(CHAT, r#"{"model":"a","model":"b"}"#), BadRequest),
        (Asked::post(CHAT, r#"{"messages":[]}"#), BadRequest),
        (Asked::post(CHAT, r#"{"model":"c"}"#), ModelNotFound),
        (Asked::post(CHAT, r#"{"model":"A"}"#), ModelNotFound),
        (Asked::post(CHAT, r#"{"model":"a "}"#), ModelNotFound),
        (Asked::get(CHAT), MethodNotAllowed),
        (Asked::new("DELETE", CHAT, ""), MethodNotAllowed),
        (Asked::post("/v1/chat/completion", r#"{"model":"a"}"#), RouteNotFound),
        (Asked::post("/v1//chat/completions", r#"{"model":"a"}"#), RouteNotFound),
        (Asked::post("/v1/chat%2fcompletions", r#"{"model":"a"}"#), RouteNotFound),
        (Asked::post("/", r#"{"model":"a"}"#), RouteNotFound),
        (
            Asked::post(CHAT, r#"{"model":"a"}"#).with("content-encoding", "gzip"),
            UnsupportedMediaType,
        ),
        (
            Asked::post("/v1/audio/transcriptions", "x").with("content-encoding", "br"),
            UnsupportedMediaType,
        ),
        (Asked::post("/v1/audio/transcriptions", r#"{"model":"a"}"#), BadRequest),
        // gRPC needs HTTP/2.
        (Asked::post("/x.Y/Z", "").with("content-type", "application/grpc"), UnsupportedMediaType),
    ] {
        let shown = format!("{asked:?}");
        let found = run(around.prepare(asked)).err().map(|error| error.kind);
        // The content type of an upload decides before its form.
        let is_form = shown.contains("transcriptions") && expected == BadRequest;
        let is_expected = found == Some(expected)
            || (is_form && matches!(found, Some(BadRequest | UnsupportedMediaType)));
        assert!(is_expected, "{found:?} instead of {expected:?} for {shown}");
    }
}

#[test]
fn a_request_without_a_name_is_for_the_only_model_that_its_key_allows() {
    let without = || Asked::post(CHAT, r#"{"messages":[]}"#);
    let empty = || Asked::post(CHAT, r#"{"model":"","messages":[]}"#);
    let served = || Served::models(&["a", "b"]).with_alias("best", "b");
    for (around, expected) in [
        (Around::new(Served::models(&["a"])), Some("a")),
        // An alias of the only model is no second model.
        (Around::new(Served::models(&["a"]).with_alias("best", "a")), Some("a")),
        (Around::new(served()), None),
        (Around::new(served()).allow(&["a"]), Some("a")),
        (Around::new(served()).allow(&["b"]), Some("b")),
        (Around::new(served()).allow(&["best"]), Some("b")),
        (Around::new(served()).allow(&["a", "best"]), None),
        (Around::new(served()).allow(&["c"]), None),
        (Around::new(Served::models(&[])), None),
    ] {
        for asked in [without(), empty()] {
            let prepared = run(around.prepare(asked));
            let kind = prepared.as_ref().err().map(|error| error.kind);
            let found = prepared.as_ref().ok().and_then(model);
            assert_eq!(found, expected, "{:?}", around.grant.models);
            assert_eq!(kind, expected.is_none().then_some(ErrorKind::BadRequest));
        }
    }
}

#[test]
fn a_key_for_certain_models_gets_the_same_answer_for_foreign_and_for_unknown_ones() {
    let around = Around::new(Served::models(&["a", "secret"]).with_alias("alias", "secret"));
    let around = around.allow(&["a"]);
    let message = |name: &str| {
        let error = run(around.prepare(post(CHAT, &chat(name)))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ModelNotFound, "{name}");
        assert_eq!(error.param, Some("model"));
        assert!(!error.message.replace(name, "").contains("secret"), "{}", error.message);
        error.message.replace(name, "NAME")
    };
    let unknown = message("nothing");
    for name in ["secret", "alias"] {
        assert_eq!(message(name), unknown);
    }
    assert_eq!(model(&around.prepared(post(CHAT, &chat("a")))), Some("a"));
}

#[test]
fn a_key_may_allow_an_alias_and_not_the_model_behind_it() {
    let around = Around::new(Served::models(&["b"]).with_alias("best", "b")).allow(&["best"]);
    assert_eq!(model(&around.prepared(post(CHAT, &chat("best")))), Some("b"));
    assert_eq!(around.refused(post(CHAT, &chat("b"))), ErrorKind::ModelNotFound);
}

#[test]
fn a_longer_prefix_goes_before_a_shorter_one_and_both_before_the_endpoints() {
    let served = Served::models(&["a"])
        .with_route(prefixed("/v1", Protocol::OpenAi))
        .with_route(prefixed("/v1/team", Protocol::OpenAi));
    let around = Around::new(served);
    for (path, expected) in [
        ("/v1/chat/completions", "/v1"),
        ("/v1/team/chat/completions", "/v1/team"),
        ("/v1/team", "/v1/team"),
        ("/v1/teams/chat/completions", "/v1"),
        ("/rerank", "all"),
    ] {
        let prepared = around.prepared(post(path, &chat("a")));
        assert_eq!(prepared.route.spec.name.as_str(), expected, "{path}");
    }
}

#[test]
fn a_path_that_servers_may_read_in_two_ways_passes_no_prefix() {
    let served = Served::models(&["a"])
        .with_route(prefixed("/open", Protocol::Raw))
        .with_route(prefixed("/open/inner", Protocol::Raw));
    let around = Around::new(served);
    for path in [
        "/open/../closed",
        "/open/%2e%2e/closed",
        "/open/./x",
        "/open//x",
        "/open/a%2fb",
        "/open/a%5cb",
        "/open/a;b",
        // The prefix of another route behind an escape.
        "/open/%69nner/x",
    ] {
        assert_eq!(around.refused(Asked::post(path, "x")), ErrorKind::BadRequest, "{path}");
    }
    for path in ["/open/x", "/open/a%20b", "/open/%E4%BD%A0", "/open/x?next=/../y"] {
        assert_eq!(around.prepared(Asked::post(path, "x")).path, path);
    }
}

#[test]
fn a_request_without_a_body_below_a_prefix_that_reads_bodies_is_told_so() {
    let around = Around::new(Served::models(&["a"]).with_route(prefixed("/t", Protocol::OpenAi)));
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        let error = run(around.prepare(Asked::new(method, "/t/v1/models", ""))).unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadRequest);
        assert!(error.message.starts_with(method), "{}", error.message);
    }
    let raw = Around::new(Served::models(&["a"]).with_route(prefixed("/t", Protocol::Raw)));
    assert_eq!(raw.prepared(Asked::get("/t/v1/models")).path, "/t/v1/models");
}

#[test]
fn a_route_s_default_model_serves_requests_that_name_none() {
    let with_default =
        |protocol| RouteSpec { default_model: Some("b".into()), ..prefixed("/t", protocol) };
    let served = |protocol| Served::models(&["a", "b"]).with_route(with_default(protocol));
    let around = Around::new(served(Protocol::OpenAi));
    let path = "/t/v1/chat/completions";
    assert_eq!(model(&around.prepared(Asked::post(path, "{}"))), Some("b"));
    assert_eq!(model(&around.prepared(post(path, &chat("a")))), Some("a"));
    for protocol in [Protocol::Raw, Protocol::KServeV2] {
        let around = Around::new(served(protocol));
        assert_eq!(model(&around.prepared(Asked::post("/t/x", "{}"))), Some("b"), "{protocol:?}");
        // The key must allow the model, even if the request does not name it.
        let around = Around::new(served(protocol)).allow(&["a"]);
        assert_eq!(around.refused(Asked::post("/t/x", "{}")), ErrorKind::ModelNotFound);
        let around = Around::new(served(protocol)).allow(&["b"]);
        assert_eq!(model(&around.prepared(Asked::post("/t/x", "{}"))), Some("b"));
    }
}

#[test]
fn a_key_for_certain_models_passes_no_route_that_knows_none() {
    for protocol in [Protocol::Raw, Protocol::KServeV2] {
        let served = || Served::models(&["a"]).with_route(prefixed("/t", protocol));
        let around = Around::new(served()).allow(&["a"]);
        assert_eq!(around.refused(Asked::post("/t/x", "x")), ErrorKind::ModelNotAllowed);
        let prepared = Around::new(served()).prepared(Asked::post("/t/x", "x"));
        assert_eq!(model(&prepared), None);
    }
}

#[test]
fn fields_that_steer_an_engine_pass_only_where_the_route_allows_them() {
    let priority = EngineFields::named("priority").unwrap();
    let routes = [(EngineFields::NONE, false), (priority, true)];
    for (engine_fields, passes) in routes {
        let mut served = Served::models(&["a"]);
        served.routes[0].engine_fields = engine_fields;
        let around = Around::new(served);
        let mut body = chat("a");
        body["priority"] = json!(1);
        let found = run(around.prepare(post(CHAT, &body)));
        assert_eq!(found.is_ok(), passes, "{engine_fields:?}");
        body["kv_transfer_params"] = json!({});
        assert_eq!(around.refused(post(CHAT, &body)), ErrorKind::BadRequest, "another field");
    }
}

#[test]
fn an_upload_names_its_model_and_cannot_be_changed() {
    let form = |fields: &[(&str, &str)]| {
        let part = |(name, value): &(&str, &str)| {
            format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body: String = fields.iter().map(part).collect();
        let asked = Asked::post("/v1/audio/transcriptions", body + "--x--\r\n");
        asked.with("content-type", "multipart/form-data; boundary=x")
    };
    let around = Around::new(Served::models(&["a"]).with_alias("best", "a"));
    assert_eq!(model(&around.prepared(form(&[("model", "a"), ("file", "y")]))), Some("a"));
    assert_eq!(model(&around.prepared(form(&[("file", "y")]))), Some("a"), "the only model");
    for fields in [&[("model", "best")][..], &[("model", "a"), ("priority", "1")]] {
        assert_eq!(around.refused(form(fields)), ErrorKind::BadRequest, "{fields:?}");
    }
    assert_eq!(around.refused(form(&[("model", "c")])), ErrorKind::ModelNotFound);
    // A replica of several models would serve any of them.
    let mut served = Served::models(&[]);
    served.replicas = vec![replica("r", &["a", "b"])];
    let around = Around::new(served).allow(&["a"]);
    assert_eq!(around.refused(form(&[("file", "y")])), ErrorKind::BadRequest);
    assert_eq!(model(&around.prepared(form(&[("model", "a")]))), Some("a"));
}

#[test]
fn a_v2_path_names_its_model_and_an_alias_is_replaced_there() {
    let around = Around::new(Served::models(&["a", "meta/b"]).with_alias("best", "meta/b"));
    for (path, served, sent_path) in [
        ("/v2/models/a/infer", "a", "/v2/models/a/infer"),
        ("/v2/models/a", "a", "/v2/models/a"),
        ("/v2/models/a/", "a", "/v2/models/a"),
        ("/v2/models/%61/infer", "a", "/v2/models/%61/infer"),
        ("/v2/models/best/infer?x=1", "meta/b", "/v2/models/meta%2Fb/infer?x=1"),
        ("/v2/models/best/ready", "meta/b", "/v2/models/meta%2Fb/ready"),
    ] {
        let prepared = around.prepared(Asked::post(path, "{}"));
        assert_eq!(model(&prepared), Some(served), "{path}");
        assert_eq!(prepared.path, sent_path);
        assert_eq!(prepared.flavour, Flavour::KServeV2);
    }
    assert_eq!(around.refused(Asked::post("/v2/models/c/infer", "{}")), ErrorKind::ModelNotFound);
    // Servers may split a name at an encoded slash, and read what is no text in any way.
    for path in ["/v2/models/meta%2Fb/infer", "/v2/models/%FF/infer", "/v2/models/a//infer"] {
        assert_eq!(around.refused(Asked::post(path, "{}")), ErrorKind::RouteNotFound, "{path}");
    }
    let delete = Asked::new("DELETE", "/v2/models/a", "");
    assert_eq!(around.refused(delete), ErrorKind::MethodNotAllowed);
}

#[test]
fn a_version_must_be_known_and_be_the_one_of_the_name() {
    let mut served = Served::models(&["a"]);
    served.replicas[0].versions.insert("a".into(), vec!["1".into(), "2".into()]);
    let around = Around::new(served);
    let prepared = around.prepared(Asked::post("/v2/models/a/versions/2/infer", "{}"));
    assert_eq!(prepared.path, "/v2/models/a/versions/2/infer");
    let pin = prepared.target.pin.as_ref().unwrap();
    assert_eq!(pin.version.as_str(), "2");
    for path in ["/v2/models/a/versions/3/infer", "/v2/models/a/versions/%32%33/infer"] {
        assert_eq!(around.refused(Asked::post(path, "{}")), ErrorKind::ModelNotFound, "{path}");
    }
}

#[test]
fn only_streams_of_completions_ask_for_usage_and_only_if_the_client_does_not() {
    let mut served = Served::models(&["a"]);
    let around = Around::new(Served::models(&["a"]));
    let usage = |around: &Around, path: &str, extra: Value| {
        let mut body = chat("a");
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        around.prepared(post(path, &body)).usage
    };
    let stream = json!({"stream": true});
    let asked = json!({"stream": true, "stream_options": {"include_usage": true}});
    assert!(usage(&around, CHAT, stream.clone()).is_some());
    assert!(usage(&around, "/v1/completions", stream.clone()).is_some());
    assert!(usage(&around, CHAT, json!({})).is_none(), "no stream");
    assert!(usage(&around, "/v1/responses", stream.clone()).is_none(), "always has its usage");
    assert!(usage(&around, CHAT, asked.clone()).is_none(), "asks for itself");
    served.routes[0].continuation = Some(ContinuationSpec::default());
    let around = Around::new(served);
    let followed = usage(&around, CHAT, asked).unwrap();
    assert!(followed.is_followed, "a stream that may be continued is counted all along");
    // For a guest its sender decides.
    let sender = Around { guest: Some(guest(Some("a"))), ..around };
    assert!(usage(&sender, CHAT, stream).is_none());
}

#[test]
fn a_stream_is_continued_where_the_route_says_so_and_the_body_allows_it() {
    let mut served = Served::models(&["a"]);
    served.routes[0].continuation = Some(ContinuationSpec::default());
    let around = Around::new(served);
    let continuing = |path: &str, extra: Value| {
        let mut body = json!({"model": "a", "stream": true});
        match path {
            CHAT => body["messages"] = json!([{"role": "user", "content": "x"}]),
            _ => body["prompt"] = json!("x"),
        }
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let prepared = around.prepared(post(path, &body));
        (prepared.continuing.is_some(), prepared.is_followed())
    };
    assert_eq!(continuing(CHAT, json!({})), (true, true));
    assert_eq!(continuing(CHAT, json!({"stream": false})), (false, false));
    assert_eq!(continuing("/v1/responses", json!({})), (false, false));
    assert_eq!(continuing(CHAT, json!({"n": 2})), (true, false), "the reason is kept");
    assert_eq!(continuing("/v1/completions", json!({"best_of": 3})), (true, false));
}

#[test]
fn a_reply_in_one_piece_is_expected_where_text_is_generated() {
    let around = Around::new(Served::models(&["a"]));
    let whole = |path: &str, stream: bool, most: Option<u32>| {
        let mut body = json!({"model": "a", "stream": stream, "input": "x"});
        body["max_tokens"] = json!(most);
        around.prepared(post(path, &body)).inquiry.whole_tokens
    };
    let usual = whole(CHAT, false, None).unwrap();
    assert!(usual > 8);
    assert_eq!(whole(CHAT, false, Some(8)), Some(8));
    assert_eq!(whole(CHAT, false, Some(u32::MAX)), Some(usual), "the bound is not what is usual");
    assert_eq!(whole(CHAT, true, Some(8)), None);
    assert_eq!(whole("/v1/embeddings", false, None), None);
    assert_eq!(whole("/v1/responses/input_tokens", false, None), None);
}

#[test]
fn a_tenant_that_is_isolated_has_prompts_and_a_salt_of_its_own() {
    let mut served = Served::models(&["a"]);
    served.replicas[0].salt_field = Some(SaltField::CacheSalt);
    let mut around = Around::new(served);
    let body = json!({"model": "a", "messages": [{"role": "user", "content": "x".repeat(2_000)}]});
    let mut prepared = |tenant: Option<&str>, is_isolated| {
        around.grant.tenant = tenant.map(TenantName::from);
        around.grant.is_isolated = is_isolated;
        let prepared = around.prepared(post(CHAT, &body));
        let has_salt = prepared.draft.as_ref().is_some_and(BodyDraft::has_salt);
        (prepared.inquiry.prefix.as_slice().to_vec(), has_salt, prepared.inquiry.is_isolated)
    };
    let (shared, _, _) = prepared(None, false);
    assert!(!shared.is_empty());
    assert_eq!(prepared(Some("t"), false), (shared.clone(), false, false), "shares its cache");
    let (own, has_salt, is_isolated) = prepared(Some("t"), true);
    assert!(has_salt && is_isolated);
    assert!(own.iter().all(|block| !shared.contains(block)));
    let (other, ..) = prepared(Some("u"), true);
    assert!(own.iter().all(|block| !other.contains(block)));
    assert_eq!(prepared(Some("t"), true).0, own);
}

#[test]
fn a_guest_is_served_as_its_sender_resolved_it() {
    let around = Around::new(Served::models(&["a", "b"]));
    let mut terms = guest(Some("b"));
    (terms.hop, terms.deaths) = (3, 1);
    let around = Around { guest: Some(terms), ..around };
    // The sender has an alias that this node does not know yet.
    let prepared = around.prepared(post(CHAT, &chat("alias-there")));
    assert_eq!(model(&prepared), Some("b"));
    assert_eq!((prepared.inquiry.hop, prepared.deaths), (3, 1));
    assert!(prepared.target.fallback.is_none());
}

#[test]
fn the_client_s_time_limit_counts_up_to_that_of_the_route() {
    let around = Around::new(Served::models(&["a"]));
    let timed = |value: &str| post(CHAT, &chat("a")).with("x-request-timeout-ms", value);
    let left_s = |asked: Asked| {
        let started = std::time::Instant::now();
        let deadline = around.prepared(asked).inquiry.deadline;
        deadline.remaining(started).as_secs_f64().round()
    };
    assert_eq!(left_s(timed("5000")), 5.0);
    assert_eq!(left_s(timed(" 90000 ")), 90.0);
    assert_eq!(left_s(timed("99999999999")), 3_600.0);
    assert_eq!(left_s(post(CHAT, &chat("a"))), 3_600.0);
    for odd in ["", "soon", "-1", "1.5", "1s", "99999999999999999999"] {
        assert_eq!(around.refused(timed(odd)), ErrorKind::BadRequest, "{odd:?}");
    }
}

#[test]
fn a_request_that_no_region_may_serve_is_refused_and_counted() {
    let refused = |rules: Residency, knows_countries| {
        let mut served = Served::models(&["a"]);
        served.routes[0].residency = rules;
        let around = Around::new(served);
        let regions = spillway_view::Regions {
            knows_countries,
            ..spillway_view::Regions::alone(std::time::Instant::now())
        };
        around.gateway.routing.replace_regions(regions);
        let asked = post(CHAT, &chat("a"));
        let head = post(CHAT, &chat("a")).head();
        let prepared = around.prepared(asked);
        let found = around.surround(&head, |around| around.check_regions(&prepared));
        let counted = around.gateway.counters.residency()[0].1;
        (found.err().map(|error| error.kind), counted)
    };
    let regions = |names: &[&str]| Residency::new(names.iter().map(|name| (*name).into()), []);
    assert_eq!(refused(Residency::default(), true), (None, 0));
    assert_eq!(refused(regions(&["eu", "us"]), true), (None, 0));
    assert_eq!(refused(regions(&["us"]), true), (Some(ErrorKind::RegionNotAllowed), 1));
    let country = || Residency::new([], ["DE".parse().unwrap()]);
    assert_eq!(refused(country(), true), (Some(ErrorKind::RegionNotAllowed), 1));
    // A new node may yet learn of a region there.
    assert_eq!(refused(country(), false), (Some(ErrorKind::NoReplica), 0));
}

#[test]
fn a_body_up_to_the_limit_is_read_and_a_byte_more_is_not() {
    let limits = spillway_transport::Limits { body_bytes_max: 1_000, ..Default::default() };
    let around = Around::with_limits(Served::models(&["a"]), limits);
    let body = |bytes: usize| {
        let mut body = chat("a").to_string();
        body.push_str(&" ".repeat(bytes - body.len()));
        bytes::Bytes::from(body)
    };
    let whole = |bytes| Asked::post(CHAT, body(bytes));
    let cut = |bytes: usize| {
        let (left, right) = (body(bytes).slice(..500), body(bytes).slice(500..));
        whole(bytes).in_pieces(Pieces::of([left, right]).unannounced())
    };
    for asked in [whole(1_000), cut(1_000)] {
        assert_eq!(sent(&around.prepared(asked)).len(), 1_000);
    }
    for asked in [whole(1_001), cut(1_001)] {
        assert_eq!(around.refused(asked), ErrorKind::BodyTooLarge);
    }
}
