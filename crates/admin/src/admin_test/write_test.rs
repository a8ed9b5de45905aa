//! Tests of reads and writes: versions, repetitions, dry runs, pages.

use serde_json::{Value, json};

use super::world::World;
use crate::AdminConfig;

#[tokio::test(flavor = "multi_thread")]
async fn a_read_says_what_it_has_seen_and_can_be_written_back() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let record = json!({ "alias_of": null, "fallbacks": ["big", "bigger"] });
    let written = client.put("/v1/models/small", &record).await.done();
    let answer = client.get("/v1/models/small").await;
    let tag = format!("\"{}\"", written["version"]);
    assert_eq!(answer.headers["etag"], tag.as_str());
    let read = answer.done();
    assert_eq!(read["item"]["record"], record);
    assert_eq!(read["item"]["version"], written["index"]);
    assert_eq!(read["consistency"], "linearizable");
    assert_eq!(read["age_ms"], 0);
    assert!(read["index"].as_u64() >= written["index"].as_u64(), "{read}");
    let stale = client.get("/v1/models/small?consistency=stale").await.done();
    assert_eq!(stale["consistency"], "stale");
    assert!(stale["age_ms"].is_u64(), "{stale}");
    let again = client.put("/v1/models/small", &read["item"]["record"]).await.done();
    assert_eq!(again["outcome"], "unchanged");
    client.delete("/v1/models/small").await.done();
    client.get("/v1/models/small").await.refused(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_over_another_version_is_a_conflict() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let body = |title: &str| json!({ "title": title });
    let new = client.with("if-none-match", "*");
    let first = new.put("/v1/tenants/acme", &body("one")).await.done();
    let twice = new.put("/v1/tenants/acme", &body("two")).await;
    assert_eq!(twice.refused(409), "conflict");
    assert_eq!(twice.body["error"]["conflict"]["current_version"], first["version"]);
    let over = |version: &Value| client.with("if-match", format!("\"{version}\""));
    let second = over(&first["version"]).put("/v1/tenants/acme", &body("two")).await.done();
    let late = over(&first["version"]).put("/v1/tenants/acme", &body("three")).await;
    assert_eq!(late.refused(409), "conflict");
    let conflict = &late.body["error"]["conflict"];
    assert_eq!(conflict["resource"], "tenants");
    assert_eq!(conflict["key"], "acme");
    assert_eq!(conflict["current_version"], second["version"]);
    assert_eq!(over(&first["version"]).delete("/v1/tenants/acme").await.refused(409), "conflict");
    let read = client.get("/v1/tenants/acme").await.done();
    assert_eq!(read["item"]["record"]["title"], "two");
    over(&second["version"]).delete("/v1/tenants/acme").await.done();
    let gone = over(&second["version"]).put("/v1/tenants/acme", &body("four")).await;
    assert_eq!(gone.refused(409), "conflict");
    assert_eq!(gone.body["error"]["conflict"]["current_version"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_is_carried_out_once() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let once = client.with("idempotency-key", "6f1c");
    let weight = |percent: u32| json!({ "weight_percent": percent });
    let path = "/v1/regions/region-a/weight";
    let first = once.post(path, &weight(10)).await.done();
    client.post(path, &weight(20)).await.done();
    let again = once.post(path, &weight(10)).await.done();
    assert_eq!(again["version"], first["version"]);
    assert_eq!(again["outcome"], "applied");
    let read = client.get("/v1/regions/region-a").await.done();
    assert_eq!(read["item"]["record"]["weight_percent"], 20);
    let other = once.post(path, &weight(30)).await;
    assert_eq!(other.refused(422), "idempotency_key_reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_the_difference_and_changes_nothing() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    // A dry run right after a write sees the write.
    client.put("/v1/models/a", &json!({ "fallbacks": ["b"] })).await.done();
    let path = "/v1/models/a?dry_run=true";
    let dry = client.put(path, &json!({ "fallbacks": ["c"] })).await.done();
    let change = &dry["changes"][0];
    assert_eq!(change["resource"], "models");
    assert_eq!(change["before"]["record"]["fallbacks"], json!(["b"]));
    assert_eq!(change["after"]["record"]["fallbacks"], json!(["c"]));
    let gone = client.delete(path).await.done();
    assert_eq!(gone["changes"][0]["after"], Value::Null);
    let same = client.put(path, &json!({ "fallbacks": ["b"] })).await.done();
    assert_eq!(same["changes"], json!([]));
    assert_eq!(client.put(path, &json!({ "alias_of": "a" })).await.refused(422), "loop");
    let late = client.with("if-match", "\"1\"").put(path, &json!({})).await;
    assert_eq!(late.refused(409), "conflict");
    let read = client.get("/v1/models/a").await.done();
    assert_eq!(read["item"]["record"]["fallbacks"], json!(["b"]));
    let audit = client.get("/v1/audit").await.done();
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    for name in ["a", "b", "c", "d", "e"] {
        client.put(&format!("/v1/models/{name}"), &json!({})).await.done();
        let replica = json!({ "url": "http://10.0.0.1:1", "models": ["m"] });
        client.put(&format!("/v1/replicas/region-a/{name}"), &replica).await.done();
    }
    for list in ["models", "replicas"] {
        let (mut names, mut after) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/{list}?limit=2{after}")).await.done();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 2, "{page}");
            names.extend(items.iter().map(|item| item["key"].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={}", next.replace('/', "%2F"));
        }
        let plain: Vec<_> = names.iter().map(|name| name.trim_start_matches("region-a/")).collect();
        assert_eq!(plain, ["a", "b", "c", "d", "e"], "{list}");
    }
    let whole = client.get("/v1/models?limit=5").await.done();
    assert_eq!(whole["next"], Value::Null, "nothing follows");
    let page = client.get("/v1/audit?limit=3").await.done();
    let next = page["next"].as_str().unwrap();
    let older = client.get(&format!("/v1/audit?limit=1000&after={next}")).await.done();
    let deeds = |page: &Value| page["items"].as_array().unwrap().clone();
    assert_eq!(deeds(&page).len() + deeds(&older).len(), 10);
    let all: Vec<_> = deeds(&page).into_iter().chain(deeds(&older)).collect();
    assert!(all.windows(2).all(|pair| pair[0]["index"].as_u64() > pair[1]["index"].as_u64()));
    assert_eq!(all[0]["operator"], "local");
    assert_eq!(all[0]["what"], "register replica region-a/e at http://10.0.0.1:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_change_what_they_say() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let replica = json!({ "url": "http://10.0.0.1:1", "models": ["m"], "weight": 3 });
    client.put("/v1/replicas/region-a/x", &replica).await.done();
    let show = async |path: &str| client.get(path).await.done()["item"].clone();
    for (action, state) in
        [("drain", "draining"), ("evacuate", "evacuating"), ("undrain", "active")]
    {
        client.post(&format!("/v1/regions/region-a/{action}"), &Value::Null).await.done();
        assert_eq!(show("/v1/regions/region-a").await["record"]["state"], state);
    }
    for (action, state) in [("drain", "draining"), ("undrain", "active")] {
        client.post(&format!("/v1/replicas/region-a/x/{action}"), &Value::Null).await.done();
        assert_eq!(show("/v1/replicas/region-a/x").await["info"]["state"], state);
    }
    for weight in [json!(9), Value::Null] {
        let path = "/v1/replicas/region-a/x/weight";
        client.post(path, &json!({ "weight": weight })).await.done();
        assert_eq!(show("/v1/replicas/region-a/x").await["info"]["operator_weight"], weight);
    }
    let gone = client.post("/v1/replicas/region-a/x/weight", &json!({ "weight": 1_001 })).await;
    assert_eq!(gone.refused(422), "invalid");
    let setting = async || show("/v1/settings/health.transition_ms").await;
    assert_eq!(setting().await["version"], Value::Null);
    let value = json!({ "value": "9000" });
    client.put("/v1/settings/health.transition_ms", &value).await.done();
    assert_eq!(setting().await["record"], value);
    client.delete("/v1/settings/health.transition_ms").await.done();
    assert_eq!(setting().await["record"]["value"], setting().await["info"]["default"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_says_where_requests_may_be_served() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    for path in ["/v1/tenants/acme", "/v1/routes/clinic"] {
        let rule = json!({ "countries": ["FR", "DE"], "regions": ["region-a", "later"] });
        let first = client.put(path, &rule).await.done();
        let read = client.get(path).await.done();
        let record = &read["item"]["record"];
        assert_eq!(record["countries"], json!(["DE", "FR"]));
        assert_eq!(record["regions"], json!(["later", "region-a"]));
        let same = client.put(path, record).await.done();
        assert_eq!(same["outcome"], "unchanged", "what was read can be written back");
        let dry = client.put(&format!("{path}?dry_run=true"), &json!({})).await.done();
        let change = &dry["changes"][0];
        assert_eq!(change["before"]["record"]["countries"], json!(["DE", "FR"]));
        assert_eq!(change["after"]["record"]["countries"], json!([]));
        for (wrong, status, code) in [
            (json!({ "countries": ["Germany"] }), 422, "invalid"),
            (json!({ "countries": ["de"] }), 422, "invalid"),
            (json!({ "regions": ["a b"] }), 422, "invalid"),
            (json!({ "country": ["DE"] }), 400, "bad_request"),
        ] {
            let answer = client.put(path, &wrong).await;
            assert_eq!(answer.refused(status), code, "{wrong}");
        }
        let read = client.get(path).await.done();
        assert_eq!(read["item"]["version"], first["version"]);
    }
}
