//! Nodes of a region share what they learn of caches.

use http::Request;
use serde_json::{Value, json};
use spillway_config::Config;
use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, Cluster, Page, Reply, Setup, emulator, eventually, knows, post,
};

const REPLICAS: u16 = 6;

/// A system prompt of nine blocks that no other number shares.
fn system(number: u32) -> Value {
    json!({"role": "system", "content": format!("You are assistant {number:03}. ").repeat(120)})
}

fn ask(messages: &[Value]) -> Request<ClientBody> {
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 2});
    post("/v1/chat/completions", body.to_string())
}

async fn fetch(node: &Node, messages: &[Value]) -> Reply {
    let reply = Client::once(node.addresses()[0], ask(messages)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

fn replica(reply: &Reply) -> String {
    reply.header("x-spillway-replica").expect("routing").to_owned()
}

fn cached_tokens(reply: &Reply) -> u64 {
    reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0)
}

fn sum(node: &Node, metric: &str, labels: &[(&str, &str)]) -> f64 {
    Page::of(node).sum(metric, labels)
}

fn blocks(node: &Node) -> f64 {
    sum(node, "spillway_prefix_index_blocks", &[])
}

/// Returns true if the node believes that no replica has anything to do.
fn is_idle(node: &Node) -> bool {
    let view = node.gateway().routing.view();
    view.replicas()
        .iter()
        .all(|replica| replica.in_flight() + replica.elsewhere() + replica.pending_elsewhere() == 0)
}

/// Routes by knowledge of caches, although that saves little at the speed of these replicas.
const BY_PREFIX: &str = "[[route]]\nname = \"llm\"\npolicy = \"prefix_aware\"\n";

/// Nodes of one region with the same replicas.
async fn region(nodes: usize) -> (Cluster, Vec<Node>, Emulator) {
    region_with(nodes, |_| {}).await
}

/// Nodes of one region with other constants.
async fn region_with(nodes: usize, change: fn(&mut Config)) -> (Cluster, Vec<Node>, Emulator) {
    let emulator = emulator(REPLICAS).await;
    let cluster = Cluster::new(&vec!["here"; nodes]);
    let mut started = Vec::new();
    for index in 0..nodes {
        let setup = Setup::new().table(BY_PREFIX).with(change).emulated(&emulator);
        started.push(cluster.start(index, setup).await);
    }
    eventually("they hear each other", || {
        started.iter().all(|node| {
            sum(node, "spillway_link_connected", &[("kind", "control")]) == (nodes - 1) as f64
        })
    })
    .await;
    (cluster, started, emulator)
}

#[tokio::test]
async fn a_chat_that_goes_on_through_another_node_finds_its_cache() {
    let (_cluster, nodes, _emulator) = region(3).await;
    for number in 0..8 {
        let mut messages = vec![system(number), json!({"role": "user", "content": "Hello"})];
        let before = nodes.iter().map(blocks).fold(0.0, f64::max);
        let first = fetch(&nodes[0], &messages).await;
        eventually("all have heard of it", || nodes.iter().all(|node| blocks(node) > before)).await;
        eventually("and of its end", || nodes.iter().all(is_idle)).await;
        messages.push(json!({"role": "assistant", "content": "Hello to you."}));
        messages.push(json!({"role": "user", "content": "Go on."}));
        let through = 1 + number as usize % 2;
        let second = fetch(&nodes[through], &messages).await;
        assert_eq!(replica(&second), replica(&first), "chat {number} through node {through}");
        assert!(cached_tokens(&second) > 300, "{}", second.text());
    }
    // Eight system prompts of 9 blocks in 8 bytes each, and little else: no block is sent twice to
    // one node.
    let bytes: f64 =
        nodes.iter().map(|node| sum(node, "spillway_prefix_shared_sent_bytes_total", &[])).sum();
    assert!((8.0 * 9.0 * 8.0..3_000.0).contains(&bytes), "{bytes}");
    let heard = |node| sum(node, "spillway_prefix_shared_total", &[("result", "heard")]);
    eventually("all have heard all", || nodes.iter().map(heard).sum::<f64>() == 32.0).await;
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn where_nothing_is_shared_each_node_knows_its_own_alone() {
    let (_cluster, nodes, _emulator) =
        region_with(2, |config| config.knowledge.is_shared = false).await;
    let messages = [system(1), json!({"role": "user", "content": "Hello"})];
    fetch(&nodes[0], &messages).await;
    eventually("the first one knows", || blocks(&nodes[0]) > 0.0).await;
    assert_eq!(sum(&nodes[0], "spillway_prefix_shared_total", &[("result", "told")]), 0.0);
    assert_eq!(blocks(&nodes[1]), 0.0);
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_node_that_comes_later_asks_for_what_it_lacks() {
    let emulator = emulator(REPLICAS).await;
    let cluster = Cluster::new(&["here", "here"]);
    let first = cluster.start(0, Setup::new().table(BY_PREFIX).emulated(&emulator)).await;
    let mut messages = vec![system(1), json!({"role": "user", "content": "Hello"})];
    let reply = fetch(&first, &messages).await;
    eventually("the first one knows", || blocks(&first) > 0.0).await;
    let late = cluster.start(1, Setup::new().table(BY_PREFIX).emulated(&emulator)).await;
    eventually("they hear each other", || {
        sum(&first, "spillway_link_connected", &[("kind", "control")]) == 1.0
    })
    .await;
    // Of this chat the first node sends only the new blocks.
    messages.push(json!({"role": "assistant", "content": "Hello to you. ".repeat(30)}));
    messages.push(json!({"role": "user", "content": "Go on."}));
    let again = fetch(&first, &messages).await;
    assert_eq!(replica(&again), replica(&reply));
    eventually("the late one knows all of it", || blocks(&late) == blocks(&first)).await;
    assert!(sum(&late, "spillway_prefix_shared_total", &[("result", "lacking")]) > 0.0);
    let third = fetch(&late, &messages).await;
    assert_eq!(replica(&third), replica(&reply));
    first.stop().await;
    late.stop().await;
}

#[tokio::test]
async fn a_replica_that_restarts_is_taken_to_have_nothing() {
    let emulator = emulator(1).await;
    let lines = "kind = \"vllm\"";
    let url = format!("http://{}", emulator.addresses()[0]);
    let node =
        Setup::new().set("node.expose_routing = true").replica_with("a", &url, lines).start().await;
    let messages = [system(1), json!({"role": "user", "content": "Hello"})];
    fetch(&node, &messages).await;
    eventually("it is known", || blocks(&node) > 0.0).await;
    let expected = |reply: &Reply| -> u64 {
        reply.header("x-spillway-cached-tokens").expect("a number").parse().expect("a number")
    };
    assert!(expected(&fetch(&node, &messages).await) > 300);
    let scrapes = || sum(&node, "spillway_replica_checks_total", &[("check", "scrape")]);
    let before = scrapes();
    eventually("its counters were read", || scrapes() >= before + 3.0).await;
    emulator.replica(0).set_fault(Fault::Crash).await.expect("a crash");
    emulator.replica(0).set_fault(Fault::None).await.expect("a restart");
    eventually("it is taken for empty", || sum(&node, "spillway_prefix_flushes_total", &[]) >= 1.0)
        .await;
    let reply = Client::once(node.addresses()[0], ask(&messages)).await;
    assert_eq!(expected(&reply), 0, "{}", reply.text());
    node.stop().await;
}

#[tokio::test]
async fn regions_tell_each_other_how_fast_they_are() {
    let emulator = emulator(1).await;
    let cluster = Cluster::new(&["one", "two"]);
    let mut nodes = Vec::new();
    for index in 0..2 {
        nodes.push(cluster.start(index, Setup::new().emulated(&emulator)).await);
    }
    knows(&nodes[1], "one").await;
    let messages = [system(1), json!({"role": "user", "content": "Hello"})];
    for _ in 0..40 {
        let body = json!({"model": "tiny", "messages": messages, "max_tokens": 4, "stream": true,
            "stream_options": {"include_usage": true}});
        let request = post("/v1/chat/completions", body.to_string());
        assert_eq!(Client::once(nodes[0].addresses()[0], request).await.status, 200);
    }
    let speed = || {
        let regions = nodes[1].gateway().routing.regions();
        let other = regions.others.iter().find(|other| other.name.as_str() == "one")?;
        let model = other.models.iter().find(|(name, _)| name.as_str() == "tiny")?;
        Some(model.1.speed)
    };
    eventually("the other region knows", || speed().is_some_and(|speed| speed.trust > 0.0)).await;
    for node in nodes {
        node.stop().await;
    }
}
