use serde_json::{Value, json};
use spillway_protocol::{EngineFields, HashBy, Protocol};
use spillway_route::Policy;
use spillway_types::Residency;
use spillway_view::{ContinuationSpec, RouteSpec};

use super::*;
use crate::test_around::{
    Around, Asked, Served, guest, model, prefixed, replica, route, run, sent,
};

const CHAT: &str = "/v1/chat/completions";

fn chat(model: &str) -> Asked {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "x".repeat(900)}]});
    Asked::post(CHAT, body.to_string())
}

/// Changes a request to its next model.
fn fall_back(around: &Around, prepared: &mut Prepared, path: &str) -> bool {
    let head = Asked::post(path, "").head();
    let view = around.gateway.routing.view();
    prepared.fall_back(&view, &around.gateway.routing, &head)
}

#[test]
fn a_request_falls_back_to_each_model_once_in_their_order() {
    let served = Served::models(&["a", "b", "c"]).with_fallback("a", &["b", "none", "c"]);
    let around = Around::new(served);
    let mut prepared = around.prepared(chat("a"));
    assert!(prepared.has_stand_in() && !prepared.starts_elsewhere());
    assert_eq!(prepared.fell_back_from(), None);
    let first = prepared.inquiry.prefix.clone();
    for next in ["b", "c"] {
        assert!(fall_back(&around, &mut prepared, CHAT));
        assert_eq!(model(&prepared), Some(next));
        let body: Value = serde_json::from_str(&sent(&prepared)).unwrap();
        assert_eq!(body["model"], next);
        assert_eq!(prepared.fell_back_from().map(ModelName::as_str), Some("a"));
        assert_ne!(prepared.inquiry.prefix, first, "another model has another cache");
    }
    assert!(!prepared.has_stand_in());
    assert!(!fall_back(&around, &mut prepared, CHAT));
    assert_eq!(model(&prepared), Some("c"), "the last one stays");
}

#[test]
fn a_key_falls_back_to_the_models_that_it_allows() {
    let served = || Served::models(&["a", "b", "c"]).with_fallback("a", &["b", "c"]);
    let around = Around::new(served()).allow(&["a", "c"]);
    let mut prepared = around.prepared(chat("a"));
    assert!(fall_back(&around, &mut prepared, CHAT));
    assert_eq!(model(&prepared), Some("c"));
    assert!(!fall_back(&around, &mut prepared, CHAT));
    let around = Around::new(served()).allow(&["a"]);
    assert!(!around.prepared(chat("a")).has_stand_in());
}

#[test]
fn a_model_that_no_replica_serves_starts_with_its_stand_in() {
    let around =
        Around::new(Served::models(&["b"]).with_fallback("a", &["b"]).with_alias("x", "a"));
    let refused = run(around.prepare(chat("none"))).unwrap_err();
    assert_eq!(refused.kind, spillway_protocol::ErrorKind::ModelNotFound);
    let mut served = Served::models(&["b"]).with_fallback("a", &["b"]);
    served.elsewhere.insert("a".into());
    let around = Around::new(served);
    let mut prepared = around.prepared(chat("a"));
    assert!(prepared.starts_elsewhere());
    assert!(fall_back(&around, &mut prepared, CHAT));
    assert_eq!((model(&prepared), prepared.starts_elsewhere()), (Some("b"), false));
}

#[test]
fn requests_that_must_not_change_their_model_have_no_stand_in() {
    let mut served = Served::models(&["a", "b"]).with_fallback("a", &["b"]);
    served.replicas[0].versions.insert("a".into(), vec!["1".into()]);
    let around = Around::new(served);
    let unversioned = around.prepared(Asked::post("/v2/models/a/infer", "{}"));
    assert!(unversioned.has_stand_in());
    let versioned = around.prepared(Asked::post("/v2/models/a/versions/1/infer", "{}"));
    assert!(!versioned.has_stand_in(), "the client wants this version or none");
    let form = "--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\na\r\n--x--\r\n";
    let form = Asked::post("/v1/audio/transcriptions", form);
    let form = form.with("content-type", "multipart/form-data; boundary=x");
    assert!(!around.prepared(form).has_stand_in(), "a form cannot be changed");
    let around = Around { guest: Some(guest(Some("a"))), ..around };
    assert!(!around.prepared(chat("a")).has_stand_in(), "its sender decides");
}

#[test]
fn a_v2_path_falls_back_to_the_path_of_the_other_model() {
    let served = Served::models(&["a", "meta/b"]).with_fallback("a", &["meta/b"]);
    let around = Around::new(served);
    let path = "/v2/models/a/infer?x=1";
    let mut prepared = around.prepared(Asked::post(path, "{}"));
    assert!(fall_back(&around, &mut prepared, path));
    assert_eq!(prepared.path, "/v2/models/meta%2Fb/infer?x=1");
}

#[test]
fn the_route_of_the_stand_in_decides_from_then_on() {
    let mut served = Served::models(&["a", "b"]).with_fallback("a", &["b"]);
    let of_b = Residency::new(["us".into()], []);
    served.routes = vec![
        RouteSpec {
            models: vec!["a".into()],
            continuation: Some(ContinuationSpec::default()),
            ..route("first")
        },
        RouteSpec {
            models: vec!["b".into()],
            policy: Policy::ConsistentHash,
            hash_by: Some("user".parse::<HashBy>().unwrap()),
            residency: of_b.clone(),
            ..route("second")
        },
    ];
    let around = Around::new(served);
    let messages = json!([{"role": "user", "content": "x"}]);
    let body = json!({"model": "a", "stream": true, "user": "ann", "messages": messages});
    let mut prepared = around.prepared(Asked::post(CHAT, body.to_string()));
    assert!(prepared.usage.is_some_and(|usage| usage.is_followed) && prepared.is_followed());
    assert_eq!(prepared.inquiry.affinity, None);
    assert!(fall_back(&around, &mut prepared, CHAT));
    assert_eq!(prepared.route.spec.name.as_str(), "second");
    assert_eq!(prepared.inquiry.residency, of_b);
    assert!(prepared.inquiry.affinity.is_some(), "the policy there hashes");
    assert!(prepared.usage.is_some_and(|usage| !usage.is_followed) && !prepared.is_followed());
}

#[test]
fn a_stand_in_whose_route_refuses_the_request_is_passed_over() {
    let mut served = Served::models(&["a", "b", "c"]).with_fallback("a", &["b", "c"]);
    let open = EngineFields::named("priority").unwrap();
    let of = |name: &str, models: &[&str], engine_fields| RouteSpec {
        models: models.iter().map(|model| (*model).into()).collect(),
        engine_fields,
        ..route(name)
    };
    served.routes = vec![of("open", &["a", "c"], open), of("strict", &["b"], EngineFields::NONE)];
    let around = Around::new(served);
    let asked = || Asked::post(CHAT, r#"{"model":"a","priority":1,"messages":[]}"#);
    let mut prepared = around.prepared(asked());
    assert!(fall_back(&around, &mut prepared, CHAT));
    assert_eq!(model(&prepared), Some("c"));
    assert_eq!(prepared.route.spec.name.as_str(), "open");
}

#[test]
fn a_path_prefix_binds_a_request_to_its_route() {
    let mut served = Served::models(&[]).with_fallback("a", &["b"]);
    served.replicas = vec![replica("r", &["a"]), replica("s", &["b"])];
    served.replicas[0].pool = "inner".to_owned();
    let inner = RouteSpec { pool: Some("inner".to_owned()), ..prefixed("/t", Protocol::OpenAi) };
    let around = Around::new(served.with_route(inner));
    let body = r#"{"model":"a","messages":[]}"#;
    let below = around.prepared(Asked::post("/t/v1/chat/completions", body));
    assert!(!below.has_stand_in(), "the pool of the route has no such model");
    assert!(around.prepared(Asked::post(CHAT, body)).has_stand_in());
}

#[test]
fn a_request_that_has_begun_elsewhere_gives_its_stand_ins_up() {
    let around = Around::new(Served::models(&["a", "b"]).with_fallback("a", &["b"]));
    let mut prepared = around.prepared(chat("a"));
    prepared.stay_with_model();
    assert!(!prepared.has_stand_in() && !fall_back(&around, &mut prepared, CHAT));
    assert_eq!(model(&prepared), Some("a"));
}
