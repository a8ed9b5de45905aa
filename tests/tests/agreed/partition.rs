//! Guarantees while a region is partitioned from the others, and after it is reconnected.

use std::time::{Duration, Instant};

use spillway_cluster_state::{Actor, Command, Expect, RegionState, State};
use spillway_node::Node;
use spillway_raft::{Consistency, ProposeError};
use spillway_tests::{
    Client, Cluster, OK, Reply, SLOWDOWN, Scripted, Setup, chat, eventually, is_open, knows, spawn,
};
use tokio::task::JoinHandle;

use crate::world::{LIMIT, REGIONS, SHORT, order, state, weight};

/// Time until a reconnected region knows again what the others know.
const CONVERGED_WITHIN: Duration = Duration::from_secs(10);

/// Three regions with a node and a replica of one place each.
struct Split {
    cluster: Cluster,
    nodes: Vec<Node>,
    replicas: Vec<Scripted>,
}

impl Split {
    async fn started() -> Self {
        let cluster = Cluster::new(&REGIONS)
            .agreeing()
            .ramping(Duration::from_secs(4))
            .set("spill.reserve_percent = 0")
            .set("spill.queue_ms = 300");
        let (mut nodes, mut replicas) = (Vec::new(), Vec::new());
        for index in 0..REGIONS.len() {
            let replica = Scripted::start().await;
            let url = format!("http://{}", replica.address);
            let setup = Setup::new().replica_with("a", &url, "connections_max = 1");
            nodes.push(cluster.start(index, setup).await);
            replicas.push(replica);
        }
        let is_formed = |node: &Node| state(node).records().nodes.iter().count() == REGIONS.len();
        eventually("the cluster is formed", || nodes.iter().all(is_formed)).await;
        for (node, others) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
            for other in others {
                knows(&nodes[node], REGIONS[other]).await;
            }
        }
        Self { cluster, nodes, replicas }
    }

    /// Cuts the last node off from the others, or joins it again.
    fn cut(&self, is_cut: bool) {
        for other in [0, 1] {
            self.cluster.cut(2, other, is_cut);
            self.cluster.cut(other, 2, is_cut);
        }
    }

    fn ask(&self, index: usize) -> JoinHandle<Reply> {
        spawn(Client::once(self.nodes[index].addresses()[0], chat("tiny", "")))
    }
}

fn age_ms(reply: &Reply) -> Option<u64> {
    reply.header("x-spillway-control-age-ms")?.parse().ok()
}

fn ramp(node: &Node, region: &str) -> u16 {
    let regions = node.gateway().routing.regions();
    let other = regions.others.iter().find(|other| other.name.as_str() == region);
    other.expect("a region").ramp_permille
}

fn weigh(weight_permille: u16) -> Command {
    let region = "one".into();
    Command::SetRegionWeight { region, weight_permille, expect: Expect::Any }
}

#[expect(clippy::too_many_lines, reason = "one story from the cut to the end of the ramp")]
#[tokio::test]
async fn a_minority_serves_its_own_sheds_the_rest_and_comes_back_without_a_rush() {
    let mut split = Split::started().await;
    let begin = Instant::now();
    let told = loop {
        let reply = Client::once(split.nodes[2].addresses()[0], chat("none", "")).await;
        // Before it has received the reports of the others it can't know that no region serves the
        // model.
        assert!([404, 503].contains(&reply.status), "{}", reply.text());
        if let Some(told) = age_ms(&reply) {
            break told;
        }
        assert_eq!(reply.header("x-spillway-control-age-ms"), Some("unknown"));
        assert!(begin.elapsed() < LIMIT, "how old its knowledge is stays unknown");
    };
    assert!(told < 60_000, "{told}");

    split.cut(true);
    let since = Instant::now();
    let sees_nobody = || (0..2).all(|other| !is_open(&split.nodes[2], REGIONS[other]));
    eventually("it sees nobody", sees_nobody).await;
    let is_unseen = || (0..2).all(|index| !is_open(&split.nodes[index], REGIONS[2]));
    eventually("nobody sees it", is_unseen).await;

    // It serves its own clients and sheds the rest, because no other region is in reach.
    let first = split.ask(2);
    let (mut wire, _) = split.replicas[2].request().await;
    let shed = split.ask(2).await.expect("a reply");
    assert_eq!(shed.status, 503, "{}", shed.text());
    assert!(shed.header("retry-after").is_some());
    assert!(age_ms(&shed).is_some(), "it says how old its knowledge is");
    wire.send(OK).await;
    assert_eq!(first.await.expect("a reply").status, 200);

    // The majority spills among itself alone.
    let held = [split.ask(0), split.ask(0)];
    let (mut one, _) = split.replicas[0].request().await;
    let (mut other, _) = split.replicas[1].request().await;
    let third = split.ask(0).await.expect("a reply");
    assert_eq!(third.status, 503, "{}", third.text());
    one.send(OK).await;
    other.send(OK).await;
    for reply in held {
        assert_eq!(reply.await.expect("a reply").status, 200);
    }

    // Orders and fresh reads fail there without waiting. Other reads give the age of their state.
    let control_plane = split.nodes[2].control_plane().expect("a part");
    let begin = Instant::now();
    let refused = control_plane.propose(weigh(1), Actor::Operator("ada".into()), None, SHORT).await;
    assert!(
        matches!(refused, Err(ProposeError::NoQuorum { .. } | ProposeError::Unknown)),
        "{refused:?}"
    );
    assert!(control_plane.read(Consistency::Linearizable, SHORT, State::applied).await.is_err());
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    let stale =
        control_plane.read(Consistency::Stale, LIMIT, State::applied).await.expect("a state");
    let (age, passed) = (stale.age.expect("an age"), since.elapsed());
    assert!(age + SLOWDOWN * Duration::from_secs(3) >= passed, "{age:?} after {passed:?}");

    // The majority goes on.
    order(&split.nodes[0], weigh(700)).await;
    let known = |node: &Node| {
        let state = state(node);
        state.records().regions.get(&"one".into()).map(|region| region.weight_permille)
    };
    assert_ne!(known(&split.nodes[2]), Some(700));
    let joined = Instant::now();
    split.cut(false);
    eventually("it is up to date", || known(&split.nodes[2]) == Some(700)).await;
    let caught_up = joined.elapsed();
    eventually("all see each other", || {
        [(0, 2), (1, 2), (2, 0), (2, 1)]
            .iter()
            .all(|&(node, other)| is_open(&split.nodes[node], REGIONS[other]))
    })
    .await;
    let converged = joined.elapsed();
    println!("caught up after {caught_up:?}, all in reach after {converged:?}");
    assert!(converged <= SLOWDOWN * CONVERGED_WITHIN, "{converged:?}");
    // No rush: its share grows from little, on both sides.
    for (node, other) in [(0, 2), (2, 0)] {
        assert!(ramp(&split.nodes[node], REGIONS[other]) < 1_000);
    }
    eventually("it has its full share", || ramp(&split.nodes[0], REGIONS[2]) == 1_000).await;
    // No request that was shed or waited was kept and sent now.
    for replica in &split.replicas {
        // wait: no further request may arrive
        let more = tokio::time::timeout(Duration::from_millis(300), replica.request()).await;
        assert!(more.is_err(), "nothing is replayed");
    }
    let is_young = || {
        let age = split.nodes[2].control_plane().expect("a part").status().age;
        age.is_some_and(|age| age < Duration::from_secs(2))
    };
    eventually("what it knows is fresh", is_young).await;
    for node in split.nodes.drain(..) {
        node.stop().await;
    }
}

#[tokio::test]
async fn a_region_that_was_drained_gets_its_share_bit_by_bit() {
    let split = Split::started().await;
    eventually("it has its full share", || ramp(&split.nodes[0], REGIONS[2]) == 1_000).await;
    for to in [RegionState::Draining, RegionState::Active] {
        let region = REGIONS[2].into();
        order(&split.nodes[0], Command::SetRegionState { region, state: to, expect: Expect::Any })
            .await;
        let permille = if to == RegionState::Active { 1_000 } else { 0 };
        eventually("it is known", || weight(&split.nodes[0], REGIONS[2]) == Some(permille)).await;
    }
    let first = ramp(&split.nodes[0], REGIONS[2]);
    assert!((50..1_000).contains(&first), "{first}");
    eventually("it has its full share", || ramp(&split.nodes[0], REGIONS[2]) == 1_000).await;
}
