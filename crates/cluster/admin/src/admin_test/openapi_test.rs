//! Tests of the OpenAPI document: it has every endpoint, and every answer matches it.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use spillway_cluster_state::{Actor, Command, DiskId, Fingerprint, NodeSpec, WIRE};

use super::client::Client;
use super::schema::faults;
use super::world::World;
use crate::{AdminConfig, openapi};

/// Checks an answer to a request for `path` against the document. A path that the document does not
/// have must be answered with an error.
pub(super) fn check_answer(method: &Method, path: &str, status: StatusCode, body: &Value) {
    let document = openapi();
    let Some(operation) = operation(method, path) else {
        assert!(status.is_client_error() || status.is_server_error(), "{method} {path}: {status}");
        check(document, &json!({ "$ref": "#/components/schemas/ErrorAnswer" }), body, path);
        return;
    };
    let responses = &operation["responses"];
    let exact = responses.get(status.as_str());
    let kind = if status.is_success() { "2XX" } else { "default" };
    let response = exact.or_else(|| responses.get(kind));
    let response = response.unwrap_or_else(|| panic!("{method} {path}: {status} is not there"));
    if let Some(schema) = response["content"].pointer("/application~1json/schema") {
        check(document, schema, body, path);
    }
}

fn check(document: &Value, schema: &Value, body: &Value, path: &str) {
    let faults = faults(document, schema, body);
    assert!(faults.is_empty(), "{path}: {faults:#?} in {body:#}");
}

fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap();
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let wanted: Vec<&str> = template.split('/').collect();
        wanted.len() == parts.len()
            && wanted
                .iter()
                .zip(&parts)
                .all(|(wanted, part)| wanted.starts_with('{') || wanted == part)
    };
    let paths = openapi()["paths"].as_object().unwrap();
    let (_, methods) = paths.iter().find(|(template, _)| fits(template))?;
    methods.get(method.as_str().to_ascii_lowercase())
}

#[test]
fn a_body_that_may_be_left_out_is_not_required() {
    for (method, path, expected) in [
        (Method::PUT, "/v1/revoked-certificates/5c1d", false),
        (Method::POST, "/v1/keys", false),
        (Method::POST, "/v1/join-tokens", false),
        (Method::PUT, "/v1/tenants/acme", true),
        (Method::PATCH, "/v1/tenants/acme", false),
    ] {
        let body = &operation(&method, path).expect(path)["requestBody"];
        assert_eq!(body["required"], expected, "{method} {path}");
    }
}

/// Client that notes the operations it has called.
struct Tour {
    client: Client,
    visited: BTreeSet<String>,
    /// Orders that were given: each leaves a record in the audit trail.
    orders: usize,
}

impl Tour {
    async fn go(&mut self, method: Method, path: &str, body: Value) -> Value {
        let id = operation(&method, path).expect(path)["operationId"].as_str().unwrap();
        let asks = ["post_explain", "post_splits_split_gate"].contains(&id);
        let is_order = method != Method::GET && !asks;
        self.visited.insert(id.to_owned());
        let done = self.client.send(method, path, &body).await.done();
        let changes_nothing = path.contains("dry_run") || done["outcome"] == "unchanged";
        self.orders += usize::from(is_order && !changes_nothing);
        done
    }

    async fn get(&mut self, path: &str) -> Value {
        self.go(Method::GET, path, Value::Null).await
    }

    async fn put(&mut self, path: &str, body: Value) {
        // The answers to a dry run and to the write both match the document.
        let query = "create=true&dry_run=true";
        let dry = self.go(Method::PUT, &format!("{path}?{query}"), body.clone()).await;
        assert_eq!(dry["dry_run"], true);
        let done = self.go(Method::PUT, &format!("{path}?create=true"), body).await;
        assert_eq!(done["outcome"], "applied", "{path}");
        let same = self.go(Method::PATCH, path, json!({})).await;
        assert_eq!(same["outcome"], "unchanged", "{path}");
        self.get(path).await;
    }

    async fn post(&mut self, path: &str, body: Value) -> Value {
        self.go(Method::POST, path, body).await
    }

    async fn delete(&mut self, path: &str) {
        self.go(Method::DELETE, path, Value::Null).await;
    }

    async fn write_everything(&mut self) {
        self.put("/v1/nodes/a", json!({ "role": "learner" })).await;
        self.put("/v1/nodes/a", json!({ "role": "any" })).await;
        let region = json!({ "country": "DE", "price_ms": 3, "rtt_hints_ms": { "region-a": 80 } });
        self.put("/v1/regions/eu", region).await;
        let replica = json!({ "url": "http://10.0.0.1:8000", "models": ["m/1"], "capacity": 4,
            "lease_ms": 60_000 });
        self.put("/v1/replicas/eu/gpu-1", replica).await;
        self.put("/v1/models/meta%2Fsmall", json!({ "fallbacks": ["big"] })).await;
        let route = json!({ "models": ["big"], "policy": "power_of_two", "path_prefix": "/v1" });
        self.put("/v1/routes/all", route).await;
        let arm = |name: &str, weight: f64| json!({ "name": name, "model": name, "weight_percent": weight });
        let arms = [arm("x", 90.0), arm("y", 10.0)];
        let split = json!({ "arms": arms, "by": "header:x-user", "sticky_cookie": "arm" });
        self.put("/v1/splits/canary", split).await;
        self.roll_out(&arms).await;
        self.put("/v1/tenants/acme", json!({ "title": "Acme" })).await;
        let limit = json!({ "requests_per_s": 10, "floors_percent": { "eu": 20 } });
        self.put("/v1/limits/tenant:acme", limit).await;
        self.put("/v1/settings/health.transition_ms", json!({ "value": "7000" })).await;
        for (path, body) in [
            ("regions/eu/drain", Value::Null),
            ("regions/eu/evacuate", Value::Null),
            ("regions/eu/undrain", Value::Null),
            ("regions/eu/weight", json!({ "weight_percent": 12.5 })),
            ("replicas/eu/gpu-1/drain", Value::Null),
            ("replicas/eu/gpu-1/undrain", Value::Null),
            ("replicas/eu/gpu-1/weight", json!({ "weight": 7 })),
            ("leader", json!({ "to": "a" })),
            ("trie/rotate", Value::Null),
            ("explain", json!({ "body": { "model": "m" } })),
        ] {
            self.post(&format!("/v1/{path}"), body).await;
        }
    }

    /// Lets a node join, gives it the right of operators, and removes it.
    /// Rolls the arm `y` of a split out, by hand.
    async fn roll_out(&mut self, arms: &[Value]) {
        let steps = [json!({ "percent": 1, "hold_s": 60 }), json!({ "percent": 50 })];
        let rollout = json!({ "candidate": "y", "baseline": "x", "steps": steps });
        self.put("/v1/splits/rolled", json!({ "arms": arms, "rollout": rollout })).await;
        for (verb, phase) in [
            ("pause", "paused"),
            ("resume", "running"),
            ("promote", "running"),
            ("restart", "running"),
            ("complete", "completed"),
        ] {
            self.post(&format!("/v1/splits/rolled/{verb}"), json!({ "why": "a test" })).await;
            assert_eq!(self.get("/v1/splits/rolled/rollout").await["phase"], phase);
        }
        assert_eq!(self.post("/v1/splits/rolled/gate", Value::Null).await["judgement"], "over");
        self.post("/v1/splits/rolled/roll-back", Value::Null).await;
        let shown = self.get("/v1/splits/rolled").await;
        assert_eq!(shown["item"]["info"]["rollout"]["candidate_percent"], 0);
        assert_eq!(self.client.post("/v1/splits/rolled/gate", &Value::Null).await.status, 409);
    }

    async fn remove_a_node(&mut self, world: &World) {
        let control_plane = &world.node(0).control_plane;
        let node = NodeSpec {
            name: "z".into(),
            region: "eu".into(),
            address: "z.example:7946".to_owned(),
            disk: DiskId::from_bytes([0x7a; 16]),
            fingerprint: Fingerprint([0x7a; 32]),
            wire_oldest: 1,
            wire_newest: WIRE,
        };
        let (command, actor) = (Command::RegisterNode { node }, Actor::Operator("ada".to_owned()));
        control_plane.propose(command, actor, None, Duration::from_secs(5)).await.unwrap();
        let shown = self.get("/v1/nodes/z").await;
        assert_eq!(shown["item"]["info"]["operators"], false);
        self.post("/v1/nodes/z/operators", json!({ "operators": true })).await;
        let shown = self.get("/v1/nodes/z").await;
        assert_eq!(shown["item"]["info"]["operators"], true);
        self.delete("/v1/nodes/z").await;
        self.get("/v1/removed-nodes/z").await;
        self.put("/v1/revoked-certificates/5c1d", json!({ "reason": "stolen" })).await;
    }

    async fn make_secrets(&mut self) -> [String; 2] {
        let body = json!({ "record": { "tenant": "acme", "models": ["big"], "priority": 1 } });
        let key = self.post("/v1/keys", body).await;
        let name = key["key"].as_str().unwrap().to_owned();
        let client = self.client.clone();
        self.client = client.with("if-match", format!("\"{}\"", key["version"]));
        self.go(Method::PUT, &format!("/v1/keys/{name}"), json!({ "tenant": "acme" })).await;
        self.client = client;
        self.go(Method::PATCH, &format!("/v1/keys/{name}"), json!({ "priority": 2 })).await;
        self.post(&format!("/v1/keys/{name}/revoke"), Value::Null).await;
        self.get(&format!("/v1/keys/{name}")).await;
        let secret = json!({ "salt": "0a".repeat(16), "hash": "0b".repeat(32) });
        let record = json!({ "tenant": "acme" });
        let known = json!({ "key": "known", "record": record, "secret": secret });
        assert_eq!(self.post("/v1/keys", known).await["secret"], Value::Null);
        self.delete("/v1/keys/known").await;
        let token = self.post("/v1/join-tokens", json!({ "region": "eu", "uses": 3 })).await;
        let token = token["key"].as_str().unwrap().to_owned();
        self.get(&format!("/v1/join-tokens/{token}")).await;
        [format!("/v1/keys/{name}"), format!("/v1/join-tokens/{token}")]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_answers_as_the_document_says() {
    let world = World::one(AdminConfig::default()).await;
    let mut tour = Tour { client: world.client(0), visited: BTreeSet::new(), orders: 0 };
    tour.write_everything().await;
    let secrets = tour.make_secrets().await;
    tour.remove_a_node(&world).await;
    for list in [
        "nodes",
        "regions",
        "replicas",
        "models",
        "routes",
        "splits",
        "limits",
        "tenants",
        "keys",
        "join-tokens",
        "settings",
        "removed-nodes",
        "revoked-certificates",
    ] {
        let page = tour.get(&format!("/v1/{list}")).await;
        assert!(!page["items"].as_array().unwrap().is_empty(), "{list}");
    }
    let nodes_own = ["status", "leader", "audit", "audit?trail=system", "openapi.json", "backup"];
    for path in nodes_own.into_iter().chain([
        "trie",
        "trie?top=3",
        "steering",
        "node",
        "world",
        "history",
        "history?scope=cluster",
        "history?scope=region&region=eu",
        "fleet",
        "effective-routes",
        "usage?by=day,tenant&since=2026-11-01&until=2026-11-27",
        "requests?status=5xx&failed",
        "requests?id=x&scope=cluster",
        "reasons",
    ]) {
        tour.get(&format!("/v1/{path}")).await;
    }
    for path in [
        &secrets[0],
        &secrets[1],
        "/v1/replicas/eu/gpu-1",
        "/v1/regions/eu",
        "/v1/models/meta%2Fsmall",
        "/v1/routes/all",
        "/v1/splits/canary",
        "/v1/limits/tenant:acme",
        "/v1/tenants/acme",
        "/v1/settings/health.transition_ms",
        "/v1/settings/prefix.key_epoch",
        "/v1/removed-nodes/z",
        "/v1/revoked-certificates/5C1D",
    ] {
        tour.delete(path).await;
    }
    // Two more are the backup and the registration of a node, which no endpoint has.
    world.audited(&tour.client, tour.orders + 2).await;
    // These do not end, or need a disk from the past; other tests have them.
    let elsewhere = ["get_watch", "get_live", "post_nodes_node_trust_disk"].map(str::to_owned);
    let paths = openapi()["paths"].as_object().unwrap().values();
    let all = paths.flat_map(|methods| methods.as_object().unwrap().values());
    let all: Vec<String> =
        all.map(|operation| operation["operationId"].as_str().unwrap().to_owned()).collect();
    let distinct: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(distinct.len(), all.len(), "two operations share an id");
    tour.visited.extend(elsewhere);
    assert_eq!(tour.visited, distinct);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_answered_with_code_cause_and_remedy() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let put = |path: &'static str, body| {
        let client = client.clone();
        async move { client.put(path, &body).await }
    };
    assert_eq!(client.get("/v1/nothing").await.refused(404), "no_such_path");
    assert_eq!(client.get("/v1/models/m").await.refused(404), "not_found");
    assert_eq!(client.get("/v1/limits/everybody").await.refused(404), "not_found");
    assert_eq!(client.get("/v1/nodes/nobody").await.refused(404), "not_found");
    assert_eq!(client.delete("/v1/models/m").await.refused(404), "not_found");
    assert_eq!(client.delete("/v1/nodes/a").await.refused(409), "in_use");
    assert_eq!(client.get("/v1/models?limit=0").await.refused(400), "bad_request");
    assert_eq!(client.get("/v1/models?dry_run=true").await.refused(400), "bad_request");
    assert_eq!(client.get("/v1/limits?after=x").await.refused(400), "bad_request");
    for wrong in ["history?region=eu", "requests?scope=region", "requests?scope=cluster&after=1"] {
        let answer = client.get(&format!("/v1/{wrong}")).await;
        assert_eq!(answer.refused(400), "bad_request", "{wrong}");
    }
    assert_eq!(client.get("/v1/watch?after=x").await.refused(400), "bad_request");
    assert_eq!(put("/v1/models/m", json!({ "alias": "x" })).await.refused(400), "bad_request");
    assert_eq!(put("/v1/settings/x", json!({ "value": "1" })).await.refused(404), "not_found");
    let wrong = json!({ "policy": "best" });
    assert_eq!(put("/v1/routes/r", wrong).await.refused(422), "invalid");
    for url in ["http://169.254.169.254", "http://[fd00:ec2::254]:8000", "https://[fe80::1]"] {
        let body = json!({ "url": url, "models": ["m"] });
        assert_eq!(put("/v1/replicas/region-a/x", body).await.refused(422), "invalid", "{url}");
    }
    let wrong = json!({ "alias_of": "m" });
    assert_eq!(put("/v1/models/m", wrong).await.refused(422), "loop");
    let wrong = json!({ "requests_per_s": 1, "requests_per_min": 60 });
    assert_eq!(put("/v1/limits/global", wrong).await.refused(422), "invalid");
    // A member for thousandths is unknown.
    let wrong = json!({ "weight_permille": 500 });
    assert_eq!(put("/v1/regions/region-a", wrong).await.refused(400), "bad_request");
    for wrong in [json!(12.55), json!(-1), json!(1_001), json!("50")] {
        let body = json!({ "weight_percent": wrong });
        assert_eq!(put("/v1/regions/region-a", body).await.refused(400), "bad_request");
    }
    let wrong = json!({ "requests_per_s": 1 });
    assert_eq!(put("/v1/limits/key:k", wrong).await.refused(422), "unknown_reference");
    for (salt, hash) in [("0a", "0b".repeat(32)), ("0g0a0a0a0a0a0a0a", "0b".repeat(32))] {
        let secret = json!({ "salt": salt.repeat(2), "hash": hash });
        let body = json!({ "key": "k", "record": { "tenant": "acme" }, "secret": secret });
        assert_eq!(client.post("/v1/keys?create=true", &body).await.refused(422), "invalid");
    }
    let drained = client.post("/v1/replicas/eu/x/drain", &Value::Null).await;
    assert_eq!(drained.refused(404), "not_found");
    let to = client.post("/v1/leader", &json!({ "to": "nobody" })).await;
    assert_eq!(to.refused(422), "invalid");
    let large = json!({ "fallbacks": ["x".repeat(70_000)] });
    assert_eq!(put("/v1/models/m", large).await.refused(413), "too_large");
    let other = client.post("/v1/models/m", &Value::Null).await;
    assert_eq!(other.refused(405), "method_not_allowed");
    assert_eq!(other.headers["allow"], "GET, DELETE, PUT, PATCH");
}
