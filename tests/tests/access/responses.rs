//! Stored responses are found at every node of a cluster, by their tenant alone.

use http::Method;
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_tests::{
    Client, Cluster, Page, Reply, Setup, emulator, eventually, full, get, knows, message, post,
    within,
};

use crate::keys::Key;
use crate::tenants::{STORE, response_id};

/// Two nodes of one region, a second region, and a region without replicas.
const REGIONS: [&str; 4] = ["us", "us", "eu", "edge"];

struct World {
    cluster: Cluster,
    emulators: [Emulator; 2],
    keys: Vec<Key>,
    /// Nodes whose config has no replica, though their region has one.
    bare: &'static [usize],
    nodes: Vec<Node>,
}

impl World {
    async fn start(keys: Vec<Key>) -> Self {
        Self::start_with(keys, &[]).await
    }

    async fn start_with(keys: Vec<Key>, bare: &'static [usize]) -> Self {
        let cluster = Cluster::new(&REGIONS);
        Self::start_cluster(cluster, keys, bare).await
    }

    async fn start_cluster(cluster: Cluster, keys: Vec<Key>, bare: &'static [usize]) -> Self {
        let emulators = [emulator(2).await, emulator(1).await];
        let mut world = Self { cluster, emulators, keys, bare, nodes: Vec::new() };
        for index in 0..REGIONS.len() {
            let node = world.node(index).await;
            world.nodes.push(node);
        }
        for index in 0..REGIONS.len() {
            world.knows(index).await;
        }
        world
    }

    async fn node(&self, index: usize) -> Node {
        let setup = Setup::new().table("[aliases]\nchat = \"tiny\"");
        let setup = self.keys.iter().fold(setup, |setup, key| setup.table(&*key.block));
        let setup = match REGIONS[index] {
            _ if self.bare.contains(&index) => setup,
            "us" => setup.emulated(&self.emulators[0]),
            "eu" => setup.emulated(&self.emulators[1]),
            _ => setup,
        };
        self.cluster.start(index, setup).await
    }

    async fn knows(&self, index: usize) {
        for region in ["us", "eu"].into_iter().filter(|region| *region != REGIONS[index]) {
            knows(&self.nodes[index], region).await;
        }
        let responses = &self.nodes[index].gateway().homes.responses;
        eventually("it has heard what others know", || !responses.is_learning()).await;
    }

    async fn restart(&mut self, index: usize) {
        let (old, last) = (self.nodes.swap_remove(index), self.nodes.len());
        old.stop().await;
        let node = self.node(index).await;
        self.nodes.push(node);
        self.nodes.swap(index, last);
        self.knows(index).await;
    }

    async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
    }
}

/// Asks over a connection of its own, as a client behind a load balancer may.
async fn ask(node: &Node, key: &Key, path: &str) -> Reply {
    Client::once(node.addresses()[0], key.sign(get(path))).await
}

async fn post_to(node: &Node, key: &Key, body: String) -> Reply {
    Client::once(node.addresses()[0], key.sign(post("/v1/responses", body))).await
}

fn going_on(id: &str) -> String {
    STORE.replace("\"input\"", &format!("\"previous_response_id\":\"{id}\",\"input\""))
}

/// Each response is found at each node by its own tenant, and by no other one.
async fn check_everywhere(world: &World, ids: &[String]) {
    let (own, rival) = (&world.keys[0], &world.keys[1]);
    for node in &world.nodes {
        for id in ids {
            let path = format!("/v1/responses/{id}");
            let found = within("the node that has it is connected", async {
                loop {
                    let found = ask(node, own, &path).await;
                    if found.code() != Some("replica_connect") {
                        break found;
                    }
                }
            })
            .await;
            assert_eq!(found.status, 200, "{}", found.text());
            assert_eq!(found.json()["id"], id.as_str());
            assert_eq!(ask(node, own, &format!("{path}/input_items")).await.status, 200);
            let next = post_to(node, own, going_on(id)).await;
            assert_eq!(next.status, 200, "{}", next.text());
            assert_eq!(next.json()["previous_response_id"], id.as_str());
            let unknown = ask(node, rival, "/v1/responses/resp_unknown").await.text().to_owned();
            for reply in [ask(node, rival, &path).await, post_to(node, rival, going_on(id)).await] {
                assert_eq!((reply.status, reply.code()), (404, Some("response_not_found")));
                assert_eq!(
                    reply.text(),
                    unknown.replace("resp_unknown", id),
                    "nothing tells them apart"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_stored_response_is_found_at_every_node_by_its_tenant_alone() {
    let keys = vec![Key::new("a", "acme", ""), Key::new("b", "rival", "")];
    let world = World::start(keys).await;
    let mut ids = Vec::new();
    for node in &world.nodes {
        let stored = post_to(node, &world.keys[0], STORE.to_owned()).await;
        assert_eq!(stored.status, 200, "{}", stored.text());
        ids.push(response_id(stored.text()));
        // Immediately, whether or not the other nodes know yet.
        check_everywhere(&world, &ids[ids.len() - 1..]).await;
    }
    let path = format!("/v1/responses/{}", ids[0]);
    let delete = message(Method::DELETE, &path, "application/json", full(""));
    let deleted = Client::once(world.nodes[3].addresses()[0], world.keys[0].sign(delete)).await;
    assert_eq!(deleted.json()["deleted"], true, "{}", deleted.text());
    assert_eq!(ask(&world.nodes[2], &world.keys[0], &path).await.status, 404);
    for node in &world.nodes {
        let page = Page::of(node);
        assert_eq!(page.sum("spillway_responses_not_kept_total", &[]), 0.0);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_stored_response_is_found_after_each_node_was_restarted() {
    let keys = vec![Key::new("a", "acme", ""), Key::new("b", "rival", "")];
    let mut world = World::start(keys).await;
    let mut ids = Vec::new();
    for node in &world.nodes {
        let stored = post_to(node, &world.keys[0], STORE.to_owned()).await;
        ids.push(response_id(stored.text()));
    }
    let all_known = |world: &World| {
        let known = |node: &Node| ids.iter().all(|id| node.gateway().homes.responses.knows(id));
        world.nodes.iter().all(known)
    };
    eventually("all nodes are told of all responses", || all_known(&world)).await;
    for index in 0..REGIONS.len() {
        world.restart(index).await;
        eventually("it has asked the others", || all_known(&world)).await;
    }
    check_everywhere(&world, &ids).await;
    world.stop().await;
}

#[tokio::test]
async fn a_stored_response_is_found_after_all_nodes_ended_at_once() {
    let keys = vec![Key::new("a", "acme", ""), Key::new("b", "rival", "")];
    let mut world = World::start_cluster(Cluster::new(&REGIONS).agreeing(), keys, &[]).await;
    let mut ids = Vec::new();
    for node in &world.nodes {
        let stored = post_to(node, &world.keys[0], STORE.to_owned()).await;
        ids.push(response_id(stored.text()));
    }
    for node in std::mem::take(&mut world.nodes) {
        node.stop().await;
    }
    for index in 0..REGIONS.len() {
        let node = world.node(index).await;
        world.nodes.push(node);
    }
    // Immediately: an id that the node has not learned yet is not answered with 404.
    let path = format!("/v1/responses/{}", ids[0]);
    let reply = ask(&world.nodes[3], &world.keys[0], &path).await;
    assert!(matches!(reply.status, 200 | 502 | 503), "{}", reply.text());
    for index in 0..REGIONS.len() {
        world.knows(index).await;
    }
    check_everywhere(&world, &ids).await;
    world.stop().await;
}

#[tokio::test]
async fn a_replica_of_one_node_s_config_answers_for_its_responses_at_every_node() {
    let keys = vec![Key::new("a", "acme", ""), Key::new("b", "rival", "")];
    let mut world = World::start_with(keys, &[1]).await;
    let stored = post_to(&world.nodes[0], &world.keys[0], STORE.to_owned()).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    let ids = [response_id(stored.text())];
    check_everywhere(&world, &ids).await;
    // The node with the replica learns of the response from the other nodes, which know its owner.
    for index in [0, 1, 2] {
        world.restart(index).await;
        let knows = |world: &World| world.nodes[index].gateway().homes.responses.knows(&ids[0]);
        eventually("it has asked the others", || knows(&world)).await;
        check_everywhere(&world, &ids).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn a_key_for_an_alias_alone_finds_its_responses_everywhere() {
    let world = World::start(vec![Key::new("a", "acme", "models = [\"chat\"]")]).await;
    for node in &world.nodes {
        let stored = post_to(node, &world.keys[0], STORE.replace("tiny", "chat")).await;
        assert_eq!(stored.status, 200, "{}", stored.text());
        let path = format!("/v1/responses/{}", response_id(stored.text()));
        for node in &world.nodes {
            let found = ask(node, &world.keys[0], &path).await;
            assert_eq!(found.status, 200, "{}", found.text());
        }
    }
    world.stop().await;
}
