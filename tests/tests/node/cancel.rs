//! A client that leaves takes its request along, down to the replica.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use spillway_node::Node;
use spillway_tests::{
    Client, Page, SLOWDOWN, Scripted, Setup, chat, eventually, slow_emulator, spawn, within,
};

/// Tries whose median is judged: single ones are at the mercy of the machine.
const TRIES: usize = 9;
const BOUND: Duration = Duration::from_millis(100 * SLOWDOWN as u64);
const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[]}\n\n";

#[derive(Clone, Copy, Debug)]
enum Version {
    Http1,
    Http2,
}

impl Version {
    async fn connect(self, node: &Node) -> Client {
        match self {
            Self::Http1 => Client::http1(node.addresses()[0]).await,
            Self::Http2 => Client::http2(node.addresses()[0]).await,
        }
    }
}

fn check_median(mut taken: Vec<Duration>) {
    taken.sort_unstable();
    assert!(taken[taken.len() / 2] <= BOUND, "{taken:?}");
}

async fn check_counted(node: &Node, phase: &str, count: usize) {
    let cancels = || Page::of(node).sum("spillway_client_cancels_total", &[("phase", phase)]);
    eventually("all are counted", || cancels() == count as f64).await;
    let in_flight = || Page::of(node).sum("spillway_replica_in_flight", &[]);
    eventually("all places are free", || in_flight() == 0.0).await;
}

#[tokio::test]
async fn leaving_before_the_reply_aborts_at_the_replica() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for version in [Version::Http1, Version::Http2] {
        let mut taken = Vec::new();
        for _ in 0..TRIES {
            let mut client = version.connect(&node).await;
            let waiting = spawn(async move {
                let reply = client.send(chat("tiny", "")).await;
                // The connection would end with its client, request or not.
                drop((client, reply));
            });
            let (mut wire, _) = replica.request().await;
            let left = Instant::now();
            waiting.abort();
            wire.end().await;
            taken.push(left.elapsed());
        }
        check_median(taken);
    }
    check_counted(&node, "before_reply", 2 * TRIES).await;
}

#[tokio::test]
async fn leaving_in_the_middle_of_a_stream_aborts_at_the_replica() {
    let replica = Scripted::start().await;
    let node = Setup::new().replica("a", replica.address).start().await;
    for version in [Version::Http1, Version::Http2] {
        let mut taken = Vec::new();
        for _ in 0..TRIES {
            let mut client = version.connect(&node).await;
            let (response, mut wire) = tokio::join!(client.send(chat("tiny", "")), async {
                let (mut wire, _) = replica.request().await;
                wire.send(EVENTS).await;
                wire
            });
            let mut body = response.expect("a head").into_body();
            within("an event", body.frame()).await.expect("an event").expect("an event");
            let left = Instant::now();
            drop((body, client));
            wire.end().await;
            taken.push(left.elapsed());
        }
        check_median(taken);
    }
    check_counted(&node, "in_reply", 2 * TRIES).await;
}

#[tokio::test]
async fn a_replica_on_http2_is_told_too() {
    let emulator = slow_emulator(1, 1.0).await;
    let url = format!("http://{}", emulator.addresses()[0]);
    let node = Setup::new().replica_with("a", &url, "protocol = \"http2\"").start().await;
    let aborted = || emulator.replica(0).stats().aborted;
    let mut taken = Vec::new();
    for _ in 0..TRIES {
        let before = aborted();
        let mut client = Client::http1(node.addresses()[0]).await;
        let response = client.send(chat("tiny", r#","stream":true,"max_tokens":500"#)).await;
        let mut body = response.expect("a head").into_body();
        within("an event", body.frame()).await.expect("an event").expect("an event");
        let left = Instant::now();
        drop((body, client));
        eventually("the replica aborts", || aborted() > before).await;
        taken.push(left.elapsed());
    }
    check_median(taken);
    check_counted(&node, "in_reply", TRIES).await;
    assert_eq!(Page::of(&node).sum("spillway_replica_connections", &[]), 1.0, "it lives on");
}
