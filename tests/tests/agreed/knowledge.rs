//! Knowledge of hot prompts is shared between regions: it decides where requests go, is sent to
//! nodes that join, and starts empty after a change of the hash key. Learned speeds survive a
//! restart.

use http::Request;
use serde_json::json;
use spillway_cluster_state::{Command, Expect, Outcome, RegionState};
use spillway_emulator::Emulator;
use spillway_node::Node;
use spillway_tests::{Client, ClientBody, Cluster, Page, Setup, emulator, eventually, knows, post};

use crate::join::make_token;
use crate::world::*;

/// A prompt of some twenty blocks that no other number shares.
fn long(number: u32, fields: &str) -> Request<ClientBody> {
    let text = format!("You are assistant {number:03}. ").repeat(250);
    let messages = json!([{"role": "system", "content": text}, {"role": "user", "content": "Hi"}]);
    let body = format!("{{\"model\":\"tiny\",\"max_tokens\":2,\"messages\":{messages}{fields}}}");
    post("/v1/chat/completions", body)
}

async fn ask_long(node: &Node, number: u32) -> String {
    let reply = Client::once(node.addresses()[0], long(number, "")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("x-spillway-region").expect("a region").to_owned()
}

fn sum(node: &Node, metric: &str, labels: &[(&str, &str)]) -> f64 {
    Page::of(node).sum(metric, labels)
}

fn hot(node: &Node, region: &str) -> f64 {
    sum(node, "spillway_hot_blocks", &[("region", region)])
}

/// A node in each region, each with replicas of its own.
struct Warm {
    cluster: Cluster,
    emulators: Vec<Emulator>,
    nodes: Vec<Option<Node>>,
}

impl Warm {
    async fn started(regions: &[&str]) -> Self {
        Self::growing(regions, 0).await
    }

    /// The last `joiners` don't run yet, and are to join by token.
    async fn growing(regions: &[&str], joiners: usize) -> Self {
        let cluster = Cluster::new(regions).agreeing().joined_by(joiners);
        let mut world = Self { cluster, emulators: Vec::new(), nodes: Vec::new() };
        let founders = &regions[..regions.len() - joiners];
        for index in 0..regions.len() {
            world.emulators.push(emulator(1).await);
            world.nodes.push(None);
            if index < founders.len() {
                world.start(index).await;
            }
        }
        for index in 0..founders.len() {
            world.knows_all(index, founders).await;
        }
        world
    }

    /// Waits until node `index` is in the cluster and knows these regions.
    async fn knows_all(&self, index: usize, regions: &[&str]) {
        let node = self.node(index);
        eventually("it is in the cluster", || state(node).cluster().is_some()).await;
        for region in regions.iter().filter(|region| **region != regions[index]) {
            knows(node, region).await;
        }
    }

    async fn start(&mut self, index: usize) {
        let setup = Setup::new().emulated(&self.emulators[index]);
        self.nodes[index] = Some(self.cluster.start(index, setup).await);
    }

    async fn stop(&mut self, index: usize) {
        self.nodes[index].take().expect("a node that runs").stop().await;
    }

    fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("a node that runs")
    }

    async fn end(self) {
        for node in self.nodes.into_iter().flatten() {
            node.stop().await;
        }
    }
}

#[tokio::test]
async fn a_hot_prompt_goes_to_the_region_that_has_it_and_a_restarted_node_knows_where() {
    let mut world = Warm::started(&["one", "three", "two"]).await;
    for _ in 0..12 {
        assert_eq!(ask_long(world.node(1), 7).await, "three");
    }
    for node in [0, 2] {
        eventually("all know what is hot there", || hot(world.node(node), "three") >= 20.0).await;
    }
    assert_eq!(hot(world.node(0), "two"), 0.0);
    // From `one`, which is to be empty, `three` and `two` are equally far.
    set_region(world.node(0), "one", RegionState::Evacuating).await;
    eventually("it is known", || world.node(0).gateway().routing.regions().is_evacuated).await;
    for _ in 0..6 {
        assert_eq!(ask_long(world.node(0), 7).await, "three");
    }
    let digest = state(world.node(2)).hot().digest();
    world.stop(2).await;
    world.start(2).await;
    eventually("it knows again", || {
        state(world.node(2)).hot().digest() == digest && hot(world.node(2), "three") >= 20.0
    })
    .await;
    world.end().await;
}

#[tokio::test]
async fn a_node_that_joins_by_token_knows_at_once_what_is_hot_where() {
    let regions = ["one", "three", "two", "four"];
    let mut world = Warm::growing(&regions, 1).await;
    for _ in 0..12 {
        assert_eq!(ask_long(world.node(1), 7).await, "three");
    }
    eventually("all know what is hot there", || hot(world.node(0), "three") >= 20.0).await;

    let token = make_token(world.node(2), "good", |token| token).await;
    world.cluster.give_token(3, &token);
    world.start(3).await;
    world.knows_all(3, &regions).await;
    eventually("it has the same trie", || {
        let [first, joined] = [0, 3].map(|node| state(world.node(node)).hot().digest());
        first == joined && hot(world.node(3), "three") >= 20.0
    })
    .await;
    // From `four`, which is to be empty, all others are equally far.
    set_region(world.node(0), "four", RegionState::Evacuating).await;
    eventually("it is known", || world.node(3).gateway().routing.regions().is_evacuated).await;
    for _ in 0..6 {
        assert_eq!(ask_long(world.node(3), 7).await, "three");
    }
    world.end().await;
}

#[tokio::test]
async fn a_key_is_changed_without_an_error_and_everything_is_learned_anew() {
    let world = Warm::started(&["one", "one", "two"]).await;
    for _ in 0..6 {
        ask_long(world.node(0), 1).await;
    }
    eventually("it is hot", || hot(world.node(2), "one") >= 20.0).await;
    let digest = state(world.node(2)).hot().digest();
    let asking = async {
        // All answer 200, or this fails; nothing is waited for in between.
        for number in 0..300 {
            ask_long(world.node(number % 3), 1).await;
        }
    };
    let rotating = async {
        let done = order(world.node(0), Command::RotatePrefixKey { expect: Expect::Any }).await;
        assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
    };
    tokio::join!(asking, rotating);
    eventually("all have the new key", || {
        world.nodes.iter().flatten().all(|node| state(node).key_epoch() == 1)
    })
    .await;
    for _ in 0..6 {
        ask_long(world.node(1), 1).await;
    }
    eventually("it is hot again, with other hashes", || {
        let again = state(world.node(2)).hot().digest();
        hot(world.node(2), "one") >= 20.0 && again != digest
    })
    .await;
    // Each node knows what the other node of its region sent, with the new key too.
    let known = |node: &Node| sum(node, "spillway_prefix_index_blocks", &[]);
    let before = known(world.node(1));
    ask_long(world.node(0), 99).await;
    eventually("both nodes of the region share", || known(world.node(1)) > before).await;
    world.end().await;
}

#[tokio::test]
async fn speeds_are_kept_over_a_restart_and_a_damaged_file_only_costs_them() {
    let mut world = Warm::started(&["one"]).await;
    let stream = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";
    for number in 0..20 {
        let reply = Client::once(world.node(0).addresses()[0], long(number, stream)).await;
        assert_eq!(reply.status, 200);
    }
    let models = |world: &Warm| sum(world.node(0), "spillway_latency_models", &[]);
    eventually("a model is learned", || models(&world) == 1.0).await;
    world.stop(0).await;
    world.start(0).await;
    eventually("it is known without a reply", || models(&world) == 1.0).await;
    let file = world.cluster.data(0).join("speeds");
    world.stop(0).await;
    std::fs::write(&file, b"damaged").expect("a file");
    world.start(0).await;
    assert_eq!(ask_long(world.node(0), 1).await, "one");
    eventually("it is learned anew", || models(&world) == 1.0).await;
    world.stop(0).await;
    assert!(std::fs::metadata(&file).expect("a file").len() > 100, "it is whole again");
    world.end().await;
}
