//! Requests that another region serves when its replica hangs, or the region itself is gone.

use std::time::Duration;

use spillway_emulator::Fault;
use spillway_tests::{
    Client, Cluster, Reply, Scripted, Setup, chat, eventually, knows, slow_emulator, spawn, within,
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

#[tokio::test]
async fn a_request_whose_replica_in_another_region_goes_down_is_told_so() {
    let emulator = slow_emulator(1, 50.0).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let cluster = Cluster::new(&["edge", "core"]);
    let checked = Setup::new()
        .set("health.check = \"by_kind\"")
        .set("health.interval_ms = 100")
        .set("health.timeout_ms = 200")
        .replica_with("a", &url, "kind = \"vllm\"");
    let edge = cluster.start(0, Setup::new()).await;
    let core = cluster.start(1, checked).await;
    knows(&edge, "core").await;
    let request = chat("tiny", ",\"max_tokens\":5000");
    let waits = spawn(Client::once(edge.addresses()[0], request));
    eventually("it is at the replica", || emulator.replica(0).stats().running == 1).await;
    emulator.replica(0).set_fault(Fault::Hang).await.expect("a fault");
    let reply = within("it ends", waits).await.expect("a reply");
    assert_eq!((reply.status, reply.code()), (502, Some("replica_down")), "{}", reply.text());
    edge.stop().await;
    core.stop().await;
}
