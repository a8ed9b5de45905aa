//! A node whose state is not the cluster's: no key of the cluster counts there.

use std::path::Path;

use spillway_cluster_state::{Item, KeyId, Tenant};
use spillway_node::Node;
use spillway_raft::Role;
use spillway_tests::{Client, Cluster, OK, Page, Scripted, Serving, Setup, chat, eventually, get};

use crate::agreed::{agree, status, until};
use crate::keys::{Key, record};

struct World {
    cluster: Cluster,
    replica: Serving,
    own: Key,
    nodes: [Option<Node>; 3],
}

impl World {
    async fn started() -> Self {
        let cluster = Cluster::new(&["one", "three", "two"]).agreeing();
        let replica = Scripted::start().await.serve(OK);
        let own = Key::new("own", "acme", "");
        let mut world = Self { cluster, replica, own, nodes: [None, None, None] };
        for index in 0..3 {
            world.start(index).await;
        }
        let known = |index| {
            let control_plane = world.node(index).control_plane().expect("a part");
            control_plane.published().records().nodes.len()
        };
        eventually("the cluster is formed", || (0..3).all(|index| known(index) == 3)).await;
        world
    }

    async fn start(&mut self, index: usize) {
        let setup = Setup::new().replica("a", self.replica.address).table(&*self.own.block);
        self.nodes[index] = Some(self.cluster.start(index, setup).await);
    }

    async fn stop(&mut self, index: usize) {
        self.nodes[index].take().expect("a node that runs").stop().await;
    }

    fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("a node that runs")
    }

    /// Puts a key into the cluster's state.
    async fn put(&self, index: usize, name: &str) -> Key {
        let key = Key::new(name, "acme", "");
        let item = Item::Key(KeyId::from(name), record(&key.text, "acme"));
        agree(self.node(index), item).await;
        key
    }

    async fn ready(&self, index: usize) -> u16 {
        let admin = self.node(index).admin_address().expect("one");
        Client::once(admin, get("/readyz")).await.status
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => _ = std::fs::copy(entry.path(), to).expect("a file"),
        }
    }
}

/// Two nodes lose writes that they had acknowledged with a third one, which alone has them and
/// comes back later.
#[tokio::test]
async fn a_node_whose_state_differs_lets_no_key_of_the_cluster_in_and_is_not_ready() {
    let mut world = World::started().await;
    agree(world.node(0), Item::Tenant("acme".into(), Tenant::default())).await;
    let before = world.put(0, "before").await;
    for index in 0..3 {
        until(world.node(index), &before, 200).await;
    }
    world.stop(1).await;
    world.stop(2).await;
    let data = world.cluster.data(2);
    let image = data.with_extension("image");
    copy(&data, &image);
    world.start(2).await;
    let lost = world.put(0, "lost").await;
    until(world.node(0), &lost, 200).await;
    until(world.node(2), &lost, 200).await;
    world.stop(2).await;
    std::fs::remove_dir_all(&data).expect("a folder");
    copy(&image, &data);
    world.stop(0).await;
    world.start(1).await;
    world.start(2).await;
    let new = world.put(1, "new").await;
    world.start(0).await;

    let stopped = || world.node(0).control_plane().expect("a part").status();
    eventually("it stops", || stopped().role == Role::Stopped).await;
    assert!(stopped().fault.is_some_and(|fault| fault.contains("Keep a copy of its folder")));
    for key in [&before, &lost] {
        until(world.node(0), key, 503).await;
    }
    let reply = Client::once(world.node(0).addresses()[0], before.sign(chat("tiny", ""))).await;
    assert_eq!(reply.header("x-spillway-code"), Some("key_unsure"));
    assert_eq!(world.ready(0).await, 503);
    let differs = [("kind", "state_differs")];
    let told = |index| Page::of(world.node(index)).sum("spillway_control_troubles", &differs);
    eventually("all tell it", || (0..3).all(|index| told(index) >= 1.0)).await;
    assert_eq!(status(world.node(0), &world.own).await, 200, "the config's own key is sure");
    for index in [1, 2] {
        until(world.node(index), &new, 200).await;
        assert_eq!(status(world.node(index), &before).await, 200);
        assert_eq!(world.ready(index).await, 200);
    }
}
