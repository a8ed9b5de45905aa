//! Fields of the record of a failed request: its code, its cause, and the places that were tried.

use std::path::Path;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use spillway_node::Node;
use spillway_tests::{
    CallServer, Client, RAW_ROUTE, Scripted, Setup, Wire, both, chat, check_record, eventually,
    get, last_record, newest_record, post, records, retried, spawn, within,
};

use crate::gate::Gate;
use crate::grpc_calls::{Stream, frame, infer, scripted, stream};
use crate::shedding::one_place;

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
        let record = last_record(&node).await;
        let nowhere = json!({ "replica": null, "region": null, "tries": [] });
        check_record(&record, &nowhere);
        check_record(&record, &json!({ "status": status, "code": code, "end": "answered" }));
        assert_eq!(record["detail"], reply.json()["error"]["message"], "{record}");
    }
    assert_eq!(records(&node, "failed=true").await.len(), 5);
    assert_eq!(records(&node, "code=body_too_large").await.len(), 1);
    assert_eq!(replica.requests.count(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_head_that_is_too_large_has_its_code() {
    let setup = Setup::new()
        .set("limits.header_bytes_max = 16384")
        .with(|config| config.gateway.limits.headers_max = 20);
    let node = setup.start().await;
    let expected = json!({
        "status": 431, "code": "headers_too_large", "end": "answered", "replica": null, "tries": [],
    });
    let long = "x".repeat(20_000);
    for (count, headers) in [(1, format!("x-long: {long}\r\n")), (2, "x-many: 1\r\n".repeat(30))] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(format!("GET /v1/models HTTP/1.1\r\nhost: x\r\n{headers}\r\n")).await;
        assert!(wire.head().await.starts_with("HTTP/1.1 431 "));
        eventually_recorded(&node, "code=headers_too_large", count).await;
        check_record(&last_record(&node).await, &expected);
    }
    let mut client = Client::http2(node.addresses()[0]).await;
    let mut request = get("/v1/models");
    request.headers_mut().insert("x-long", long.parse().expect("a header"));
    let reply = client.fetch(request).await;
    assert_eq!((reply.status, reply.code()), (431, Some("headers_too_large")));
    eventually_recorded(&node, "code=headers_too_large", 3).await;
    let record = last_record(&node).await;
    check_record(&record, &expected);
    assert_eq!(record["detail"], reply.json()["error"]["message"], "{record}");
    node.stop().await;
}

#[tokio::test]
async fn an_upload_that_stops_has_its_code() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("limits.stall_timeout_ms = 100").table(RAW_ROUTE);
    let node = setup.replica("a", replica.address).start().await;
    // A body that is read before a replica is chosen, and one that is passed on while it arrives.
    for (path, framing, asked) in [
        ("/v1/completions", "content-length: 100", json!(null)),
        ("/raw/x", "transfer-encoding: chunked", json!("a")),
    ] {
        let mut wire = Wire::connect(node.addresses()[0]).await;
        wire.send(format!("POST {path} HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n5\r\nhello\r\n"))
            .await;
        assert_eq!(wire.message().await.status(), 408, "{path}");
        let record = last_record(&node).await;
        check_record(&record, &json!({ "status": 408, "code": "body_timeout", "replica": asked }));
        assert_eq!(record["end"], "answered", "{record}");
        assert!(record["detail"].is_string(), "{record}");
    }
    assert_eq!(records(&node, "code=body_timeout").await.len(), 2);
    node.stop().await;
}

#[tokio::test]
async fn a_request_that_waited_too_long_has_its_code_and_what_it_waited_for() {
    let gate = Gate::start().await;
    let route = "[[route]]\nname = \"llm\"\nqueue_ms = 100\n";
    let node = one_place(&gate).table(route).start().await;
    let served = spawn(Client::once(node.addresses()[0], chat("tiny", "")));
    eventually("it is served", || gate.held("") == 1).await;
    let reply = Client::once(node.addresses()[0], chat("tiny", "")).await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let record = last_record(&node).await;
    check_record(
        &record,
        &json!({
            "status": 503, "code": "overloaded", "shed": "waited", "end": "answered",
            "route": "llm", "model": "tiny", "replica": null, "region": null,
        }),
    );
    assert_eq!(record["detail"], reply.json()["error"]["message"], "{record}");
    assert!(record["duration_ms"].as_f64().is_some_and(|waited| waited >= 100.0), "{record}");
    gate.release("", 1);
    assert_eq!(served.await.expect("a reply").status, 200);
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off_by_the_node_and_its_record_says_so() {
    let replica = Scripted::start().await;
    let setup = Setup::new().set("limits.stall_timeout_ms = 200").replica("a", replica.address);
    let node = setup.start().await;
    let filler = vec![7; 1 << 16];
    for (count, client) in (1..).zip(&mut both(&node).await) {
        let (response, mut wire) = tokio::join!(client.send(chat("tiny", "")), async {
            let (mut wire, _) = replica.request().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n").await;
            wire
        });
        let held = response.expect("a head");
        // Ends when the gateway gives the replica's connection up.
        while wire.try_send(&filler).await.is_ok() {}
        eventually_recorded(&node, "code=connection_closed", count).await;
        let record = last_record(&node).await;
        check_record(
            &record,
            &json!({ "status": 200, "end": "cancelled_in_reply", "replica": "a" }),
        );
        drop(held);
    }
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
        check_record(
            &last_record(&node).await,
            &json!({ "status": 401, "code": code, "replica": null }),
        );
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
    let record = last_record(&node).await;
    check_record(
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
    check_record(&tried[0], &json!({ "status": 200, "code": null, "replica": "alive" }));
    let first = &tried[0]["tries"][0];
    check_record(
        first,
        &json!({ "region": "local", "replica": "dead", "code": "replica_connect" }),
    );
    assert_eq!(records(&node, "failed=true").await.len(), 0);
    node.stop().await;

    let node = dead.start().await;
    assert_eq!(Client::once(node.addresses()[0], chat("tiny", "")).await.status, 502);
    let record = last_record(&node).await;
    check_record(&record, &json!({ "status": 502, "code": "replica_connect", "replica": "dead" }));
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
    check_record(
        &last_record(&node).await,
        &json!({ "status": 499, "code": "client_closed", "replica": "a" }),
    );
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
    let record = newest_record(&node, "code=stream_cut").await;
    check_record(&record, &json!({ "status": 200, "end": "cut", "replica": "a" }));
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
    check_record(
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
    check_record(&lines(&path)[0], &json!({ "code": "node_stopped", "replica": "a" }));
    drop((wire, waits));
}

/// Waits until so many records pass these filters.
async fn eventually_recorded(node: &Node, query: &str, count: usize) {
    let found = || async {
        let found = records(node, query).await;
        if found.len() == count { Ok(()) } else { Err(found) }
    };
    retried(|_| true, found).await.expect("as many records");
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}
