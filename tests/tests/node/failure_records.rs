//! What the record of a request that failed says: its code, its cause, and the places that were asked.

use std::path::Path;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{
    CallServer, Client, Scripted, Setup, chat, eventually, get, post, retried, spawn, within,
};

use crate::grpc_calls::{Stream, frame, infer, scripted, stream};

/// Returns the records that pass these filters, newest first.
async fn records(node: &Node, query: &str) -> Vec<Value> {
    let admin = node.admin_address().expect("an admin listener");
    let reply = Client::once(admin, get(&format!("/v1/requests?{query}"))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer: Value = serde_json::from_str(reply.text()).expect("JSON");
    answer["requests"].as_array().expect("a list").clone()
}

/// Returns the record of the last request, once it has one.
async fn last(node: &Node) -> Value {
    newest(node, "limit=1").await
}

/// Returns the newest record that passes these filters, once there is one.
async fn newest(node: &Node, query: &str) -> Value {
    let found = || async { records(node, query).await.into_iter().next().ok_or("no record") };
    retried(|_| true, found).await.expect("a record")
}

/// Checks fields of a record.
fn check(record: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("fields") {
        assert_eq!(&record[name], value, "{name} of {record}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_before_it_is_routed_has_the_code_that_its_client_got() {
    let replica = Scripted::start().await.serve(spillway_tests::OK);
    let setup = Setup::new().set("limits.body_bytes_max = 4096").replica("a", replica.address);
    let node = setup.start().await;
    let long = format!(r#","user":"{}""#, "x".repeat(8_192));
    let requests = [
        (chat("nothing", ""), 404, "model_not_found"),
        (post("/v1/nothing", "{}"), 404, "route_not_found"),
        (get("/v1/chat/completions"), 405, "method_not_allowed"),
        (post("/v1/chat/completions", "{"), 400, "bad_request"),
        (chat("tiny", &long), 413, "body_too_large"),
    ];
    for (request, status, code) in requests {
        let reply = Client::once(node.addresses()[0], request).await;
        assert_eq!((reply.status, reply.code()), (status, Some(code)), "{}", reply.text());
        let record = last(&node).await;
        let nowhere = json!({ "replica": null, "region": null, "tries": [] });
        check(&record, &nowhere);
        check(&record, &json!({ "status": status, "code": code, "end": "answered" }));
        assert_eq!(record["detail"], reply.json()["error"]["message"], "{record}");
    }
    assert_eq!(records(&node, "failed=true").await.len(), 5);
    assert_eq!(records(&node, "code=body_too_large").await.len(), 1);
    assert_eq!(replica.requests.count(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_request_without_a_good_key_has_its_code() {
    let replica = Scripted::start().await.serve(spillway_tests::OK);
    let node = Setup::new().listener("auth = \"keys\"").replica("a", replica.address).start().await;
    let mut with_key = chat("tiny", "");
    with_key.headers_mut().insert("authorization", HeaderValue::from_static("Bearer sw_nothing"));
    for (request, code) in [(chat("tiny", ""), "missing_api_key"), (with_key, "invalid_api_key")] {
        assert_eq!(Client::once(node.addresses()[0], request).await.status, 401);
        check(&last(&node).await, &json!({ "status": 401, "code": code, "replica": null }));
    }
    node.stop().await;
}

#[tokio::test]
async fn a_replica_s_own_error_names_it_and_what_it_calls_its_error() {
    let body = r#"{"error":{"message":"of the prompt","type":"InternalServerError","code":500}}"#;
    let reply = format!(
        "HTTP/1.1 500 Oh\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let replica = Scripted::start().await.serve(reply);
    let node = Setup::new().replica("a", replica.address).start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 500);
    let record = last(&node).await;
    check(
        &record,
        &json!({
            "status": 500, "code": "replica_error", "detail": "InternalServerError",
            "replica": "a", "region": "local", "tries": [],
        }),
    );
    assert!(!record.to_string().contains("of the prompt"), "{record}");
    node.stop().await;
}

#[tokio::test]
async fn a_replica_that_can_t_be_reached_is_a_try_and_then_the_cause() {
    let alive = Scripted::start().await.serve(spillway_tests::OK);
    let turns = "[[route]]\nname = \"all\"\npolicy = \"round_robin\"\n";
    let dead = Setup::new().table(turns).replica("dead", Scripted::refusing());
    let node = dead.clone().replica("alive", alive.address).start().await;
    for _ in 0..4 {
        assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 200);
    }
    let tried = records(&node, "code=replica_connect").await;
    assert!(!tried.is_empty(), "{tried:?}");
    check(&tried[0], &json!({ "status": 200, "code": null, "replica": "alive" }));
    let first = &tried[0]["tries"][0];
    check(first, &json!({ "region": "local", "replica": "dead", "code": "replica_connect" }));
    assert_eq!(records(&node, "failed=true").await.len(), 0);
    node.stop().await;

    let node = dead.start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 502);
    let record = last(&node).await;
    check(&record, &json!({ "status": 502, "code": "replica_connect", "replica": "dead" }));
    assert!(!record["tries"].as_array().expect("tries").is_empty(), "{record}");
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_and_a_stream_that_breaks_off_have_their_causes() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let (wire, _) = tokio::select! {
        _ = client.send(chat("tiny", "")) => panic!("no reply was sent"),
        taken = replica.request() => taken,
    };
    client.abort();
    check(&last(&node).await, &json!({ "status": 499, "code": "client_closed", "replica": "a" }));
    // Open until here, so that it is the client that left.
    drop(wire);

    let mut client = Client::http1(node.addresses()[0]).await;
    let (reply, ()) = tokio::join!(client.fetch(chat("tiny", ",\"stream\":true")), async {
        let (mut wire, _) = replica.request().await;
        let event = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        wire.send(format!("{head}{:x}\r\n{event}\r\n", event.len())).await;
    });
    assert!(reply.text().contains("stream_cut"), "{}", reply.text());
    let record = newest(&node, "code=stream_cut").await;
    check(&record, &json!({ "status": 200, "end": "cut", "replica": "a" }));
    node.stop().await;
}

#[tokio::test]
async fn a_call_that_fails_with_the_status_200_has_failed() {
    let mut server = CallServer::start().await;
    let node = scripted(Setup::new(), "a", &server).start().await;
    let first = frame(&infer("tiny", &[1]));
    let mut call = Stream::open(&node, &mut server, stream, first).await;
    call.call.begin();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("13"));
    call.call.end_with(trailers);
    let _reply = call.collect().await;
    let failed = records(&node, "failed=true").await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    check(
        &failed[0],
        &json!({ "status": 200, "grpc_status": 13, "code": "replica_error", "replica": "a" }),
    );
    node.stop().await;
}

#[tokio::test]
async fn a_request_that_the_end_of_its_node_breaks_off_says_so_in_the_access_log() {
    let replica = Scripted::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let log = format!("[access_log]\nrequests = \"errors\"\nfile = {path:?}");
    let setup = Setup::new().set("node.drain_ms = 100").table(log).replica("a", replica.address);
    let node = setup.start().await;
    let address = node.addresses()[0];
    let waits =
        spawn(async move { Client::http1(address).await.send(chat("tiny", "")).await.is_ok() });
    let (wire, _) = replica.request().await;
    within("the node ends", node.stop()).await;
    eventually("it is written", || !lines(&path).is_empty()).await;
    check(&lines(&path)[0], &json!({ "code": "node_stopped", "replica": "a" }));
    drop((wire, waits));
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}
