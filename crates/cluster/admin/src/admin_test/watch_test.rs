//! Tests of watches.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use spillway_raft::Role;

use super::client::{Client, Stream};
use super::schema::faults;
use super::world::{World, eventually};
use crate::{AdminConfig, openapi};

async fn watch(client: &Client, query: &str) -> Stream {
    let stream = client.open(Method::GET, &format!("/v1/watch{query}"), Bytes::new()).await;
    assert_eq!(stream.response.status(), 200);
    assert_eq!(stream.response.headers()["content-type"], "text/event-stream");
    stream
}

async fn put(client: &Client, name: &str) -> u64 {
    let done = client.put(&format!("/v1/models/{name}"), &json!({})).await.done();
    done["version"].as_u64().unwrap()
}

fn check(schema: &str, data: &Value) {
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    let faults = faults(openapi(), &schema, data);
    assert!(faults.is_empty(), "{faults:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_told_each_change_once_and_resume_where_they_were() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    let before = put(&client, "before").await;
    let mut stream = watch(&client, "").await;
    let begin = stream.event().await.unwrap();
    assert_eq!(begin.kind, "begin");
    assert!(begin.id >= before, "{begin:?}");
    check("Freshness", &begin.data);
    let first = put(&client, "first").await;
    let event = stream.event_of("change").await;
    check("Event", &event.data);
    assert_eq!((event.id, &event.data["index"]), (first, &json!(first)));
    let change = json!({ "resource": "models", "key": "first", "kind": "created" });
    assert_eq!(event.data["changes"], json!([change]));
    drop(stream);
    let second = put(&client, "second").await;
    client.delete("/v1/models/first").await.done();
    let resumed = client.with("last-event-id", first.to_string());
    let mut stream = watch(&resumed, "").await;
    assert_eq!(stream.event().await.unwrap().id, first);
    let event = stream.event_of("change").await;
    assert_eq!((event.id, &event.data["changes"][0]["key"]), (second, &json!("second")));
    let event = stream.event_of("change").await;
    assert_eq!(event.data["changes"][0]["kind"], "removed");
    assert!(event.id > second);
    assert!(stream.is_silent_for(Duration::from_millis(300)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_one_entry_changed_is_one_event() {
    let world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    client.put("/v1/regions/eu?create=true", &json!({})).await.done();
    let replica = json!({ "url": "http://10.0.0.1:1", "models": ["m"] });
    for name in ["x", "y"] {
        client.put(&format!("/v1/replicas/eu/{name}"), &replica).await.done();
    }
    client.post("/v1/regions/eu/evacuate", &Value::Null).await.done();
    let at = client.get("/v1/regions").await.done()["index"].clone();
    let removed = client.delete("/v1/regions/eu").await.done();
    let mut stream = watch(&client, &format!("?after={at}")).await;
    let event = stream.event_of("change").await;
    assert_eq!(json!(event.id), removed["index"]);
    assert_eq!(event.data["changes"].as_array().unwrap().len(), 3, "{event:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_watch_is_kept_alive() {
    let watch_alive = Duration::from_millis(50);
    let world = World::one(AdminConfig { watch_alive, ..AdminConfig::default() }).await;
    let client = world.client(0);
    let last = put(&client, "m").await;
    let mut stream = watch(&client, &format!("?after={last}")).await;
    for _ in 0..3 {
        let alive = stream.event_of("alive").await;
        assert!(alive.id >= last, "{alive:?}");
        check("Freshness", &alive.data);
    }
    put(&client, "n").await;
    let event = stream.event_of("change").await;
    assert_eq!(event.data["changes"][0]["key"], "n");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_too_far_behind_reads_again_from_an_index_that_is_told() {
    let mut world = World::one(AdminConfig::default()).await;
    let client = world.client(0);
    put(&client, "old").await;
    let file = world.file("backup");
    world.node(0).control_plane.backup(&file).await.unwrap();
    // Changes made before a snapshot was loaded are forgotten.
    world.restart_from(0, &file, AdminConfig::default()).await;
    let client = world.client(0);
    let mut stream = watch(&client, "?after=1").await;
    let lost = stream.event_of("too_old").await;
    check("Lost", &lost.data);
    let index = lost.data["index"].as_u64().unwrap();
    assert_eq!(lost.id, index);
    assert!(stream.event().await.is_none(), "the watch goes on");
    let read = client.get("/v1/models?consistency=stale").await.done();
    assert!(read["index"].as_u64().unwrap() >= index);
    assert_eq!(read["items"][0]["key"], "old");
    let mut stream = watch(&client, &format!("?after={index}")).await;
    assert_eq!(stream.event().await.unwrap().kind, "begin");
    let control_plane = &world.node(0).control_plane;
    eventually("the node leads again", || control_plane.status().role == Role::Leader).await;
    put(&client, "new").await;
    loop {
        let event = stream.event_of("change").await;
        if event.data["changes"][0]["key"] == "new" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_have_a_limit_and_a_place_that_is_left_is_free() {
    let world = World::one(AdminConfig { watchers_max: 2, ..AdminConfig::default() }).await;
    let client = world.client(0);
    let first = watch(&client, "").await;
    let _second = watch(&client, "").await;
    let third = client.get("/v1/watch").await;
    assert_eq!(third.refused(429), "too_many_watchers");
    assert!(third.headers.contains_key("retry-after"));
    drop(first);
    let by = tokio::time::Instant::now() + super::world::PATIENCE;
    loop {
        let stream = client.open(Method::GET, "/v1/watch", Bytes::new()).await;
        if stream.response.status() == 200 {
            break;
        }
        assert!(tokio::time::Instant::now() < by, "the place is not free");
    }
}
