//! Secrets are shown once, and backups hold the state.

use http::Method;
use serde_json::{Value, json};
use spillway_cluster_state::{JoinText, KeyId, TokenId, key_hash};
use spillway_raft::{owner_of, restore};

use super::world::World;
use crate::AdminConfig;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_and_kept_as_a_salted_hash() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    client.put("/v1/tenants/acme", &json!({})).await.done();
    let record = json!({ "tenant": "acme", "models": ["m"], "regions": ["region-a"] });
    let body = json!({ "key": "blue", "record": record });
    let made = client.post("/v1/keys", &body).await;
    assert_eq!(made.status, 201);
    let shown = made.done()["secret"].as_str().unwrap().to_owned();
    let secret = shown.strip_prefix("sw_blue_").unwrap();
    let state = world.node(0).control_plane.read(
        spillway_raft::Consistency::Linearizable,
        AdminConfig::default().time_limit,
        |state| state.records().keys.get(&KeyId::from("blue")).cloned().unwrap(),
    );
    let kept = state.await.unwrap().value;
    assert!(key_hash(&kept.salt, secret.as_bytes()).matches(&kept.hash));
    for path in ["/v1/keys/blue", "/v1/keys", "/v1/audit"] {
        let text = client.get(path).await.done().to_string();
        assert!(!text.contains(secret) && !text.contains("hash"), "{text}");
        assert!(!text.contains("hidden") && !text.contains("salt"), "{text}");
    }
    let read = client.get("/v1/keys/blue").await.done();
    assert_eq!(read["item"]["record"]["tenant"], "acme");
    assert_eq!(client.post("/v1/keys", &body).await.refused(409), "conflict");
    let dry = client.post("/v1/keys?dry_run=true", &json!({ "record": { "role": "read" } })).await;
    assert_eq!(dry.done()["changes"][0]["before"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_only_written_over_a_version_that_was_read() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let made = client.post("/v1/keys", &json!({ "key": "k", "record": { "role": "read" } })).await;
    let made = made.done();
    let key = |role: &str| json!({ "role": role });
    let unread = client.put("/v1/keys/k", &key("admin")).await;
    assert_eq!(unread.refused(428), "precondition_required");
    let over = client.with("if-match", format!("\"{}\"", made["version"]));
    over.put("/v1/keys/k", &key("operate")).await.done();
    assert_eq!(over.put("/v1/keys/k", &key("admin")).await.refused(409), "conflict");
    assert_eq!(over.put("/v1/keys/other", &key("admin")).await.refused(404), "not_found");
    let revoked = client.post("/v1/keys/k/revoke", &Value::Null).await.done();
    let over = client.with("if-match", format!("\"{}\"", revoked["version"]));
    over.put("/v1/keys/k", &key("read")).await.done();
    let read = client.get("/v1/keys/k").await.done();
    assert_eq!(read["item"]["info"]["is_revoked"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_is_bound_and_ends() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let made = client.post("/v1/join-tokens", &json!({ "region": "region-a", "uses": 2 })).await;
    let made = made.done();
    let (id, shown) = (made["key"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let text = JoinText::read(shown).unwrap();
    assert_eq!(text.id, id);
    let kept = world.node(0).control_plane.read(
        spillway_raft::Consistency::Linearizable,
        AdminConfig::default().time_limit,
        |state| state.records().join_tokens.get(&TokenId::from(id)).cloned().unwrap(),
    );
    let kept = kept.await.unwrap().value;
    assert!(text.public_key().matches(&kept.key));
    assert_eq!(kept.uses_left, 2);
    let left_ms = kept.expires_ms - spillway_types::unix_ms(std::time::SystemTime::now());
    assert!((3_500_000..=3_600_000).contains(&left_ms), "{left_ms}");
    for wrong in [json!({ "uses": 0 }), json!({ "valid_s": 10_000_000 })] {
        assert_eq!(client.post("/v1/join-tokens", &wrong).await.refused(422), "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_creation_does_not_make_two() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0).with("idempotency-key", "1");
    let body = json!({ "record": { "role": "read" } });
    client.post("/v1/keys", &body).await.done();
    assert_eq!(client.post("/v1/keys", &body).await.refused(422), "idempotency_key_reused");
    let keys = client.get("/v1/keys").await.done();
    assert_eq!(keys["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_can_be_restored() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    client.put("/v1/models/kept", &json!({})).await.done();
    let (head, bytes) = client.raw(Method::GET, "/v1/backup", bytes::Bytes::new()).await;
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["content-length"], bytes.len().to_string().as_str());
    let (file, folder) = (world.file("backup"), world.file("restored"));
    std::fs::write(&file, &bytes).unwrap();
    let name = &world.seeds[0].name;
    let (cluster, founder) = restore(&file, &folder, name).unwrap();
    assert_eq!(founder.name, *name);
    assert_eq!(owner_of(&folder).unwrap().unwrap().cluster, Some(cluster));
}
