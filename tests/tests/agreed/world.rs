//! Nodes that agree on something, each with a replica, and orders to them.

use std::time::Duration;

use spillway_cluster_state::{
    Actor, Command, Expect, Item, Outcome, RecordKey, RegionState, ReplicaId, RequestId, State,
};
use spillway_node::Node;
use spillway_raft::ProposeError;
use spillway_tests::{
    Client, Cluster, PATIENCE, Reply, Scripted, Serving, Setup, chat, eventually, retried,
};

/// Longest time for an order to be carried out, elections included.
pub(crate) const LIMIT: Duration = PATIENCE;
/// Time for which an order is tried that can't be carried out.
pub(crate) const SHORT: Duration = Duration::from_secs(5);
pub(crate) const REGIONS: [&str; 3] = ["one", "three", "two"];

/// Tokens of each request, by its reply: as many as a request without a limit is charged at first.
pub(crate) const TOKENS: u64 = 1_024;

/// Returns a reply that used [`TOKENS`].
fn reply() -> String {
    let body = format!(r#"{{"usage":{{"prompt_tokens":4,"completion_tokens":{}}}}}"#, TOKENS - 4);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// A replica for each node, and the nodes.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) replicas: Vec<Serving>,
    pub(crate) nodes: Vec<Option<Node>>,
}

impl World {
    pub(crate) async fn started(regions: &[&str]) -> Self {
        let cluster = Cluster::new(regions).agreeing();
        let mut world = Self { cluster, replicas: Vec::new(), nodes: Vec::new() };
        for index in 0..regions.len() {
            world.replicas.push(Scripted::start().await.serve(reply()));
            world.nodes.push(None);
            world.start(index).await;
        }
        world.formed().await;
        world
    }

    pub(crate) async fn start(&mut self, index: usize) {
        let setup = Setup::new().replica("a", self.replicas[index].address);
        self.nodes[index] = Some(self.cluster.start(index, setup).await);
    }

    pub(crate) fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("a node that runs")
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    pub(crate) async fn formed(&self) {
        eventually("all replicas are known to all", || {
            let count = self.replicas.len();
            self.running().all(|node| {
                let state = state(node);
                let regions = state.records().nodes.iter().map(|(_, node)| &node.spec.region);
                let has_replica = |region| {
                    let id = ReplicaId::new(region, "a".into());
                    state.records().replicas.get(&id).is_some()
                };
                let regions: Vec<_> = regions.cloned().collect();
                regions.len() == count && regions.into_iter().all(has_replica)
            })
        })
        .await;
    }
}

pub(crate) fn state(node: &Node) -> std::sync::Arc<State> {
    node.control_plane().expect("a part in the cluster").published()
}

/// Gives an operator's order, and waits for its outcome.
pub(crate) async fn order(node: &Node, command: Command) -> Outcome {
    order_as(&Actor::Operator("ada".to_owned()), node, command).await
}

/// Gives an order in the name of `actor`, and waits for its outcome.
pub(crate) async fn order_as(actor: &Actor, node: &Node, command: Command) -> Outcome {
    let control_plane = node.control_plane().expect("a part in the cluster");
    // A repeated request id is carried out once.
    let request = Some(RequestId(fastrand::u128(..).to_le_bytes()));
    // An election may be under way, or come in between.
    let done = retried(ProposeError::is_transient, || {
        control_plane.propose(command.clone(), actor.clone(), request, LIMIT)
    });
    done.await.unwrap_or_else(|error| panic!("{error}")).outcome
}

pub(crate) async fn put(node: &Node, item: Item) {
    let done = order(node, Command::Put { item, expect: Expect::Any }).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
}

pub(crate) async fn remove(node: &Node, key: RecordKey) {
    let done = order(node, Command::Remove { key, expect: Expect::Any }).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
}

pub(crate) async fn set_region(node: &Node, region: &str, state: RegionState) {
    let command = Command::SetRegionState { region: region.into(), state, expect: Expect::Any };
    let done = order(node, command).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");
}

pub(crate) async fn ask(node: &Node) -> Reply {
    Client::once(node.addresses()[0], chat("tiny", "")).await
}

pub(crate) async fn served_in(node: &Node) -> String {
    let reply = ask(node).await;
    assert_eq!(reply.status, 200, "{} {:?}", reply.text(), reply.headers);
    reply.header("x-spillway-region").expect("a region").to_owned()
}

pub(crate) fn weight(node: &Node, region: &str) -> Option<u16> {
    let regions = node.gateway().routing.regions();
    let other = regions.others.iter().find(|other| other.name.as_str() == region)?;
    Some(other.terms.weight_permille)
}
