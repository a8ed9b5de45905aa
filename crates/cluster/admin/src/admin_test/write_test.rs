//! Tests of reads and writes: versions, repetitions, dry runs, pages.

use serde_json::{Value, json};

use super::client::Answer;
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

#[tokio::test(flavor = "multi_thread")]
async fn one_field_changes_one_field() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let record = async |path: &str| client.get(path).await.done()["item"]["record"].clone();
    let path = "/v1/regions/region-a";
    let whole = json!({ "country": "DE", "price_ms": 3, "rtt_hints_ms": { "eu": 80 } });
    client.put(path, &whole).await.done();
    client.post("/v1/regions/region-a/weight", &json!({ "weight_percent": 50 })).await.done();
    client.post("/v1/regions/region-a/drain", &Value::Null).await.done();
    let before = record(path).await;
    client.patch(path, &json!({ "price_ms": 5 })).await.done();
    let mut expected = before.clone();
    expected["price_ms"] = json!(5);
    assert_eq!(record(path).await, expected);
    // A whole record leaves the fields that orders and nodes set, unless it names them itself.
    client.put(path, &json!({ "price_ms": 6 })).await.done();
    (expected["price_ms"], expected["rtt_hints_ms"]) = (json!(6), json!({}));
    assert_eq!(record(path).await, expected);
    client.put(path, &json!({ "state": "active", "country": "" })).await.done();
    let after = record(path).await;
    assert_eq!((&after["state"], &after["country"]), (&json!("active"), &json!("")));
    assert_eq!((&after["weight_percent"], &after["price_ms"]), (&json!(50), &json!(0)));

    client.put("/v1/tenants/acme", &json!({ "title": "Acme", "countries": ["DE"] })).await.done();
    let dry = client.patch("/v1/tenants/acme?dry_run=true", &json!({ "title": "A" })).await.done();
    assert_eq!(dry["changes"][0]["after"]["record"]["countries"], json!(["DE"]));
    client.patch("/v1/tenants/acme", &json!({ "is_suspended": true })).await.done();
    let tenant = record("/v1/tenants/acme").await;
    assert_eq!((&tenant["title"], &tenant["countries"]), (&json!("Acme"), &json!(["DE"])));
    assert_eq!(tenant["is_suspended"], true);
    let wrong = client.patch("/v1/tenants/acme", &json!({ "suspended": true })).await;
    assert_eq!(wrong.refused(400), "bad_request");
    let late = client.with("if-match", "\"1\"").patch("/v1/tenants/acme", &json!({})).await;
    assert_eq!(late.refused(409), "conflict");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_patch_is_the_same_request() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    client.put("/v1/tenants/acme", &json!({ "title": "Acme" })).await.done();
    let once = client.with("idempotency-key", "6f1c");
    let first = once.patch("/v1/tenants/acme", &json!({ "title": "A" })).await.done();
    assert_eq!(first["outcome"], "applied");
    let again = once.patch("/v1/tenants/acme", &json!({ "title": "A" })).await.done();
    assert_eq!(again["outcome"], "unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slip_within_a_record_is_told_and_a_key_makes_its_tenant_when_it_is_to() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let replica = json!({ "url": "http://10.0.0.1:1", "models": ["llama-8b"] });
    client.put("/v1/replicas/region-a/x", &replica).await.done();
    client.put("/v1/tenants/acme", &json!({})).await.done();
    let key = |tenant: &str, models: &[&str], regions: &[&str]| json!({ "record": { "tenant": tenant, "models": models, "regions": regions } });
    let remedy = |answer: &Answer| answer.body["error"]["remedy"].as_str().unwrap().to_owned();
    for (body, meant) in [
        (key("acme", &["lama-8b"], &[]), "llama-8b"),
        (key("acme", &[], &["regoin-a"]), "region-a"),
        (key("acmee", &[], &[]), "acme"),
    ] {
        let refused = client.post("/v1/keys", &body).await;
        assert!(remedy(&refused).contains(&format!("write {meant:?}")), "{:?}", refused.body);
        assert!(remedy(&refused).contains("create=true"), "{:?}", refused.body);
    }
    let far = client.post("/v1/keys", &key("initech", &[], &[])).await;
    assert_eq!(far.refused(422), "unknown_reference");
    assert!(!remedy(&far).contains("is meant"), "{:?}", far.body);
    assert_eq!(client.get("/v1/tenants/initech").await.refused(404), "not_found");
    let dry = client.post("/v1/keys?create=true&dry_run=true", &key("initech", &[], &[])).await;
    assert_eq!(dry.status, 200, "{:?}", dry.body);
    assert_eq!(client.get("/v1/tenants/initech").await.refused(404), "not_found");
    let made = client.post("/v1/keys?create=true", &key("initech", &["lama-8b"], &[])).await;
    assert_eq!(made.status, 201, "{:?}", made.body);
    assert_eq!(client.get("/v1/tenants/initech").await.status, 200);
    let path = format!("/v1/keys/{}", made.body["key"].as_str().unwrap());
    // A name that the record has already is no slip of another write, and a name far from all is
    // new.
    client.patch(&path, &json!({ "priority": 1 })).await.done();
    client.patch(&path, &json!({ "models": ["lama-8b", "other"] })).await.done();
    let slip = json!({ "models": ["llamma-8b"] });
    assert_eq!(client.patch(&path, &slip).await.refused(404), "not_found");
    client.patch(&format!("{path}?create=true"), &slip).await.done();
    for (path, record) in [
        ("/v1/models/chat", json!({ "alias_of": "lama-8b" })),
        ("/v1/routes/r", json!({ "models": ["lama-8b"] })),
        ("/v1/splits/s", json!({ "arms": [{ "model": "lama-8b", "weight_percent": 100 }] })),
    ] {
        assert_eq!(client.put(path, &record).await.refused(404), "not_found", "{path}");
    }
    let token = json!({ "region": "regoin-a", "valid_s": 60, "uses": 1 });
    assert_eq!(client.post("/v1/join-tokens", &token).await.refused(404), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slip_makes_no_record_and_the_name_that_was_meant_is_told() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let replica = json!({ "url": "http://10.0.0.1:1", "models": ["llama-8b"] });
    client.put("/v1/replicas/region-a/x", &replica).await.done();
    client.put("/v1/tenants/acme", &json!({})).await.done();
    client.put("/v1/routes/chat", &json!({})).await.done();
    for (path, meant) in [
        ("/v1/regions/regoin-a", Some("region-a")),
        ("/v1/regions/elsewhere", None),
        ("/v1/tenants/acmee", Some("acme")),
        ("/v1/limits/model:lama-8b", Some("model:llama-8b")),
        ("/v1/models/lama-8b", Some("llama-8b")),
        ("/v1/routes/chta", Some("chat")),
    ] {
        let record = if path.contains("limits") { json!({ "concurrency": 1 }) } else { json!({}) };
        for answer in [
            client.put(path, &record).await,
            client.patch(path, &record).await,
            client.put(&format!("{path}?dry_run=true"), &record).await,
        ] {
            assert_eq!(answer.refused(404), "not_found", "{path}");
            let remedy = answer.body["error"]["remedy"].as_str().unwrap();
            assert!(remedy.contains("create=true"), "{remedy}");
            if let Some(meant) = meant {
                assert!(remedy.contains(&format!("write {meant:?}")), "{remedy}");
            }
        }
        client.put(&format!("{path}?create=true"), &record).await.done();
    }
    // A served model counts as a known name, and a name far from all names is new.
    client.put("/v1/models/llama-8b", &json!({ "fallbacks": ["other"] })).await.done();
    client.put("/v1/tenants/initech", &json!({})).await.done();
    let missing = client.post("/v1/regions/regin-a/drain", &Value::Null).await;
    assert_eq!(missing.refused(404), "not_found");
    let remedy = missing.body["error"]["remedy"].as_str().unwrap();
    assert!(remedy.contains("write \"region-a\""), "{remedy}");
}
