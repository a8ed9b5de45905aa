//! Health verdicts shared between the nodes of a region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spillway_node::Node;
use spillway_tests::{Cluster, OK, PATIENCE, Scripted, Serving, Setup, eventually, spawn};
use spillway_types::{Admission, ReplicaSlot};

use crate::world::*;

const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\nno";

/// Starts a replica that fails all requests from `n0` and `n1`, health checks included, while
/// `fails` is set.
async fn two_faced(fails: &Arc<AtomicBool>) -> std::net::SocketAddr {
    let (replica, fails) = (Scripted::start().await, Arc::clone(fails));
    let address = replica.address;
    spawn(async move {
        loop {
            let (mut wire, fails) = (replica.accept().await, Arc::clone(&fails));
            spawn(async move {
                while wire.has_more().await {
                    let message = wire.message().await;
                    let is_last = message.header("x-node") == Some("n2");
                    let fails = fails.load(Ordering::Relaxed) && !is_last;
                    if wire.try_send(if fails { FAILED } else { OK }.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn standing(node: &Node) -> Admission {
    let view = node.gateway().routing.view();
    let index = view.replicas().iter().position(|found| found.spec().name.as_str() == "a");
    let slot = u32::try_from(index.expect("a replica")).expect("few replicas");
    view.standing(ReplicaSlot(slot)).admission
}

/// Sends requests to all nodes until the last one's view of `a` is this.
async fn ask_until(nodes: &[Node], wanted: Admission) {
    let begin = Instant::now();
    while standing(&nodes[2]) != wanted {
        assert!(begin.elapsed() < PATIENCE, "{:?}", standing(&nodes[2]));
        for node in nodes {
            ask(node).await;
        }
        // wait: between two rounds
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Three nodes of one region with two replicas, of which `a` fails the first two.
async fn started(cluster: &Cluster, fails: &Arc<AtomicBool>, other: &Serving) -> Vec<Node> {
    let replica = two_faced(fails).await;
    let mut nodes = Vec::new();
    for index in 0..3 {
        let who = format!("credential = {{ header = \"x-node\", value = \"n{index}\" }}");
        let setup = Setup::new()
            // Checks go on reporting their results even when no request is sent to the replica.
            .set("health.check = \"http\"")
            .set("health.interval_ms = 200")
            .set("retry.attempts_max = 1")
            .replica_with("a", &format!("http://{replica}"), &who)
            .replica("b", other.address);
        nodes.push(cluster.start(index, setup).await);
    }
    eventually("the cluster is formed", || {
        nodes.iter().all(|node| state(node).records().replicas.len() == 2)
    })
    .await;
    nodes
}

#[tokio::test]
async fn what_most_nodes_of_the_region_call_down_gets_nothing_from_the_others_either() {
    let fails = Arc::new(AtomicBool::new(true));
    let other = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "one", "one"]).agreeing();
    let nodes = started(&cluster, &fails, &other).await;
    ask_until(&nodes, Admission::Down).await;
    for _ in 0..20 {
        let reply = ask(&nodes[2]).await;
        assert_eq!((reply.status, reply.header("x-spillway-replica")), (200, Some("b")));
    }
    fails.store(false, Ordering::Relaxed);
    ask_until(&nodes, Admission::Open).await;
}

#[tokio::test]
async fn without_a_quorum_nobody_can_take_it_back_so_it_counts_only_for_a_while() {
    let fails = Arc::new(AtomicBool::new(true));
    let other = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "one", "one"]).agreeing();
    let mut nodes = started(&cluster, &fails, &other).await;
    ask_until(&nodes, Admission::Down).await;
    let last = nodes.pop().expect("a node");
    nodes.clear();
    let begin = Instant::now();
    while standing(&last) != Admission::Open {
        assert!(begin.elapsed() < PATIENCE, "{:?}", standing(&last));
        // wait: between two looks
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begin.elapsed() > Duration::from_secs(5), "{:?}", begin.elapsed());
}
