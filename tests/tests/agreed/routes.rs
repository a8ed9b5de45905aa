//! The cluster's records of models, splits and routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use spillway_cluster_state::{Arm, Item, Model, RecordKey, Route, Split};
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, Page, Reply, Scripted, Serving, Setup, chat, eventually, spawn,
};

use crate::world::*;

/// Longest time for an agreed change to take effect everywhere, far above the usual time.
const SOON: Duration = PATIENCE;

fn alias(name: &str, target: &str) -> Item {
    Item::Model(name.into(), Model { alias_of: Some(target.into()), ..Model::default() })
}

fn fallback(name: &str, other: &str) -> Item {
    Item::Model(name.into(), Model { fallbacks: vec![other.into()], ..Model::default() })
}

fn route(name: &str, policy: &str, pool: &str) -> Item {
    let (policy, pool) = (policy.to_owned(), pool.to_owned());
    Item::Route(name.into(), Route { policy, pool, ..Route::default() })
}

fn split(name: &str, to: &str) -> Item {
    let arm = Arm { name: "all".into(), model: to.into(), version: None, weight_permille: 1_000 };
    Item::Split(name.into(), Split { arms: vec![arm], ..Split::default() })
}

async fn ask_for(node: &Node, model: &str) -> Reply {
    Client::once(node.addresses()[0], chat(model, "")).await
}

/// Waits until `model` is answered at all nodes as `is_right` wants it.
async fn soon(world: &World, what: &str, model: &str, is_right: impl Fn(&Reply) -> bool) {
    let begin = Instant::now();
    for node in world.running() {
        loop {
            let reply = ask_for(node, model).await;
            if is_right(&reply) {
                break;
            }
            assert!(begin.elapsed() < SOON, "{what}: {} {:?}", reply.status, reply.headers);
            // wait: between two requests
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn policy_is(reply: &Reply, policy: &str) -> bool {
    reply.status == 200 && reply.header("x-spillway-policy") == Some(policy)
}

/// Sends requests for `tiny` to a node, without a pause, until `stop` is set. Returns how many
/// there were, and how many failed.
fn load(node: &Node, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<(usize, usize)> {
    let (address, stop) = (node.addresses()[0], Arc::clone(stop));
    spawn(async move {
        let (sent, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        while !stop.load(Ordering::Relaxed) {
            let reply = Client::once(address, chat("tiny", "")).await;
            sent.fetch_add(1, Ordering::Relaxed);
            failed.fetch_add(usize::from(reply.status != 200), Ordering::Relaxed);
        }
        (sent.into_inner(), failed.into_inner())
    })
}

#[tokio::test]
async fn names_and_routes_take_effect_at_all_nodes_while_they_serve() {
    let world = World::started(&REGIONS).await;
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = world.running().map(|node| load(node, &stop)).collect();
    assert_eq!(ask_for(world.node(2), "fast").await.status, 404);

    put(world.node(0), alias("fast", "tiny")).await;
    soon(&world, "the alias is known", "fast", |reply| reply.status == 200).await;
    put(world.node(1), split("mixed", "tiny")).await;
    let by_arm = |reply: &Reply| reply.header("x-spillway-arm").is_some();
    soon(&world, "the split is known", "mixed", by_arm).await;
    put(world.node(2), route("default", "round_robin", "")).await;
    soon(&world, "the route counts", "tiny", |reply| policy_is(reply, "round_robin")).await;
    put(world.node(0), fallback("absent", "tiny")).await;
    soon(&world, "the fallback stands in", "absent", |reply| reply.status == 200).await;

    remove(world.node(1), RecordKey::Model("fast".into())).await;
    soon(&world, "the alias is gone", "fast", |reply| reply.status == 404).await;
    remove(world.node(1), RecordKey::Route("default".into())).await;
    soon(&world, "the config counts", "tiny", |reply| policy_is(reply, "predicted_latency")).await;

    stop.store(true, Ordering::Relaxed);
    for load in loads {
        let (sent, failed) = load.await.expect("a task that ends");
        assert!(sent > 5, "{sent}");
        assert_eq!(failed, 0, "of {sent}");
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_told_and_breaks_nothing_else() {
    let world = World::started(&REGIONS).await;
    put(world.node(0), route("nowhere", "random", "no-such-pool")).await;
    put(world.node(0), route("odd", "by_magic", "")).await;
    put(world.node(0), alias("fast", "tiny")).await;
    soon(&world, "the alias is known", "fast", |reply| policy_is(reply, "predicted_latency")).await;
    for node in world.running() {
        let page = Page::of(node);
        let count = |kind: &str, of: &str| {
            page.sum("spillway_control_items", &[("kind", kind), ("use", of)])
        };
        assert_eq!(count("route", "unusable"), 1.0);
        assert_eq!(count("route", "in_part"), 1.0);
        assert_eq!(count("model", "used"), 1.0);
    }
}

/// Nodes of three regions whose config has an alias and a policy of its own.
async fn configured(cluster: &Cluster, replica: &Serving, index: usize) -> Node {
    let setup = Setup::new()
        .set("aliases.fast = \"tiny\"")
        .set("aliases.slow = \"tiny\"")
        .replica_with("a", &format!("http://{}", replica.address), "models = [\"tiny\", \"big\"]")
        .table("[[route]]\nname = \"default\"\npolicy = \"random\"");
    cluster.start(index, setup).await
}

#[tokio::test]
async fn the_clusters_word_counts_over_the_configs_and_from_the_first_request_after_a_restart() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&REGIONS).agreeing();
    let mut nodes = Vec::new();
    for index in 0..REGIONS.len() {
        nodes.push(configured(&cluster, &replica, index).await);
    }
    eventually("the cluster is formed", || {
        nodes.iter().all(|node| state(node).records().nodes.len() == REGIONS.len())
    })
    .await;
    put(&nodes[0], alias("fast", "big")).await;
    put(&nodes[0], route("default", "round_robin", "")).await;
    let is_hidden = |reply: &Reply| {
        reply.header("x-spillway-model") == Some("big") && policy_is(reply, "round_robin")
    };
    for node in &nodes {
        let begin = Instant::now();
        while !is_hidden(&ask_for(node, "fast").await) {
            assert!(begin.elapsed() < SOON);
            // wait: between two requests
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(ask_for(node, "slow").await.header("x-spillway-model"), Some("tiny"));
    }
    for node in nodes {
        node.stop().await;
    }
    // Alone, so that it has no other node to ask.
    let node = configured(&cluster, &replica, 1).await;
    let reply = ask_for(&node, "fast").await;
    assert!(is_hidden(&reply), "{:?}", reply.headers);
}
