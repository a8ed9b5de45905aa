//! Requests that another region serves when its replica hangs, or the region itself is gone.

use std::time::Duration;

use serde_json::json;
use spillway_emulator::Fault;
use spillway_tests::{
    Client, Cluster, Page, Reply, Scripted, Setup, chat, check_record, eventually, knows,
    last_record, slow_emulator, spawn, within,
};

use crate::gate::Gate;

#[tokio::test]
async fn a_request_whose_region_falls_silent_is_told_so_within_seconds() {
    let gate = Gate::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, Duration::from_millis(20));
    let edge = cluster.start(0, Setup::new()).await;
    let core = cluster.start(1, Setup::new().replica("a", gate.address)).await;
    knows(&edge, "core").await;
    let waits = spawn(Client::once(edge.addresses()[0], chat("tiny", "")));
    eventually("it is at the replica", || gate.held("") == 1).await;
    cluster.cut(0, 1, true);
    cluster.cut(1, 0, true);
    let reply = within("it ends", waits).await.expect("a reply");
    // No other place has the model.
    assert_eq!((reply.status, reply.code()), (503, Some("no_replica")), "{}", reply.text());
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    let record = last_record(&edge).await;
    check_record(&record, &json!({ "status": 503, "code": "no_replica", "region": "core" }));
    let tried = json!({ "region": "core", "replica": null, "code": "region_lost" });
    check_record(&record["tries"][0], &tried);
    drop(core);
    edge.stop().await;
}

/// Engines send the head of a stream at once.
#[tokio::test]
async fn a_stream_without_an_event_whose_region_falls_silent_is_told_so_within_seconds() {
    let replica = Scripted::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, Duration::from_millis(20));
    let edge = cluster.start(0, Setup::new()).await;
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    knows(&edge, "core").await;
    let mut client = Client::http1(edge.addresses()[0]).await;
    let (response, wire) = tokio::join!(client.send(chat("tiny", ",\"stream\":true")), async {
        let (mut wire, _) = replica.request().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        wire
    });
    cluster.cut(0, 1, true);
    cluster.cut(1, 0, true);
    let reply = within("it ends", Reply::collect(response.expect("a head"))).await;
    let reply = reply.expect("an orderly end");
    assert!(reply.text().contains("stream_cut"), "{}", reply.text());
    drop((core, wire));
    edge.stop().await;
}

/// Settings of a region that checks its replicas ten times a second.
fn checked() -> Setup {
    Setup::new()
        .set("health.check = \"by_kind\"")
        .set("health.interval_ms = 100")
        .set("health.timeout_ms = 200")
}

#[tokio::test]
async fn a_request_whose_replica_in_another_region_goes_down_is_told_so() {
    let dying = Scripted::start().await;
    let lines = "kind = \"generic\"\nhealth = { check = \"tcp\" }";
    let setup = checked().replica_with("a", &format!("http://{}", dying.address), lines);
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, Setup::new()).await;
    let core = cluster.start(1, setup).await;
    knows(&edge, "core").await;
    let waits = spawn(Client::once(edge.addresses()[0], chat("tiny", "")));
    let request = async {
        // Checks connect and leave; the request stays.
        loop {
            let mut wire = dying.accept().await;
            if wire.has_more().await {
                return wire;
            }
        }
    };
    let held = within("the request", request).await;
    // Nothing listens any more, and the connection of the request stays.
    drop(dying);
    let reply = within("it ends", waits).await.expect("a reply");
    // The second, if the region has announced by then that it has no replica.
    let expected = [(502, Some("replica_down")), (503, Some("no_replica"))];
    assert!(expected.contains(&(reply.status, reply.code())), "{}", reply.text());
    assert!(reply.header("retry-after").is_some(), "{}", reply.text());
    drop(held);
    edge.stop().await;
    core.stop().await;
}

#[tokio::test]
async fn a_request_whose_replica_in_another_region_is_merely_silent_gets_its_reply() {
    let emulator = slow_emulator(1, 5.0).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let cluster = Cluster::new(&["edge", "core"]);
    let edge = cluster.start(0, Setup::new()).await;
    let core = cluster.start(1, checked().replica_with("a", &url, "kind = \"vllm\"")).await;
    knows(&edge, "core").await;
    let request = chat("tiny", ",\"max_tokens\":20");
    let waits = spawn(Client::once(edge.addresses()[0], request));
    eventually("it is at the replica", || emulator.replica(0).stats().running == 1).await;
    emulator.replica(0).set_fault(Fault::Hang).await.expect("a fault");
    let is_down = || {
        let labels = [("replica", "a"), ("admission", "down")];
        Page::of(&core).sum("spillway_replica_admission", &labels) == 1.0
    };
    eventually("it counts as down", is_down).await;
    emulator.replica(0).set_fault(Fault::None).await.expect("a healthy replica");
    let reply = within("it ends", waits).await.expect("a reply");
    assert_eq!(reply.status, 200, "{}", reply.text());
    edge.stop().await;
    core.stop().await;
}
