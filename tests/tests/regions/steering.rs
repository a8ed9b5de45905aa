//! Advice whether to send new clients to a node: its content, its timing, and the other nodes'
//! knowledge of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, Page, Reply, Scripted, Setup, chat, eventually, get, knows,
    slow_emulator, spawn,
};
use tokio::task::{JoinHandle, JoinSet};

/// Returns a node's answer on the listener of clients.
async fn asked(node: &Node) -> (u16, String) {
    let reply = Client::once(node.addresses()[0], get("/steering")).await;
    (reply.status, reply.text().to_owned())
}

fn takes() -> (u16, String) {
    (200, r#"{"send_clients":true}"#.to_owned())
}

fn away(reason: &str) -> (u16, String) {
    (503, format!(r#"{{"send_clients":false,"reason":"{reason}"}}"#))
}

/// Waits until the node answers so.
async fn says(node: &Node, expected: (u16, String)) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let said = asked(node).await;
        if said == expected {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{said:?} and never {expected:?}");
        tokio::task::yield_now().await;
    }
}

/// Returns each region that the node knows, and whether it takes clients.
fn known_regions(node: &Node) -> Vec<(String, bool)> {
    let gateway = node.gateway();
    let known = gateway.routing.region_steering(gateway.switches.steering());
    known.into_iter().map(|known| (known.name.to_string(), known.takes_clients())).collect()
}

/// Returns whether the region takes clients, as far as the node knows; `None` if it knows no such
/// region.
fn knows_of(node: &Node, region: &str) -> Option<bool> {
    let all = known_regions(node);
    all.into_iter().find_map(|(name, takes_clients)| (name == region).then_some(takes_clients))
}

#[tokio::test]
async fn the_answer_needs_no_key_and_is_the_same_on_both_listeners() {
    let replica = Scripted::start().await.serve(OK);
    let keys = "[[listener]]\naddress = \"127.0.0.1:0\"\nauth = \"keys\"";
    let node = Setup::new().table(keys).replica("a", replica.address).start().await;
    says(&node, takes()).await;
    let admin = node.admin_address().expect("one");
    let known = known_regions(&node);
    assert!(known.len() == 1 && known[0].1, "{known:?}");
    for address in [node.addresses()[0], node.addresses()[1], admin] {
        let reply = Client::once(address, get("/steering")).await;
        assert_eq!((reply.status, reply.text().to_owned()), takes());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let mut head = get("/steering");
        *head.method_mut() = Method::HEAD;
        let reply = Client::once(address, head).await;
        assert_eq!((reply.status, reply.text()), (200, ""), "{address}");
    }
    let mut other = get("/steering");
    *other.method_mut() = Method::DELETE;
    assert_eq!(Client::once(node.addresses()[0], other).await.status, 405);
    node.gateway().switches.announce_leaving();
    assert!(!known_regions(&node)[0].1);
    node.stop().await;
}

#[tokio::test]
async fn an_edge_without_a_region_that_serves_is_to_be_sent_nobody() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["edge", "core"]).set("cluster.silence_ms = 900");
    let edge = cluster.start(0, Setup::new()).await;
    says(&edge, away("starting")).await;
    let core = cluster.start(1, Setup::new().replica("a", replica.address)).await;
    knows(&edge, "core").await;
    says(&edge, takes()).await;
    cluster.cut(1, 0, true);
    says(&edge, away("no_usable_replica")).await;
    // It knows the model still: it is ready, and answers its clients with 503.
    assert_eq!(knows_of(&edge, "core"), Some(false), "it is not heard");
    cluster.cut(1, 0, false);
    eventually("the core is heard again", || knows_of(&edge, "core") == Some(true)).await;
    for node in [edge, core] {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_region_that_is_given_no_weight_sends_its_clients_elsewhere_and_all_know() {
    let replica = Scripted::start().await.serve(OK);
    let setup = || Setup::new().replica("a", replica.address);
    let cluster = Cluster::new(&["one", "two"]);
    let ordered = setup().table("[[region]]\nname = \"one\"\nweight_percent = 0");
    let nodes = [cluster.start(0, ordered).await, cluster.start(1, setup()).await];
    knows(&nodes[1], "one").await;
    says(&nodes[0], away("ordered")).await;
    says(&nodes[1], takes()).await;
    eventually("the other one knows", || knows_of(&nodes[1], "one") == Some(false)).await;
    assert_eq!(knows_of(&nodes[0], "two"), Some(true));
    let page = Page::of(&nodes[1]);
    assert_eq!(page.sum("spillway_region_takes_clients", &[("region", "one")]), 0.0);
    assert_eq!(page.sum("spillway_takes_clients", &[]), 1.0);
    let page = Page::of(&nodes[0]);
    assert_eq!(page.sum("spillway_takes_clients", &[]), 0.0);
    assert_eq!(page.sum("spillway_clients_steered_away", &[("reason", "ordered")]), 1.0);
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_node_that_stops_says_so_at_once_and_serves_on_and_its_region_stays_while_another_takes_over()
 {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "one", "two"]).set("node.drain_notice_ms = 600000");
    let mut nodes = Vec::new();
    for index in 0..3 {
        nodes.push(cluster.start(index, Setup::new().replica("a", replica.address)).await);
    }
    for node in &nodes {
        says(node, takes()).await;
    }
    let two = nodes.pop().expect("a node");
    eventually("it is heard", || knows_of(&two, "one") == Some(true)).await;
    for (index, takes_clients) in [(0, true), (1, false)] {
        nodes[index].gateway().switches.announce_leaving();
        assert_eq!(asked(&nodes[index]).await, away("draining"), "with the very next answer");
        let reply = Client::once(nodes[index].addresses()[0], chat("tiny", "")).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let knows_it = || {
            let known = nodes[index].gateway().routing.regions().own_steering.takes_clients();
            known == takes_clients && knows_of(&two, "one") == Some(takes_clients)
        };
        eventually("all know how the region stands", knows_it).await;
    }
    assert_eq!(asked(&two).await, takes());
}

/// Sends requests faster than one place serves them, until it is stopped.
struct Flood {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Reply>>,
}

impl Flood {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&stop);
        let task = spawn(async move {
            let mut clients = JoinSet::new();
            for _ in 0..8 {
                let is_over = Arc::clone(&is_over);
                clients.spawn(async move {
                    let mut replies = Vec::new();
                    while !is_over.load(Ordering::SeqCst) {
                        let request = chat("tiny", ",\"max_tokens\":20,\"ignore_eos\":true");
                        replies.push(Client::once(address, request).await);
                        // wait: the pace of the load
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    replies
                });
            }
            clients.join_all().await.into_iter().flatten().collect()
        });
        Self { stop, task }
    }

    async fn end(self) -> Vec<Reply> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("the load")
    }
}

/// Two regions with one place each that do not spill, so that they reject the excess.
async fn two_regions() -> (Vec<Node>, Vec<Emulator>) {
    let cluster = Cluster::new(&["one", "two"]).set("spill.enabled = false\nspill.queue_max = 1");
    let (mut nodes, mut replicas) = (Vec::new(), Vec::new());
    for index in 0..2 {
        let emulator = slow_emulator(1, 0.3).await;
        let url = format!("http://{}", emulator.addresses()[0]);
        let setup = Setup::new().replica_with("a", &url, "connections_max = 1").with(|config| {
            config.steering.shed_for = Duration::from_millis(500);
            config.steering.well_for = Duration::from_millis(1_000);
        });
        nodes.push(cluster.start(index, setup).await);
        replicas.push(emulator);
    }
    for (node, other) in nodes.iter().zip(["two", "one"]) {
        knows(node, other).await;
        says(node, takes()).await;
        eventually("it is heard", || knows_of(node, other) == Some(true)).await;
    }
    (nodes, replicas)
}

#[tokio::test]
async fn a_region_that_turns_many_away_is_left_out_and_comes_back_and_the_last_one_stays() {
    let (nodes, _replicas) = two_regions().await;
    let flood = Flood::start(nodes[0].addresses()[0]);
    says(&nodes[0], away("shedding")).await;
    eventually("the other one knows", || knows_of(&nodes[1], "one") == Some(false)).await;
    assert_eq!(asked(&nodes[1]).await, takes());

    // Now the second one is full as well, so no region is better.
    let second = Flood::start(nodes[1].addresses()[0]);
    let is_shedding = || {
        let steering = nodes[1].gateway().switches.steering();
        steering == spillway_types::Steering::SendShedding
    };
    eventually("it turns some away, too", is_shedding).await;
    for _ in 0..20 {
        // wait: twenty times for longer, together, than it takes to be sent away
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(asked(&nodes[1]).await, takes());
    }
    for flood in [flood, second] {
        let replies = flood.end().await;
        assert!(replies.iter().any(|reply| reply.status == 503), "too easy");
    }
    says(&nodes[0], takes()).await;
    eventually("the other one knows", || knows_of(&nodes[1], "one") == Some(true)).await;
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test]
async fn what_a_client_may_not_have_or_asks_wrong_is_no_lack_of_room() {
    let replica = Scripted::start().await.serve(OK);
    let limit = "[[limit]]\nname = \"global\"\nrequests_per_min = 1";
    let setup = Setup::new().with(|config| config.steering.shed_for = Duration::ZERO).table(limit);
    let node = setup.replica("a", replica.address).start().await;
    says(&node, takes()).await;
    let mut client = Client::http1(node.addresses()[0]).await;
    let mut statuses = Vec::new();
    for _ in 0..30 {
        statuses.push(client.fetch(chat("tiny", "")).await.status);
        statuses.push(client.fetch(chat("no such model", "")).await.status);
    }
    assert!(statuses.contains(&429) && statuses.contains(&404), "{statuses:?}");
    let (served, shed) = node.gateway().counters.served_and_shed();
    assert!(served > 0, "{statuses:?}");
    assert_eq!(shed, 0, "{statuses:?}");
    node.stop().await;
}

#[tokio::test]
async fn operators_see_of_all_regions_whether_they_take_clients() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "two"]);
    let setup = || Setup::new().replica("a", replica.address);
    let nodes = [cluster.start(0, setup()).await, cluster.start(1, setup()).await];
    eventually("it is heard", || knows_of(&nodes[0], "two") == Some(true)).await;
    nodes[1].gateway().switches.announce_leaving();
    eventually("it is known", || knows_of(&nodes[0], "two") == Some(false)).await;
    let admin = nodes[0].admin_address().expect("one");
    let reply = Client::once(admin, get("/v1/steering")).await;
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    let shown = |index: usize, name: &str| answer["regions"][index][name].clone();
    assert_eq!((shown(0, "region"), shown(0, "takes_clients")), ("one".into(), true.into()));
    assert_eq!((shown(1, "region"), shown(1, "takes_clients")), ("two".into(), false.into()));
    assert_eq!((shown(1, "reason"), shown(1, "is_heard")), ("draining".into(), true.into()));
    for node in nodes {
        node.stop().await;
    }
}
