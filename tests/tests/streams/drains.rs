//! Streams that leave a replica or a region which is being drained.

use http_body_util::BodyExt;
use serde_json::json;
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_tests::{Client, Cluster, Page, Reply, eventually, knows, post, slow_emulator, spawn};

use crate::cuts::of_kind;
use crate::stream::{Api, Stream, continuing, counted, fetch};

/// Ends of requests that were no success.
fn broken(node: &Node) -> f64 {
    let page = Page::of(node);
    ["cut", "stalled"].map(|end| page.sum("spillway_requests_total", &[("end", end)])).iter().sum()
}

/// Streams that run at a replica.
fn running(emulator: &Emulator, index: usize) -> u32 {
    emulator.replica(index).stats().running
}

#[tokio::test]
async fn streams_leave_a_replica_that_is_drained_and_miss_nothing() {
    // Each answer takes some seconds.
    let emulator = slow_emulator(2, 0.7).await;
    let node = of_kind(continuing(""), &emulator, "vllm").start().await;
    let (address, admin) = (node.addresses()[0], node.admin_address().expect("an admin listener"));
    let fields = json!({"max_tokens": 150, "stream_options": {"include_usage": true}});
    let expected = fetch(emulator.addresses()[1], Api::Chat, &fields).await;
    let streams: Vec<_> =
        (0..6).map(|_| spawn(Client::once(address, Api::Chat.request(&fields)))).collect();
    eventually("both serve", || running(&emulator, 0) == 3 && running(&emulator, 1) == 3).await;
    let drained = Client::once(admin, post("/replicas/r0/drain", "")).await;
    assert_eq!(drained.status, 200, "{}", drained.text());
    eventually("all are at the other", || running(&emulator, 0) == 0).await;
    let moved = || counted(&node, "continued", "drained");
    eventually("they were moved", || moved() == 3.0).await;
    for stream in streams {
        let reply = stream.await.expect("a reply");
        let stream = Stream::read(reply.text());
        assert_eq!((stream.errors.len(), stream.dones, stream.roles), (0, 1, 1));
        assert_eq!((&stream.text, &stream.finishes), (&expected.text, &expected.finishes));
        assert_eq!(stream.usages.len(), expected.usages.len());
        assert_eq!(stream.usages[0]["completion_tokens"], 150);
    }
    assert_eq!((broken(&node), Page::of(&node).sum("spillway_retries_total", &[])), (0.0, 0.0));
    let faults = Page::of(&node).sum("spillway_replica_faults_total", &[]);
    assert_eq!(faults, 0.0, "a drain is no fault of the replica");
}

#[tokio::test]
async fn streams_stay_at_a_replica_that_is_drained_where_no_other_has_room() {
    let emulator = slow_emulator(2, 1.0).await;
    let setup =
        emulator.addresses().iter().enumerate().fold(continuing(""), |setup, (index, address)| {
            let lines = "kind = \"vllm\"\nconnections_max = 1";
            setup.replica_with(&format!("r{index}"), &format!("http://{address}"), lines)
        });
    let node = setup.start().await;
    let (address, admin) = (node.addresses()[0], node.admin_address().expect("an admin listener"));
    let fields = json!({"max_tokens": 60});
    let streams: Vec<_> =
        (0..2).map(|_| spawn(Client::once(address, Api::Chat.request(&fields)))).collect();
    eventually("both serve", || running(&emulator, 0) == 1 && running(&emulator, 1) == 1).await;
    let drained = Client::once(admin, post("/replicas/r0/drain", "")).await;
    assert_eq!(drained.status, 200, "{}", drained.text());
    for stream in streams {
        let stream = Stream::read(stream.await.expect("a reply").text());
        assert_eq!((stream.errors.len(), stream.dones), (0, 1), "{stream:?}");
        assert_eq!(stream.finishes, ["length"]);
    }
    assert_eq!(broken(&node), 0.0);
}

#[tokio::test]
async fn streams_of_a_lost_region_go_on_elsewhere_without_the_budget() {
    let emulator = slow_emulator(2, 3.0).await;
    let cluster = Cluster::new(&["edge", "core", "far"]).set("spill.reserve_percent = 0");
    let setup = |index: usize| {
        let url = format!("http://{}", emulator.addresses()[index]);
        // No retry is in the budget: the streams move all the same.
        let setup = continuing("").with(|config| config.gateway.retry.budget_in_hand = 0);
        setup.replica_with(&format!("r{index}"), &url, "kind = \"vllm\"")
    };
    let core = cluster.start(1, setup(0)).await;
    let far = cluster.start(2, setup(1)).await;
    let edge = cluster.start(0, continuing("")).await;
    knows(&edge, "core").await;
    knows(&edge, "far").await;
    let fields = json!({"max_tokens": 150});
    let expected = fetch(emulator.addresses()[1], Api::Text, &fields).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut client = Client::http1(edge.addresses()[0]).await;
        let response = client.send(Api::Text.request(&fields)).await.expect("a head");
        let mut response = response;
        let first = response.body_mut().frame().await.expect("a piece").expect("a piece");
        open.push((client, response, first.into_data().expect("data")));
    }
    let (lost, index) = if running(&emulator, 0) > 0 { (1, 0) } else { (2, 1) };
    let moved = running(&emulator, index);
    for node in [0, 3 - lost] {
        cluster.cut(node, lost, true);
        cluster.cut(lost, node, true);
    }
    for (client, response, first) in open {
        let reply = Reply::collect(response).await.expect("a whole reply");
        drop(client);
        let text = format!("{}{}", String::from_utf8_lossy(&first), reply.text());
        let stream = Stream::read(&text);
        assert_eq!((stream.errors.len(), stream.dones), (0, 1), "{text}");
        assert_eq!(stream.text, expected.text);
    }
    assert_eq!(counted(&edge, "continued", "lost"), f64::from(moved));
    assert_eq!(Page::of(&edge).sum("spillway_retries_refused_total", &[]), 0.0);
    drop((core, far));
    edge.stop().await;
}
