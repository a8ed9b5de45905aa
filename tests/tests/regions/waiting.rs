//! Requests that wait: for another region, for another node's place, or not at all.

use std::time::Duration;

use spillway_node::Node;
use spillway_tests::{Client, Cluster, Page, Reply, Setup, chat, eventually, knows, spawn};
use tokio::task::JoinHandle;

use crate::gate::Gate;
use crate::grpc_calls::with;

const REFUSED: [(&str, &str); 1] = [("result", "refused")];

fn refused(node: &Node) -> f64 {
    Page::of(node).sum("spillway_spill_requests_total", &REFUSED)
}

fn ask(node: &Node) -> JoinHandle<Reply> {
    spawn(Client::once(node.addresses()[0], chat("tiny", "")))
}

fn one_place(gate: &Gate) -> Setup {
    Setup::new().replica_with("a", &gate.url(), "connections_max = 1")
}

/// A refusal is forgotten after a while, however often those that wait are woken.
#[tokio::test]
async fn a_request_that_was_refused_once_goes_there_as_soon_as_there_is_room() {
    let gate = Gate::start().await;
    let cluster = Cluster::new(&["edge", "core"]).set("spill.reserve_percent = 0");
    cluster.distance(0, 1, Duration::from_millis(200));
    let core = cluster.start(1, one_place(&gate)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    let own = ask(&core);
    eventually("core is full", || gate.held("") == 1).await;
    // The edge learns of it only after 100 ms.
    let guest = ask(&edge);
    eventually("it was refused", || refused(&edge) >= 1.0).await;
    gate.release("", 1);
    assert_eq!(own.await.expect("a reply").status, 200);
    eventually("it is there", || gate.held("") == 1).await;
    gate.release("", 1);
    assert_eq!(guest.await.expect("a reply").status, 200);
}

/// With as many refusals as regions may be asked, a request without replicas of its own waits like any.
#[tokio::test]
async fn an_edge_node_queues_what_two_regions_have_refused() {
    let gates = [Gate::start().await, Gate::start().await];
    let cluster = Cluster::new(&["edge", "near", "far"]).set("spill.reserve_percent = 0");
    cluster.distance(0, 1, Duration::from_millis(200));
    cluster.distance(0, 2, Duration::from_millis(800));
    let near = cluster.start(1, one_place(&gates[0])).await;
    let far = cluster.start(2, one_place(&gates[1])).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "near").await;
    knows(&edge, "far").await;
    let own = [ask(&near), ask(&far)];
    eventually("both are full", || gates.iter().all(|gate| gate.held("") == 1)).await;
    let guest = ask(&edge);
    eventually("both refuse", || refused(&edge) >= 2.0).await;
    gates[0].release("", 1);
    let [near_own, _far_own] = own;
    assert_eq!(near_own.await.expect("a reply").status, 200);
    eventually("the guest has the place", || gates[0].held("") == 1).await;
    gates[0].release("", 1);
    let reply = guest.await.expect("a reply");
    assert_eq!((reply.status, reply.header("x-spillway-region")), (200, Some("near")));
}

#[tokio::test]
async fn no_place_stays_empty_at_one_node_while_requests_wait_at_another() {
    let gate = Gate::start().await;
    let cluster = Cluster::new(&["core", "core"]);
    let setup = || Setup::new().replica_with("a", &gate.url(), "connections_max = 8");
    let nodes = [cluster.start(0, setup()).await, cluster.start(1, setup()).await];
    let claim = |node: &Node| node.gateway().routing.view().replicas()[0].claim();
    eventually("both have their part", || nodes.iter().map(claim).sum::<u32>() == 8).await;
    let _first: Vec<_> = (0..3).map(|_| ask(&nodes[0])).collect();
    eventually("three", || gate.held("") == 3).await;
    let _then: Vec<_> = (0..5).map(|_| ask(&nodes[1])).collect();
    eventually("all places are used", || gate.held("") == 8).await;
}

#[tokio::test]
async fn what_can_not_come_back_in_time_is_refused_at_once() {
    let gate = Gate::start().await;
    let cluster = Cluster::new(&["edge", "core"]);
    cluster.distance(0, 1, Duration::from_millis(400));
    let core = cluster.start(1, Setup::new().replica("a", gate.address)).await;
    let edge = cluster.start(0, Setup::new()).await;
    knows(&edge, "core").await;
    // It is not the deadline that ends it, or the reason would be another one.
    let request = with(chat("tiny", ""), "x-request-timeout-ms", "390");
    let reply = Client::once(edge.addresses()[0], request).await;
    assert_eq!((reply.status, reply.code()), (504, Some("deadline_exceeded")), "{}", reply.text());
    assert_eq!(reply.header("x-spillway-shed-reason"), Some("late"));
    assert!(gate.arrived().is_empty());
    edge.stop().await;
    core.stop().await;
}
