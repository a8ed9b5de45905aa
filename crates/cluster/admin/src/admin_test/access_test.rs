//! Tests of the rights of callers.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::world::{World, listen};
use crate::{Admin, AdminConfig, parse_token_file};

const READER: &str = "reader-0123456789abcdef0123456789";
const OPERATOR: &str = "operator-0123456789abcdef0123456789";
const ADMIN: &str = "admin-0123456789abcdef0123456789";

fn config() -> AdminConfig {
    let text = format!("eve read {READER}\nbob operate {OPERATOR}\nada admin {ADMIN}");
    AdminConfig { tokens: parse_token_file(&text).unwrap(), ..AdminConfig::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_what_it_is_for() {
    let world = World::one(config()).await;
    let client = world.client(0);
    let put = async |token: &str| client.token(token).put("/v1/models/m", &json!({})).await;
    let drain = async |token: &str| {
        client.token(token).post("/v1/regions/region-a/drain", &Value::Null).await
    };
    let read = async |token: &str| client.token(token).get("/v1/regions").await;
    let backup = async |token: &str| client.token(token).get("/v1/backup").await;
    for token in [READER, OPERATOR, ADMIN] {
        read(token).await.done();
    }
    assert_eq!(drain(READER).await.refused(403), "forbidden");
    drain(OPERATOR).await.done();
    drain(ADMIN).await.done();
    assert_eq!(put(READER).await.refused(403), "forbidden");
    assert_eq!(put(OPERATOR).await.refused(403), "forbidden");
    put(ADMIN).await.done();
    assert_eq!(backup(OPERATOR).await.refused(403), "forbidden");
    assert!(backup(ADMIN).await.status.is_success());
    // Refused orders are there, too, and the backup.
    let audit = world.audited(&client.token(ADMIN), 8).await;
    let of = |outcome: &str| {
        let found = audit.iter().filter(|deed| deed["outcome"] == outcome);
        let mut callers: Vec<_> =
            found.map(|deed| deed["operator"].as_str().unwrap().to_owned()).collect();
        callers.sort();
        callers
    };
    assert_eq!(of("applied"), ["ada", "ada", "bob"]);
    assert_eq!(of("unchanged"), ["ada"]);
    assert_eq!(of("refused"), ["bob", "bob", "eve", "eve"]);
}

/// Each operation that changes something, in the name of callers without the right.
#[tokio::test(flavor = "multi_thread")]
async fn every_order_that_is_refused_is_in_the_audit_trail() {
    let world = World::one(config()).await;
    let client = world.client(0);
    let (mut orders, mut strangers) = (0, 0);
    for endpoint in crate::endpoint::ENDPOINTS.iter().filter(|endpoint| endpoint.is_order()) {
        let path = endpoint.path.replace(['{', '}'], "");
        let reader = client.token(READER);
        reader.send(endpoint.method.clone(), &path, &Value::Null).await.refused(403);
        client.send(endpoint.method.clone(), &path, &Value::Null).await.refused(401);
        (orders, strangers) = (orders + 1, strangers + 1);
    }
    assert!(orders > 30, "{orders}");
    // Both are limited; the rest is counted.
    let shown = orders.min(32) + strangers.min(8);
    let audit = world.audited(&client.token(ADMIN), shown).await;
    assert!(audit.iter().all(|deed| deed["outcome"] == "refused" && !deed["cause"].is_null()));
    let by = |name: &str| audit.iter().filter(|deed| deed["operator"] == name).count();
    assert_eq!((by("eve"), by("unauthenticated")), (orders.min(32), strangers.min(8)));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_known_token_nothing_is_said() {
    let world = World::one(config()).await;
    let client = world.client(0);
    for path in ["/v1/status", "/v1/nothing", "/v1/openapi.json"] {
        let answer = client.get(path).await;
        assert_eq!(answer.refused(401), "unauthorized");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        let wrong = client.token(&ADMIN.replace('0', "1")).get(path).await;
        assert_eq!(wrong.refused(401), "unauthorized");
    }
    let basic = client.with("authorization", format!("Basic {ADMIN}")).get("/v1/status").await;
    assert_eq!(basic.refused(401), "unauthorized");
    client.with("authorization", format!("bearer {ADMIN}")).get("/v1/status").await.done();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_the_cluster_let_operators_in_until_they_are_revoked() {
    let world = World::one(config()).await;
    let client = world.client(0);
    let admin = client.token(ADMIN);
    let make = async |record: Value| {
        let made = admin.post("/v1/keys", &json!({ "record": record })).await.done();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("key"), client.token(&text("secret")))
    };
    let published = async || {
        // A dry run waits until the published state has all earlier writes.
        admin.put("/v1/models/m?dry_run=true", &json!({})).await.done();
    };
    admin.put("/v1/tenants/acme", &json!({})).await.done();
    let (reader, as_reader) = make(json!({ "role": "read" })).await;
    let (_, as_operator) = make(json!({ "role": "operate" })).await;
    let (_, as_client) = make(json!({ "role": "client", "tenant": "acme" })).await;
    let (_, as_late) = make(json!({ "role": "admin", "expires_ms": 1 })).await;
    published().await;
    as_reader.get("/v1/regions").await.done();
    let other = admin.post("/v1/keys", &json!({ "record": { "role": "read" } })).await.done();
    let secret = other["secret"].as_str().unwrap().rsplit_once('_').unwrap().1.to_owned();
    let guessed = client.token(&format!("sw_{reader}_{secret}")).get("/v1/regions").await;
    assert_eq!(guessed.refused(401), "unauthorized");
    let drain = "/v1/regions/region-a/drain";
    assert_eq!(as_reader.post(drain, &Value::Null).await.refused(403), "forbidden");
    as_operator.post(drain, &Value::Null).await.done();
    assert_eq!(as_client.get("/v1/regions").await.refused(401), "unauthorized");
    assert_eq!(as_late.get("/v1/regions").await.refused(401), "unauthorized");
    admin.post(&format!("/v1/keys/{reader}/revoke"), &Value::Null).await.done();
    published().await;
    assert_eq!(as_reader.get("/v1/regions").await.refused(401), "unauthorized");
    let audit = admin.get("/v1/audit").await.done();
    let is_by_key = |deed: &Value| deed["operator"].as_str().unwrap().starts_with("key:");
    assert!(audit["items"].as_array().unwrap().iter().any(is_by_key), "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_does_not_pass_for_the_operator_of_this_machine() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    client.get("/v1/status").await.done();
    client.with("host", "localhost:9900").get("/v1/status").await.done();
    let page = client.with("origin", "https://evil.example").get("/v1/status").await;
    assert_eq!(page.refused(403), "forbidden");
    let rebound = client.with("host", "evil.example").get("/v1/status").await;
    assert_eq!(rebound.refused(403), "forbidden");
    let wrong = client.token("anything").get("/v1/status").await;
    assert_eq!(wrong.refused(401), "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tokens_hold_at_once_and_what_was_watched_by_an_old_one_ends() {
    let world = World::one(config()).await;
    let client = world.client(0);
    let mut kept = client.token(READER).open(Method::GET, "/v1/watch", Bytes::new()).await;
    let mut ended = client.token(ADMIN).open(Method::GET, "/v1/watch", Bytes::new()).await;
    for stream in [&mut kept, &mut ended] {
        assert_eq!(stream.event().await.unwrap().kind, "begin");
    }
    let tokens = parse_token_file(&format!("eve read {READER}")).unwrap();
    world.admin(0).replace(AdminConfig { tokens, ..config() });
    assert!(ended.event().await.is_none());
    assert_eq!(client.token(ADMIN).get("/v1/status").await.refused(401), "unauthorized");
    client.token(READER).get("/v1/status").await.done();
    assert!(kept.is_silent_for(Duration::from_millis(300)).await);
    let none = AdminConfig { tokens: Vec::new(), requires_token: true, ..config() };
    world.admin(0).replace(none);
    assert!(kept.event().await.is_none());
    assert_eq!(client.get("/v1/status").await.refused(401), "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_watched_by_a_revoked_key_ends() {
    let world = World::one(config()).await;
    let client = world.client(0);
    let admin = client.token(ADMIN);
    let made = admin.post("/v1/keys", &json!({ "record": { "role": "read" } })).await.done();
    admin.put("/v1/models/m?dry_run=true", &json!({})).await.done();
    let reader = client.token(made["secret"].as_str().unwrap());
    let mut stream = reader.open(Method::GET, "/v1/watch", Bytes::new()).await;
    assert_eq!(stream.event().await.unwrap().kind, "begin");
    let key = made["key"].as_str().unwrap();
    admin.post(&format!("/v1/keys/{key}/revoke"), &Value::Null).await.done();
    while let Some(event) = stream.event().await {
        assert!(event.data.to_string().contains("keys"), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_cluster_says_so() {
    let (address, _listening) = listen(Admin::new(None, AdminConfig::default())).await;
    let client = Client::new(address);
    assert_eq!(client.get("/v1/status").await.refused(503), "no_cluster");
    assert_eq!(client.get("/v1/nothing").await.refused(404), "no_such_path");
    assert_eq!(client.get("/v1/openapi.json").await.done()["openapi"], "3.1.0");
}
