//! Orders of operators about replicas: weights, and drains.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_cluster_state::{Command, Expect, Outcome, ReplicaId, ReplicaState};
use spillway_node::Node;
use spillway_tests::{Cluster, OK, Scripted, Serving, Setup, eventually};

use crate::world::*;

fn id(name: &str) -> ReplicaId {
    ReplicaId::new("one".into(), name.into())
}

fn setup(replicas: &[Serving; 2]) -> Setup {
    Setup::new()
        .table("[[route]]\nname = \"default\"\npolicy = \"weighted_round_robin\"")
        .replica("a", replicas[0].address)
        .replica("b", replicas[1].address)
}

/// Two nodes of one region with two replicas, both known to the cluster.
async fn started(cluster: &Cluster, replicas: &[Serving; 2]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for index in 0..2 {
        nodes.push(cluster.start(index, setup(replicas)).await);
    }
    let knows = |node: &Node| {
        let state = state(node);
        ["a", "b"].iter().all(|name| state.records().replicas.get(&id(name)).is_some())
    };
    eventually("both are registered", || nodes.iter().all(knows)).await;
    nodes
}

async fn give(node: &Node, weight: Option<u32>) {
    let command = Command::SetReplicaWeight { id: id("a"), weight, expect: Expect::Any };
    let done = order(node, command).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
}

/// Of so many requests, how many went to `a`.
async fn share_of_a(node: &Node, requests: usize) -> usize {
    let mut served: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..requests {
        let reply = ask(node).await;
        assert_eq!(reply.status, 200);
        let replica = reply.header("x-spillway-replica").expect("a replica").to_owned();
        *served.entry(replica).or_default() += 1;
    }
    served.get("a").copied().unwrap_or(0)
}

/// Waits until `a` gets so many of ten requests at every node.
async fn shares(nodes: &[Node], of_ten: usize) {
    for node in nodes {
        let mut looks = 0;
        while share_of_a(node, 10).await != of_ten {
            looks += 1;
            assert!(looks < 100, "never got {of_ten} of 10");
            // wait: between two looks, until the order has come
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert_eq!(share_of_a(node, 100).await, 10 * of_ten);
    }
}

#[tokio::test]
async fn a_weight_given_at_one_node_is_taken_by_all_and_keeps_the_replica_as_it_is() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&["one", "one"]).agreeing();
    let nodes = started(&cluster, &replicas).await;
    shares(&nodes, 5).await;
    let before = nodes[1].gateway().routing.view();
    give(&nodes[0], Some(4)).await;
    shares(&nodes, 8).await;
    let after = nodes[1].gateway().routing.view();
    let same = before.replicas().iter().zip(after.replicas());
    assert!(same.into_iter().all(|(before, after)| Arc::ptr_eq(before, after)));
    // The weight of the replica's own config is kept apart from the weight that an operator set.
    let record = state(&nodes[0]).records().replicas.get(&id("a")).cloned().expect("a replica");
    assert_eq!((record.spec.weight, record.weight), (1, Some(4)));
    give(&nodes[1], None).await;
    shares(&nodes, 5).await;
}

#[tokio::test]
async fn weight_and_drain_hold_from_the_first_request_after_a_restart() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&["one", "one"]).agreeing();
    let mut nodes = started(&cluster, &replicas).await;
    give(&nodes[0], Some(9)).await;
    shares(&nodes, 9).await;
    nodes.pop().expect("a node").stop().await;
    nodes.push(cluster.start(1, setup(&replicas)).await);
    assert_eq!(share_of_a(&nodes[1], 100).await, 90);
    for state in [ReplicaState::Draining, ReplicaState::Drained] {
        let command = Command::SetReplicaState { id: id("a"), state, expect: Expect::Any };
        let done = order(&nodes[0], command).await;
        assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
    }
    shares(&nodes, 0).await;
    nodes.pop().expect("a node").stop().await;
    nodes.push(cluster.start(1, setup(&replicas)).await);
    assert_eq!(share_of_a(&nodes[1], 20).await, 0);
    let active = ReplicaState::Active;
    let command = Command::SetReplicaState { id: id("a"), state: active, expect: Expect::Any };
    order(&nodes[0], command).await;
    shares(&nodes, 9).await;
}
