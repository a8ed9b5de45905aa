//! Rollouts of splits: the figures of all nodes decide, and what is decided holds everywhere.

use spillway_cluster_state::{Arm, Item, Split};
use spillway_node::Node;
use spillway_rollout::{
    AgreedMargins, Rollout, RolloutPhase, RolloutPlan, RolloutProgress, RolloutStep,
};
use spillway_tests::{Client, Cluster, Scripted, Serving, Setup, chat};

use crate::world::*;

const FAILURE: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// Nodes with two replicas each: one of the model `old`, and one of the model `new`.
struct Nodes {
    world: World,
    /// Replicas of the model `new`.
    _candidates: Vec<Serving>,
}

impl Nodes {
    async fn started(candidate: &'static str) -> Self {
        let mut world = World {
            cluster: Cluster::new(&REGIONS).agreeing(),
            replicas: Vec::new(),
            nodes: Vec::new(),
        };
        let mut candidates = Vec::new();
        for index in 0..REGIONS.len() {
            let old = Scripted::start().await.serve(ANSWER.to_owned());
            let new = Scripted::start().await.serve(candidate.to_owned());
            let setup = Setup::new()
                .replica_with("a", &format!("http://{}", old.address), "models = [\"old\"]")
                .replica_with("b", &format!("http://{}", new.address), "models = [\"new\"]");
            world.replicas.push(old);
            world.nodes.push(Some(world.cluster.start(index, setup).await));
            candidates.push(new);
        }
        world.formed().await;
        Self { world, _candidates: candidates }
    }

    /// Asks each running node once, and returns the arms.
    async fn ask(&self) -> Vec<String> {
        let mut arms = Vec::new();
        for node in self.world.running() {
            let reply = Client::once(node.addresses()[0], chat("chat", "")).await;
            arms.extend(reply.header("x-spillway-arm").map(str::to_owned));
        }
        arms
    }

    /// Asks until the rollout is in this phase.
    async fn ask_until(&self, phase: RolloutPhase) {
        for _ in 0..20_000 {
            self.ask().await;
            if self.world.running().all(|node| progress(node).phase == phase) {
                return;
            }
        }
        panic!("never {}: {:?}", phase.name(), progress(self.world.node(0)));
    }
}

fn rollout(shares: &[u16], requests_min: u32) -> Item {
    let arm = |name: &str, model: &str, weight_permille| Arm {
        name: name.into(),
        model: model.into(),
        version: None,
        weight_permille,
    };
    let step = |share: &u16| RolloutStep { candidate_permille: *share, hold_s: 0 };
    let plan = RolloutPlan {
        baseline: "stable".into(),
        candidate: "canary".into(),
        steps: shares.iter().map(step).collect(),
        requests_min,
        margins: AgreedMargins { failed: Some(10), ..AgreedMargins::default() },
        false_alarms_permille: 50,
    };
    let arms = vec![arm("stable", "old", 1_000), arm("canary", "new", 0)];
    let rollout = Some(Rollout { plan, progress: RolloutProgress::default() });
    Item::Split("chat".into(), Split { arms, rollout, ..Split::default() })
}

fn progress(node: &Node) -> RolloutProgress {
    let state = state(node);
    let split = state.records().splits.get(&"chat".into());
    split.and_then(|split| split.rollout.clone()).map(|it| it.progress).unwrap_or_default()
}

/// Returns what the audit trail has of changes of the rollout.
fn changes(node: &Node) -> Vec<String> {
    let state = state(node);
    let records = state.system_audit().iter().chain(state.operator_audit().iter());
    let what = records.map(|(_, record)| record.what.clone());
    what.filter(|what| what.contains("rollout of split chat")).collect()
}

#[tokio::test]
async fn a_candidate_that_fails_is_rolled_back_once_and_everywhere() {
    let nodes = Nodes::started(FAILURE).await;
    put(nodes.world.node(0), rollout(&[500, 1_000], 1_000_000)).await;
    nodes.ask_until(RolloutPhase::RolledBack).await;
    let node = nodes.world.node(0);
    let rolled_back = progress(node);
    assert_eq!((rolled_back.number, rolled_back.step), (1, 0));
    assert!(
        rolled_back.why.starts_with("failed requests 100.00 % against 0.00 %"),
        "{rolled_back:?}"
    );
    // The views follow the state a moment later.
    let mut quiet = 0;
    while quiet < 20 {
        let arms = nodes.ask().await;
        quiet = if arms.iter().all(|arm| arm == "stable") { quiet + 1 } else { 0 };
    }
    assert_eq!(changes(node).len(), 1, "{:?}", changes(node));
    assert_eq!(progress(node), rolled_back, "it does not flap");
}

#[tokio::test]
async fn a_good_candidate_gets_everything_step_by_step_though_the_leader_ends() {
    let mut nodes = Nodes::started(ANSWER).await;
    put(nodes.world.node(0), rollout(&[100, 500, 1_000], 20)).await;
    let mut asked = 0;
    while progress(nodes.world.node(1)).step == 0 {
        nodes.ask().await;
        asked += 1;
        assert!(asked < 20_000, "never advances: {:?}", progress(nodes.world.node(1)));
    }
    let control_plane = nodes.world.node(1).control_plane().expect("a part in the cluster");
    let (_, region) = control_plane.leader().expect("a leader");
    let leader = REGIONS.iter().position(|name| *name == region.as_str()).expect("a region");
    nodes.world.nodes[leader].take().expect("it runs").stop().await;
    nodes.ask_until(RolloutPhase::Completed).await;
    let node = nodes.world.running().next().expect("a node");
    assert_eq!((progress(node).number, progress(node).step), (3, 2));
    let mut all = 0;
    while all < 20 {
        let arms = nodes.ask().await;
        all = if arms.iter().all(|arm| arm == "canary") { all + 1 } else { 0 };
    }
}
