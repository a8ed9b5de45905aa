use http::Request;
use serde_json::Value;
use spillway_protocol::Protocol;
use spillway_types::{AwayReason, Steering};
use spillway_view::{Regions, RouteSpec};

use super::*;
use crate::test_around::{Around, Served, prefixed, route};

fn answer(around: &Around, method: &str, path: &str) -> Option<Result<LocalAnswer, GatewayError>> {
    let view = around.gateway.routing.view();
    let head = Request::builder().method(method).uri(path).body(()).unwrap().into_parts().0;
    let endpoint = Endpoint::classify(head.uri.path());
    local_answer(&around.gateway, &view, &around.grant, &head.method, endpoint)
}

#[track_caller]
fn status(around: &Around, path: &str) -> u16 {
    let answer = answer(around, "GET", path).unwrap().unwrap();
    assert_eq!(answer.response.headers()[header::CONTENT_TYPE], "application/json");
    let body: Value = serde_json::from_slice(answer.response.body()).unwrap();
    assert!(body.is_object(), "{body}");
    answer.response.status().as_u16()
}

fn listed(around: &Around) -> Vec<String> {
    let answer = answer(around, "GET", "/v1/models").unwrap().unwrap();
    let body: Value = serde_json::from_slice(answer.response.body()).unwrap();
    let ids = body["data"].as_array().unwrap().iter();
    ids.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_is_live_while_it_runs_and_ready_while_it_can_serve() {
    let serving = Around::new(Served::models(&["a"]));
    let empty = Around::new(Served::models(&[]));
    let leaving = Around::new(Served::models(&["a"]));
    leaving.gateway.switches.announce_leaving();
    let unsure = Around::new(Served::models(&["a"]));
    unsure.gateway.clients.quotas.set_ready(false);
    for (around, expected) in [(&serving, 200), (&empty, 503), (&leaving, 503), (&unsure, 503)] {
        for path in ["/livez", "/v2/health/live"] {
            assert_eq!(status(around, path), 200);
        }
        for path in ["/readyz", "/health", "/ping", "/v2/health/ready"] {
            assert_eq!(status(around, path), expected, "{path}");
        }
    }
}

#[test]
fn the_steering_of_a_node_is_its_status() {
    let around = Around::new(Served::models(&["a"]));
    for (steering, expected) in [(Steering::Send, 200), (Steering::Away(AwayReason::Shedding), 503)]
    {
        around.gateway.switches.steer(steering);
        assert_eq!(status(&around, "/steering"), expected);
    }
}

#[test]
fn only_health_checks_leave_no_outcome_and_other_methods_are_refused() {
    let around = Around::new(Served::models(&["a"]));
    for (path, is_health) in [
        ("/livez", true),
        ("/readyz", true),
        ("/steering", true),
        ("/v2/health/live", true),
        ("/v2/health/ready", true),
        ("/v2", false),
        ("/v1/models", false),
        ("/v1/models/a", false),
    ] {
        for method in ["GET", "HEAD"] {
            let found = answer(&around, method, path).unwrap().unwrap();
            assert_eq!(found.is_health, is_health, "{path}");
        }
        let refused = answer(&around, "POST", path).unwrap().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::MethodNotAllowed, "{path}");
    }
    for path in ["/v1/chat/completions", "/v2/models/a", "/other"] {
        assert!(answer(&around, "GET", path).is_none(), "{path}");
    }
}

#[test]
fn a_key_sees_the_models_that_it_may_ask_for_and_no_others() {
    let served = || {
        let mut served = Served::models(&["a", "b", "meta/c"]).with_alias("best", "b");
        served.elsewhere.insert("far".into());
        served
    };
    let all = Around::new(served());
    assert_eq!(listed(&all), ["a", "b", "far", "meta/c", "best"]);
    for (allowed, expected) in [
        (&["a"][..], &["a"][..]),
        // A key for a model may use its aliases.
        (&["b"], &["b", "best"]),
        (&["best"], &["best"]),
        (&["far", "none"], &["far"]),
        (&["none"], &[]),
    ] {
        let around = Around::new(served()).allow(allowed);
        assert_eq!(listed(&around), expected, "{allowed:?}");
        for name in ["a", "b", "meta/c", "best", "far"] {
            let path = format!("/v1/models/{}", name.replace('/', "%2F"));
            let is_found = answer(&around, "GET", &path).unwrap().is_ok();
            assert_eq!(is_found, expected.contains(&name), "{name} by a key for {allowed:?}");
        }
    }
}

#[test]
fn a_name_in_a_path_may_have_slashes_and_escapes_and_a_bad_one_is_unknown() {
    let around = Around::new(Served::models(&["meta/c"]));
    for path in ["/v1/models/meta/c", "/v1/models/meta%2Fc", "/v1/models/%6deta%2fc"] {
        assert_eq!(status(&around, path), 200, "{path}");
    }
    for path in ["/v1/models/meta", "/v1/models/Meta%2Fc", "/v1/models/meta%2Fc%20"] {
        let refused = answer(&around, "GET", path).unwrap().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::ModelNotFound, "{path}");
    }
    for path in ["/v1/models/%FF", "/v1/models/meta%2", "/v1/models//meta"] {
        assert!(answer(&around, "GET", path).is_none(), "{path} is no endpoint");
    }
}

#[test]
fn a_model_that_no_built_in_endpoint_leads_to_is_not_listed() {
    let mut served = Served::models(&["a", "b"]);
    served.routes = vec![
        RouteSpec { models: vec!["a".into()], ..route("some") },
        prefixed("/all", Protocol::OpenAi),
    ];
    let around = Around::new(served);
    assert_eq!(listed(&around), ["a"]);
    assert!(answer(&around, "GET", "/v1/models/b").unwrap().is_err());
    let view = around.gateway.routing.view();
    assert!(is_listed(&view, "a") && !is_listed(&view, "b") && !is_listed(&view, "%FF"));
}

#[test]
fn an_unknown_model_is_refused_for_good_only_if_all_models_are_known() {
    let error = |around: &Around| {
        let view = around.gateway.routing.view();
        unknown_model(&around.gateway.routing, &view, &around.grant, "x\ny")
    };
    let known = Around::new(Served::models(&["a", "b"]));
    let refused = error(&known);
    assert_eq!(refused.kind, ErrorKind::ModelNotFound);
    assert!(refused.message.ends_with("does not exist; served here: a, b"), "{}", refused.message);
    assert!(!refused.message.contains('\n'), "the name is escaped: {}", refused.message);
    let none = error(&Around::new(Served::models(&[])));
    assert!(none.message.ends_with("no model is served here"), "{}", none.message);
    let by_key = error(&Around::new(Served::models(&["a", "b"])).allow(&["b"]));
    let message = &by_key.message;
    assert!(message.ends_with("or is not for this key; served here: b"), "{message}");
    // The models of other regions are on their way, or those of a replica.
    let regions = Regions { knows_models: false, ..Regions::alone(std::time::Instant::now()) };
    known.gateway.routing.replace_regions(regions);
    let mut served = Served::models(&["a"]);
    served.unread.insert("replica-of-a".into());
    for around in [known, Around::new(served)] {
        let refused = error(&around);
        assert_eq!(refused.kind, ErrorKind::NoReplica, "{}", refused.message);
        assert!(refused.retry_after.is_some(), "worth another try");
        assert_eq!(refused.param, Some("model"));
    }
}

#[test]
fn a_model_that_a_newer_view_has_is_worth_another_try() {
    let around = Around::new(Served::models(&["a"]));
    let older = around.gateway.routing.view();
    let mut newer = Served::models(&["a"]);
    newer.elsewhere.insert("b".into());
    around.gateway.routing.replace_view(newer.view());
    let kind = |grant: &Grant| unknown_model(&around.gateway.routing, &older, grant, "b").kind;
    assert_eq!(kind(&around.grant), ErrorKind::NoReplica);
    let other = Around::new(Served::models(&["a"])).allow(&["a"]);
    assert_eq!(kind(&other.grant), ErrorKind::ModelNotFound, "nothing shows to other keys");
}

#[test]
fn a_message_names_twenty_models_at_most() {
    let names: Vec<String> = (0..21).map(|number| format!("m{number:02}")).collect();
    let named = |count: usize| {
        let names: Vec<&str> = names[..count].iter().map(String::as_str).collect();
        let around = Around::new(Served::models(&names));
        named_here(&around.gateway.routing.view(), &around.grant)
    };
    assert_eq!(named(0), None);
    assert_eq!(named(2).as_deref(), Some("m00, m01"));
    assert!(named(20).unwrap().ends_with("m18, m19"));
    assert!(named(21).unwrap().ends_with("m18, m19, …"));
}
