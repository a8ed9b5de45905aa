//! Orders of operators.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use spillway_cluster_state::{
    Actor, Belief, Command, Expect, Outcome, RegionState, ReplicaId, ReplicaState, State,
};
use spillway_node::Node;
use spillway_raft::{Consistency, ProposeError};
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, SLOWDOWN, Scripted, Setup, check_record, eventually, full,
    is_open, knows, last_record, message,
};
use spillway_types::{Admission, ReplicaSlot};

use crate::world::*;

#[tokio::test]
async fn an_order_given_at_one_node_takes_effect_at_all_and_outlives_them() {
    let mut world = World::started(&REGIONS).await;
    let begin = Instant::now();
    set_region(world.node(0), "two", RegionState::Draining).await;
    eventually("nobody sends anything to it", || {
        [0, 1].iter().all(|index| weight(world.node(*index), "two") == Some(0))
    })
    .await;
    assert!(begin.elapsed() < SLOWDOWN * Duration::from_secs(2), "{:?}", begin.elapsed());
    // Its own clients are served.
    assert_eq!(served_in(world.node(2)).await, "two");
    for index in 0..3 {
        let node = world.nodes[index].take().expect("a node");
        node.stop().await;
    }
    for index in 0..3 {
        world.start(index).await;
    }
    eventually("they know it again", || {
        [0, 1].iter().all(|index| weight(world.node(*index), "two") == Some(0))
    })
    .await;
    set_region(world.node(2), "two", RegionState::Active).await;
    eventually("it gets its share again", || {
        [0, 1].iter().all(|index| weight(world.node(*index), "two") == Some(1_000))
    })
    .await;
}

#[tokio::test]
async fn an_evacuated_region_sends_its_clients_away_and_serves_them_if_nobody_else_does() {
    let mut world = World::started(&REGIONS).await;
    for other in ["two", "three"] {
        knows(world.node(0), other).await;
    }
    assert_eq!(served_in(world.node(0)).await, "one");
    set_region(world.node(0), "one", RegionState::Evacuating).await;
    eventually("it knows", || world.node(0).gateway().routing.regions().is_evacuated).await;
    for _ in 0..20 {
        assert_ne!(served_in(world.node(0)).await, "one");
    }
    for index in [1, 2] {
        drop(world.nodes[index].take());
    }
    eventually("the others are gone", || {
        !is_open(world.node(0), "two") && !is_open(world.node(0), "three")
    })
    .await;
    assert_eq!(served_in(world.node(0)).await, "one");
}

#[tokio::test]
async fn a_request_that_fails_around_an_evacuated_region_says_so_in_its_record() {
    let mut world = World::started(&["one", "two"]).await;
    knows(world.node(0), "two").await;
    knows(world.node(1), "one").await;
    set_region(world.node(0), "one", RegionState::Evacuating).await;
    eventually("it knows", || world.node(0).gateway().routing.regions().is_evacuated).await;
    eventually("the other knows", || weight(world.node(1), "one") == Some(0)).await;
    // No replica is left, and the evacuated region is asked by no other.
    for replica in &mut world.replicas {
        drop(std::mem::replace(replica, Scripted::start().await.serve(OK)));
    }
    let reply = ask(world.node(1)).await;
    assert_eq!((reply.status, reply.code()), (503, Some("no_replica")), "{}", reply.text());
    let record = last_record(world.node(1)).await;
    check_record(&record, &json!({ "code": "no_replica", "replica": "a", "region": "two" }));
    check_record(&record, &json!({ "left_out": [{ "region": "one", "reason": "drained" }] }));
    check_record(&record["tries"][0], &json!({ "region": "two", "code": "replica_connect" }));
    // The evacuated region asks the other one for its own clients, and then its own replica.
    let reply = ask(world.node(0)).await;
    assert_eq!((reply.status, reply.code()), (503, Some("no_replica")), "{}", reply.text());
    let record = last_record(world.node(0)).await;
    check_record(&record, &json!({ "code": "no_replica", "replica": "a", "region": "one" }));
    check_record(&record["tries"][0], &json!({ "region": "two", "code": "region_failed" }));
    check_record(&record["tries"][1], &json!({ "region": "one", "code": "replica_connect" }));
    for node in world.nodes.iter_mut().filter_map(Option::take) {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_replica_is_drained_at_all_nodes_of_its_region() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&["one", "one"]).agreeing();
    let setup = || {
        let setup = Setup::new().set("health.slow_start_ms = 0");
        setup.replica("a", replicas[0].address).replica("b", replicas[1].address)
    };
    let nodes = [cluster.start(0, setup()).await, cluster.start(1, setup()).await];
    let id = |name: &str| ReplicaId::new("one".into(), name.into());
    let knows_both = |node: &Node| {
        ["a", "b"].iter().all(|name| state(node).records().replicas.get(&id(name)).is_some())
    };
    eventually("both are registered", || nodes.iter().all(knows_both)).await;
    let set = |state| Command::SetReplicaState { id: id("a"), state, expect: Expect::Any };
    let done = order(&nodes[0], set(ReplicaState::Draining)).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
    let is_open = |node: &Node, name: &str| {
        let view = node.gateway().routing.view();
        let index = view.replicas().iter().position(|found| found.spec().name.as_str() == name);
        let slot = ReplicaSlot(u32::try_from(index.expect("a replica")).expect("few replicas"));
        view.standing(slot).admission == Admission::Open
    };
    eventually("no node sends anything to it", || nodes.iter().all(|node| !is_open(node, "a")))
        .await;
    for node in &nodes {
        for _ in 0..5 {
            let reply = ask(node).await;
            assert_eq!((reply.status, reply.header("x-spillway-replica")), (200, Some("b")));
        }
    }
    eventually("that it has nothing left is known", || {
        let known = |node: &Node| state(node).records().replicas.get(&id("a")).cloned();
        nodes.iter().all(|node| known(node).is_some_and(|it| it.state == ReplicaState::Drained))
    })
    .await;
    order(&nodes[1], set(ReplicaState::Active)).await;
    eventually("it is back everywhere", || nodes.iter().all(|node| is_open(node, "a"))).await;
}

#[tokio::test]
async fn a_node_that_never_reached_its_cluster_serves_its_own_and_refuses_orders_at_once() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&REGIONS).agreeing();
    let node = cluster.start(0, Setup::new().replica("a", replica.address)).await;
    assert_eq!(served_in(&node).await, "one");
    let control_plane = node.control_plane().expect("a part in the cluster");
    let command = Command::SetRegionState {
        region: "one".into(),
        state: RegionState::Draining,
        expect: Expect::Any,
    };
    let begin = Instant::now();
    let refused = control_plane.propose(command, Actor::Operator("ada".into()), None, LIMIT).await;
    assert!(matches!(refused, Err(ProposeError::NoQuorum { .. })), "{refused:?}");
    assert!(begin.elapsed() < SLOWDOWN * Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(control_plane.read(Consistency::Linearizable, LIMIT, State::applied).await.is_err());
    let stale =
        control_plane.read(Consistency::Stale, LIMIT, State::cluster).await.expect("an answer");
    assert_eq!((stale.value, stale.age), (None, None));
}

#[tokio::test]
async fn without_a_majority_requests_are_served_and_spilled_as_before() {
    let mut world = World::started(&REGIONS).await;
    for other in ["two", "three"] {
        knows(world.node(0), other).await;
    }
    set_region(world.node(0), "one", RegionState::Evacuating).await;
    eventually("it knows", || world.node(0).gateway().routing.regions().is_evacuated).await;
    // Two of three nodes are gone, for Raft and for requests. The third goes on with its last known
    // state.
    drop(world.nodes[1].take());
    eventually("it is noticed", || !is_open(world.node(0), "three")).await;
    assert_eq!(served_in(world.node(0)).await, "two");
    drop(world.nodes[2].take());
    eventually("it is noticed", || !is_open(world.node(0), "two")).await;
    for _ in 0..10 {
        assert_eq!(served_in(world.node(0)).await, "one");
    }
    let refused = world.node(0).control_plane().expect("a part").propose(
        Command::SetRegionWeight { region: "one".into(), weight_permille: 1, expect: Expect::Any },
        Actor::Operator("ada".into()),
        None,
        SHORT,
    );
    let refused = refused.await;
    assert!(
        matches!(refused, Err(ProposeError::NoQuorum { .. } | ProposeError::Unknown)),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_cluster_believes_that_a_replica_is_down_when_its_region_says_so() {
    let mut world = World::started(&REGIONS).await;
    let id = ReplicaId::new("one".into(), "a".into());
    let believed = |node: &Node| state(node).records().health.get(&id).map(|health| health.belief);
    let other = Scripted::start().await.serve(OK);
    drop(std::mem::replace(&mut world.replicas[0], other));
    // Requests meet with a dead replica; so does the check of its port.
    let begin = Instant::now();
    while believed(world.node(2)) != Some(Belief::Down) {
        assert!(begin.elapsed() < PATIENCE, "{:?}", believed(world.node(2)));
        ask(world.node(0)).await;
        // wait: between two requests
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Orders to one node change no record of the cluster. A repeated order has one entry.
#[tokio::test]
async fn orders_to_one_node_are_in_the_audit_trail_of_all() {
    let world = World::started(&REGIONS).await;
    let post = async |index: usize, path: &str, body: &'static str| {
        let request = message(Method::POST, path, "application/json", full(body));
        let admin = world.node(index).admin_address().expect("an admin listener");
        let reply = Client::once(admin, request).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    };
    post(1, "/replicas/a/drain", "").await;
    post(1, "/replicas/a/resume", "").await;
    for _ in 0..3 {
        post(2, "/replicas/a/load", "{}").await;
    }
    let mut leader = None;
    eventually("one leads", || {
        let leads = |index: &usize| {
            let part = world.node(*index).control_plane().expect("a part");
            part.status().role == spillway_raft::Role::Leader
        };
        leader = (0..3).find(leads);
        leader.is_some()
    })
    .await;
    let leader = leader.expect("a leader");
    let heir = [r#"{"to":"n1"}"#, r#"{"to":"n2"}"#, r#"{"to":"n0"}"#][leader];
    post(leader, "/v1/leader", heir).await;
    let handed_over = format!("hand the lead over to n{}", (leader + 1) % 3);
    let orders = [
        ("drain replica a of this node", "n1"),
        ("resume replica a of this node", "n1"),
        ("report load of replica a of this node", "n2"),
        (handed_over.as_str(), ["n0", "n1", "n2"][leader]),
    ];
    eventually("all nodes know it", || {
        world.running().all(|node| {
            let state = state(node);
            let has = |(what, by): &(&str, &str)| {
                let records = state.operator_audit().iter().map(|(_, record)| record);
                records.filter(|it| it.what == *what && it.node.as_str() == *by).count() == 1
            };
            orders.iter().all(has)
        })
    })
    .await;
}
