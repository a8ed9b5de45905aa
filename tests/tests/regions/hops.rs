//! A request is forwarded once: a region that can't serve it refuses it, and the first node asks
//! the next region.

use std::time::Duration;

use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, Page, Reply, Scripted, Setup, chat, eventually, knows, slow_emulator, spawn,
};
use tokio::task::JoinSet;

use crate::gate::Gate;

const REGIONS: [&str; 3] = ["edge", "near", "far"];
const ONE_PLACE: &str = "connections_max = 1";

/// The link between `near` and `far` is short, so a node that may forward has every reason to.
fn cluster() -> Cluster {
    let cluster = Cluster::new(&REGIONS).set("spill.reserve_percent = 0");
    for (one, other, rtt_ms) in [(0, 1, 200), (0, 2, 400), (1, 2, 10)] {
        cluster.distance(one, other, Duration::from_millis(rtt_ms));
    }
    cluster
}

/// Starts the nodes, the last two of which have replicas, and waits until they know each other.
async fn start(cluster: &Cluster, [edge, near, far]: [Setup; 3]) -> [Node; 3] {
    let near = cluster.start(1, near).await;
    let far = cluster.start(2, far).await;
    let edge = cluster.start(0, edge).await;
    for (node, others) in [(&edge, ["near", "far"]), (&near, ["far", "far"]), (&far, ["near"; 2])] {
        for other in others {
            knows(node, other).await;
        }
    }
    [edge, near, far]
}

fn sent(node: &Node, labels: &[(&str, &str)]) -> f64 {
    Page::of(node).sum("spillway_spill_requests_total", labels)
}

/// Nothing came to a node that another node but `edge` had sent.
fn check_hops([edge, near, far]: &[Node; 3], served: f64) {
    for node in [near, far] {
        assert_eq!(sent(node, &[]), 0.0, "it forwarded what had been forwarded to it");
    }
    assert_eq!(sent(edge, &[("result", "served")]), served);
    assert_eq!(sent(edge, &[("result", "broken")]), 0.0);
}

fn facts(reply: &Reply) -> [&str; 2] {
    ["x-spillway-region", "x-spillway-hops"].map(|name| reply.header(name).unwrap_or_default())
}

async fn stop(nodes: [Node; 3]) {
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_full_region_refuses_and_the_first_node_asks_the_next() {
    let (near_gate, far_gate) = (Gate::start().await, Gate::start().await);
    let one_place = |gate: &Gate| Setup::new().replica_with("a", &gate.url(), ONE_PLACE);
    let cluster = cluster();
    let nodes = start(&cluster, [Setup::new(), one_place(&near_gate), one_place(&far_gate)]).await;
    let [edge, near, far] = &nodes;
    let own = spawn(Client::once(near.addresses()[0], chat("tiny", "")));
    eventually("near is full", || near_gate.held("") == 1).await;
    // The edge learns of it only after 100 ms.
    let guest = spawn(Client::once(edge.addresses()[0], chat("tiny", "")));
    eventually("it has gone on", || far_gate.held("") == 1).await;
    assert_eq!(sent(edge, &[("region", "near"), ("result", "refused")]), 1.0);
    near_gate.release("", 1);
    far_gate.release("", 1);
    let own = own.await.expect("a reply");
    assert_eq!(own.status, 200);
    let guest = guest.await.expect("a reply");
    assert_eq!((guest.status, facts(&guest)), (200, ["far", "1"]), "{}", guest.text());
    // The other region's node reports its choice, and this one why it forwarded the request there.
    let told = ["x-spillway-replica", "x-spillway-policy", "x-spillway-reason", "x-spillway-spill"];
    let told = told.map(|name| guest.header(name).unwrap_or_default());
    assert_eq!(told, ["a", "predicted_latency", "only", "no_replica"]);
    assert_eq!(guest.header("x-spillway-cached-tokens"), Some("0"));
    assert_eq!(own.header("x-spillway-spill"), None);
    assert_eq!((near_gate.arrived().len(), far_gate.arrived().len()), (1, 1));
    eventually("it is counted", || sent(edge, &[("result", "served")]) == 1.0).await;
    check_hops(&nodes, 1.0);
    assert_eq!(Page::of(far).sum("spillway_guest_requests_total", &[]), 1.0);
    stop(nodes).await;
}

#[tokio::test]
async fn a_region_that_has_taken_a_guest_and_can_not_serve_it_sends_it_back() {
    let gate = Gate::start().await;
    let near = Setup::new().replica_with("a", &format!("http://{}", Scripted::refusing()), "");
    let far = Setup::new().replica("a", gate.address);
    let nodes = start(&cluster(), [Setup::new(), near, far]).await;
    let [edge, ..] = &nodes;
    let guest = spawn(Client::once(edge.addresses()[0], chat("tiny", "")));
    eventually("it has gone on", || gate.held("") == 1).await;
    gate.release("", 1);
    let guest = guest.await.expect("a reply");
    assert_eq!((guest.status, facts(&guest)), (200, ["far", "1"]), "{}", guest.text());
    assert_eq!(sent(edge, &[("region", "near"), ("result", "refused")]), 1.0);
    eventually("it is counted", || sent(edge, &[("result", "served")]) == 1.0).await;
    check_hops(&nodes, 1.0);
    stop(nodes).await;
}

#[tokio::test]
async fn a_flood_that_all_regions_share_is_passed_on_once_at_most() {
    const REQUESTS: usize = 60;
    let mut emulators = Vec::new();
    for _ in REGIONS {
        emulators.push(slow_emulator(1, 0.05).await);
    }
    let setup = |index: usize| {
        let url = format!("http://{}", emulators[index].addresses()[0]);
        Setup::new().replica_with("a", &url, "connections_max = 2")
    };
    let nodes = start(&cluster(), [0, 1, 2].map(setup)).await;
    let mut clients = JoinSet::new();
    for number in 0..REQUESTS {
        // The last two have clients of their own, and so reasons to send them on.
        let address = nodes[[0, 0, 0, 1, 2][number % 5]].addresses()[0];
        clients.spawn(Client::once(address, chat("tiny", ",\"max_tokens\":40")));
    }
    let replies = clients.join_all().await;
    for reply in &replies {
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(["0", "1"].contains(&facts(reply)[1]), "{:?}", reply.headers);
    }
    let guests = replies.iter().filter(|reply| facts(reply)[1] == "1").count();
    assert!(guests >= REQUESTS / 10, "only {guests} were sent elsewhere");
    let sum = |name: &str, labels: &[(&str, &str)]| -> f64 {
        nodes.iter().map(|node| Page::of(node).sum(name, labels)).sum()
    };
    eventually("each guest was sent once and taken once", || {
        sum("spillway_spill_requests_total", &[("result", "served")]) == guests as f64
            && sum("spillway_guest_requests_total", &[("status", "2xx")]) == guests as f64
    })
    .await;
    stop(nodes).await;
}
