//! Sessions by header and conversations keep their replica whichever node gets their next request.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{HeaderValue, Request};
use serde_json::{Value, json};
use spillway_emulator::{Emulator, Fault};
use spillway_node::Node;
use spillway_tests::{
    Client, ClientBody, Cluster, OK, Page, Reply, Scripted, Setup, chat, emulator, eventually,
    knows, post,
};

/// Two regions of two nodes each, and two nodes without replicas.
const REGIONS: [&str; 6] = ["us", "us", "eu", "eu", "edge", "edge"];
/// A route with sessions, whose policy spreads requests by itself.
const BY_HEADER: &str = "[[route]]\nname = \"llm\"\npolicy = \"random\"\n\
                         session = { header = \"x-session\" }";

fn place(reply: &Reply) -> (String, String) {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let fact = |name: &str| reply.header(&format!("x-spillway-{name}")).expect("a fact").to_owned();
    (fact("region"), fact("replica"))
}

async fn ask(node: &Node, session: &str) -> Reply {
    let mut request = chat("tiny", ",\"max_tokens\":2");
    request.headers_mut().insert("x-session", HeaderValue::from_str(session).expect("a value"));
    Client::once(node.addresses()[0], request).await
}

async fn start(cluster: &Cluster, emulators: &[Emulator; 2], index: usize) -> Node {
    let setup = Setup::new().table(BY_HEADER);
    let setup = match REGIONS[index] {
        "us" => setup.emulated(&emulators[0]),
        "eu" => setup.emulated(&emulators[1]),
        _ => setup,
    };
    cluster.start(index, setup).await
}

async fn know_each_other(nodes: &[Node]) {
    for (node, own) in nodes.iter().zip(REGIONS) {
        for region in ["us", "eu"].into_iter().filter(|region| *region != own) {
            knows(node, region).await;
        }
    }
}

fn changes(nodes: &[Node], kept: &str) -> f64 {
    let of = |node| Page::of(node).sum("spillway_home_changes_total", &[("kept", kept)]);
    nodes.iter().map(of).sum()
}

#[tokio::test]
async fn a_session_by_header_keeps_its_replica_over_nodes_edges_and_restarts() {
    let emulators = [emulator(4).await, emulator(4).await];
    let cluster = Cluster::new(&REGIONS);
    let mut nodes = Vec::new();
    for index in 0..REGIONS.len() {
        nodes.push(start(&cluster, &emulators, index).await);
    }
    know_each_other(&nodes).await;
    let sessions: Vec<String> = (0..12).map(|number| format!("s-{number}")).collect();
    let mut homes = Vec::new();
    for (number, session) in sessions.iter().enumerate() {
        homes.push(place(&ask(&nodes[number % nodes.len()], session).await));
    }
    assert!(homes.iter().collect::<BTreeSet<_>>().len() > 2, "one replica proves nothing");
    let known = |node: &Node| {
        let view = node.gateway().routing.view();
        view.sessions().all(|(_, it)| it.some_homes(99).len() == sessions.len())
    };
    let told = |nodes: &[Node]| nodes.iter().all(known);
    eventually("all nodes are told of all sessions", || told(&nodes)).await;
    for turn in 0..nodes.len() {
        for (number, session) in sessions.iter().enumerate() {
            let node = &nodes[(number + turn) % nodes.len()];
            assert_eq!(place(&ask(node, session).await), homes[number], "{session}");
        }
    }
    // A whole region and an edge are restarted, one node after the other.
    for index in [0, 1, 4] {
        let old = nodes.remove(index);
        old.stop().await;
        nodes.insert(index, start(&cluster, &emulators, index).await);
        know_each_other(&nodes).await;
        eventually("it has asked the others", || told(&nodes)).await;
    }
    for (number, session) in sessions.iter().enumerate() {
        for node in &nodes {
            assert_eq!(place(&ask(node, session).await), homes[number], "{session}");
        }
    }
    assert_eq!(changes(&nodes, "session"), 0.0);
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_session_whose_replica_goes_moves_once_for_all_nodes() {
    let emulators = [emulator(2).await, emulator(2).await];
    let cluster = Cluster::new(&REGIONS);
    let mut nodes = Vec::new();
    for index in 0..2 {
        nodes.push(start(&cluster, &emulators, index).await);
    }
    let (_, home) = place(&ask(&nodes[0], "s").await);
    let index: usize = home.trim_start_matches('r').parse().expect("a number");
    emulators[0].replica(index).set_fault(Fault::Crash).await.expect("it crashes");
    let (_, moved) = place(&ask(&nodes[0], "s").await);
    assert_ne!(moved, home);
    let leads_there = |node: &Node| {
        let view = node.gateway().routing.view();
        view.sessions().all(|(_, it)| it.some_homes(9).iter().any(|(_, home)| home.version == 2))
    };
    eventually("the other node is told", || leads_there(&nodes[1])).await;
    for turn in 0..6 {
        assert_eq!(place(&ask(&nodes[turn % 2], "s").await).1, moved);
    }
    assert_eq!(changes(&nodes, "session"), 1.0);
    for node in nodes {
        node.stop().await;
    }
}

fn turn(messages: &[Value]) -> Request<ClientBody> {
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 2});
    post("/v1/chat/completions", body.to_string())
}

#[tokio::test]
async fn a_conversation_stays_in_its_region_through_several_edges() {
    let replicas = [Scripted::start().await.serve(OK), Scripted::start().await.serve(OK)];
    let cluster = Cluster::new(&["edge", "edge", "near", "far"]);
    for edge in 0..2 {
        cluster.distance(edge, 2, Duration::from_millis(4));
        cluster.distance(edge, 3, Duration::from_millis(60));
    }
    let far = cluster.start(3, Setup::new().replica("b", replicas[1].address)).await;
    let edges = [cluster.start(0, Setup::new()).await, cluster.start(1, Setup::new()).await];
    for edge in &edges {
        knows(edge, "far").await;
    }
    let content = "This is a conversation. ".repeat(40);
    let mut messages = vec![json!({"role": "user", "content": content})];
    let reply = Client::once(edges[0].addresses()[0], turn(&messages)).await;
    assert_eq!(place(&reply).0, "far");
    // A nearer region is better for all requests except those of the session.
    let near = cluster.start(2, Setup::new().replica("a", replicas[0].address)).await;
    for edge in &edges {
        knows(edge, "near").await;
    }
    for number in 0..6 {
        messages.push(json!({"role": "assistant", "content": "And so on. ".repeat(30)}));
        messages.push(json!({"role": "user", "content": "Go on. ".repeat(30)}));
        let reply = Client::once(edges[(number + 1) % 2].addresses()[0], turn(&messages)).await;
        assert_eq!(place(&reply).0, "far", "{number}");
        let known = |edge: &Node| edge.gateway().homes.conversations.some(99).len() == number + 2;
        eventually("both are told of the turn", || edges.iter().all(known)).await;
    }
    assert_eq!(changes(&edges, "conversation"), 0.0);
    for node in edges.into_iter().chain([near, far]) {
        node.stop().await;
    }
}
