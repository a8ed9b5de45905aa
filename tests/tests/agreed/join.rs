//! Nodes come into a cluster that runs, and go.

use std::path::Path;
use std::time::{Duration, Instant};

use spillway_cluster_state::{
    Actor, Command, DiskId, Expect, Item, JoinText, NodeId, NodeSpec, Outcome, RecordKey,
    RegionState, State, TokenId, TokenTerms,
};
use spillway_node::Node;
use spillway_raft::{Consistency, ProposeError, Role};
use spillway_tests::{
    Client, Cluster, OK, SLOWDOWN, Scripted, Serving, Setup, eventually, is_open, knows,
};

use crate::world::*;

/// Life of a token: longer than any test.
const VALID_MS: u64 = 24 * 3_600_000;

/// Nodes, some of which join by token, each with a replica.
pub(crate) struct Growing {
    pub(crate) cluster: Cluster,
    pub(crate) replicas: Vec<Serving>,
    pub(crate) nodes: Vec<Option<Node>>,
}

impl Growing {
    /// The founders run, the last `joiners` don't yet.
    pub(crate) async fn started(regions: &[&str], joiners: usize) -> Self {
        let cluster = Cluster::new(regions).agreeing().joined_by(joiners);
        let mut world = Self { cluster, replicas: Vec::new(), nodes: Vec::new() };
        for _ in regions {
            world.replicas.push(Scripted::start().await.serve(OK));
            world.nodes.push(None);
        }
        for index in 0..regions.len() - joiners {
            world.start(index).await;
        }
        eventually("the founders know each other", || {
            world.running().all(|node| members(node) == regions.len() - joiners)
        })
        .await;
        world
    }

    pub(crate) async fn start(&mut self, index: usize) {
        let setup = Setup::new().replica("a", self.replicas[index].address);
        self.nodes[index] = Some(self.cluster.start(index, setup).await);
    }

    pub(crate) async fn stop(&mut self, index: usize) {
        self.nodes[index].take().expect("a node that runs").stop().await;
    }

    /// Gives node `index` an empty disk from now on.
    pub(crate) fn wipe(&self, index: usize) {
        std::fs::remove_dir_all(self.cluster.data(index)).expect("a folder");
    }

    pub(crate) fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().expect("a node that runs")
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    /// Returns the reason that node `index` reports for being in no cluster; empty without one.
    pub(crate) fn trouble(&self, index: usize) -> String {
        let control_plane = self.node(index).control_plane().expect("a part in the cluster");
        control_plane.status().fault.unwrap_or_default()
    }

    pub(crate) async fn troubled(&self, index: usize, word: &str) {
        eventually(word, || self.trouble(index).contains(word)).await;
    }
}

pub(crate) fn members(node: &Node) -> usize {
    state(node).records().nodes.len()
}

pub(crate) fn number(node: &Node, name: &str) -> Option<u64> {
    state(node).node(&name.into()).map(|(number, _)| number.0)
}

/// A token that `secret` belongs to, as an operator would make it.
pub(crate) async fn make_token(
    node: &Node,
    id: &str,
    change: impl FnOnce(TokenTerms) -> TokenTerms,
) -> String {
    let text = format!("swj_{id}_{}", "a5".repeat(32));
    let key = JoinText::read(&text).expect("a token").public_key();
    let terms = TokenTerms { key, region: None, valid_ms: VALID_MS, uses: 1, is_operator: false };
    let item = Item::JoinToken(TokenId::from(id), change(terms));
    put(node, item).await;
    text
}

/// The disk that a node is known by.
fn disk(node: &Node, name: &str) -> Option<DiskId> {
    state(node).node(&name.into()).map(|(_, node)| node.spec.disk)
}

async fn status_of(node: &Node) -> u16 {
    ask(node).await.status
}

#[tokio::test]
async fn a_node_joins_by_token_and_serves_before_and_after() {
    let mut world = Growing::started(&["one", "three", "two", "four"], 1).await;
    world.start(3).await;
    // It waits for a token, serves its own clients, and refuses orders at once.
    world.troubled(3, "a new node needs a join token").await;
    assert_eq!(served_in(world.node(3)).await, "four");
    let control_plane = world.node(3).control_plane().expect("a part");
    let command =
        Command::SetRegionWeight { region: "one".into(), weight_permille: 1, expect: Expect::Any };
    let begin = Instant::now();
    let refused = control_plane.propose(command, Actor::Operator("ada".into()), None, LIMIT).await;
    assert!(matches!(refused, Err(ProposeError::NoQuorum { .. })), "{refused:?}");
    assert!(control_plane.read(Consistency::Linearizable, LIMIT, State::applied).await.is_err());
    assert!(begin.elapsed() < SLOWDOWN * Duration::from_secs(1), "{:?}", begin.elapsed());

    for (id, why, change) in [
        ("other", "is for another region", in_region as fn(TokenTerms) -> TokenTerms),
        ("used", "is used up", used_up),
        ("late", "has expired", expired),
    ] {
        let token = make_token(world.node(1), id, change).await;
        world.cluster.give_token(3, &token);
        world.troubled(3, why).await;
        assert!(!world.trouble(3).contains("a5a5"), "a secret is shown");
    }
    world.cluster.give_token(3, &format!("swj_late_{}", "b6".repeat(32)));
    world.troubled(3, "there is no such join token").await;
    world.cluster.give_token(3, "my dog's name");
    world.troubled(3, "holds no join token").await;
    assert!(world.running().take(3).all(|node| members(node) == 3));
    assert_eq!(world.node(0).control_plane().expect("a part").status().members.len(), 3);

    let token = make_token(world.node(2), "good", |token| token).await;
    world.cluster.give_token(3, &token);
    eventually("all know it", || world.running().all(|node| members(node) == 4)).await;
    assert_eq!(number(world.node(1), "n3"), Some(4));
    eventually("it follows the log", || {
        let status = world.node(3).control_plane().expect("a part").status();
        status.cluster == world.node(0).control_plane().expect("a part").status().cluster
            && status.fault.is_none()
    })
    .await;
    // No config names the node, and yet requests go there and come from there.
    knows(world.node(2), "four").await;
    knows(world.node(3), "two").await;
    assert_eq!(served_in(world.node(3)).await, "four");

    // Later it needs neither the token nor the file.
    world.stop(3).await;
    world.cluster.give_token(3, "");
    world.start(3).await;
    eventually("it is the same node again", || number(world.node(3), "n3") == Some(4)).await;
    set_region(world.node(0), "one", RegionState::Draining).await;
    eventually("it follows the log", || weight(world.node(3), "one") == Some(0)).await;
    assert_eq!(members(world.node(0)), 4);
}

fn in_region(token: TokenTerms) -> TokenTerms {
    TokenTerms { region: Some("one".into()), ..token }
}

fn used_up(token: TokenTerms) -> TokenTerms {
    TokenTerms { uses: 0, ..token }
}

fn expired(token: TokenTerms) -> TokenTerms {
    TokenTerms { valid_ms: 1, ..token }
}

#[tokio::test]
async fn a_token_of_one_use_lets_one_of_two_in_and_each_region_gets_a_vote() {
    let mut world = Growing::started(&["one", "three", "two", "four", "five"], 2).await;
    let token = make_token(world.node(0), "once", |token| token).await;
    for index in [3, 4] {
        world.cluster.give_token(index, &token);
        world.start(index).await;
    }
    eventually("one is in and the other is told why it is not", || {
        let troubles = [3, 4].map(|index| world.trouble(index));
        members(world.node(0)) == 4
            && troubles.iter().filter(|why| why.contains("is used up")).count() == 1
    })
    .await;
    let token = make_token(world.node(0), "again", |token| token).await;
    for index in [3, 4] {
        world.cluster.give_token(index, &token);
    }
    eventually("five regions vote", || {
        world.running().all(|node| {
            let status = node.control_plane().expect("a part").status();
            members(node) == 5 && status.voters.len() == 5
        })
    })
    .await;
}

/// Returns true if a file below `folder` contains these bytes.
fn is_on_disk(folder: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder).expect("a folder").flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return is_on_disk(&path, bytes);
        }
        let content = std::fs::read(&path).expect("a file");
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[tokio::test]
async fn a_token_outlasts_the_authority_that_was_there_when_it_was_made() {
    let mut world = Growing::started(&["one", "two"], 1).await;
    let text = make_token(world.node(0), "t", |token| token).await;
    let next = Cluster::authority_for(30);
    world.cluster.trust(0, &[&next]);
    world.cluster.issue(0, &next, 6);
    world.stop(0).await;
    world.start(0).await;
    // With its earlier certificate it is refused, whatever its token.
    world.cluster.give_token(1, &text);
    world.start(1).await;
    world.troubled(1, "certificate").await;
    assert_eq!(members(world.node(0)), 1);
    world.stop(1).await;
    world.cluster.trust(1, &[&next]);
    world.cluster.issue(1, &next, 6);
    world.start(1).await;
    eventually("it is a member", || members(world.node(0)) == 2).await;
    eventually("it knows", || members(world.node(1)) == 2).await;
}

/// The signatures that a token of several uses leaves in the log admit no other node.
#[tokio::test]
async fn a_signature_from_a_nodes_disk_lets_no_other_node_in() {
    let mut world = Growing::started(&["one", "three", "two", "four", "five"], 2).await;
    eventually("membership is enforced", || world.running().all(|node| state(node).is_enforced()))
        .await;
    let text = make_token(world.node(0), "t", |token| TokenTerms { uses: 9, ..token }).await;
    world.cluster.give_token(3, &text);
    world.start(3).await;
    eventually("it is in", || world.running().all(|node| members(node) == 4)).await;
    let joined = state(world.node(1));
    let (_, joined) = joined.node(&"n3".into()).expect("a member");
    let token = JoinText::read(&text).expect("a token");
    let cluster = state(world.node(1)).cluster().expect("a cluster");
    // Signatures are deterministic, so this is the one that the node has sent.
    let signature = token.sign(cluster, &joined.spec);
    let mut bytes = Vec::new();
    spillway_codec::write_payload(&signature, &mut bytes).expect("bytes");
    assert!(is_on_disk(&world.cluster.data(1), &bytes), "the log has another signature");
    assert!(!is_on_disk(&world.cluster.data(1), b"a5a5a5a5a5a5a5a5"), "the secret is on disk");

    // A member of the cluster writes it for a node of its own making.
    let mine = NodeSpec { name: "n4".into(), region: "five".into(), ..joined.spec.clone() };
    for node in [NodeSpec { disk: DiskId::from_bytes([7; 16]), ..mine.clone() }, mine] {
        let signed = Command::JoinNode { node: node.clone(), token: signature.clone() };
        for command in [signed, Command::RegisterNode { node }] {
            let outcome = order_as(&Actor::Node, world.node(1), command).await;
            assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        }
    }
    assert_eq!(members(world.node(0)), 4);
    // For the same node it changes nothing; others still join by the token itself.
    let again = Command::JoinNode { node: joined.spec.clone(), token: signature };
    let outcome = order_as(&Actor::Node, world.node(1), again).await;
    assert_eq!(outcome, Outcome::Unchanged);
    world.cluster.give_token(4, &text);
    world.start(4).await;
    eventually("it joins by its own", || members(world.node(0)) == 5).await;
    let kept = state(world.node(0)).records().join_tokens.get(&"t".into()).cloned();
    assert_eq!(kept.expect("a token").uses_left, 7);
}

#[tokio::test]
async fn a_removed_node_says_so_and_serves_its_own_alone() {
    let mut world = Growing::started(&["one", "three", "two"], 0).await;
    for other in ["one", "three"] {
        knows(world.node(2), other).await;
    }
    let removed = number(world.node(0), "n2").expect("a number");
    remove(world.node(0), RecordKey::Node(NodeId(removed))).await;
    let has_stopped = |node: &Node| {
        let status = node.control_plane().expect("a part").status();
        let fault = status.fault.unwrap_or_default();
        status.role == Role::Stopped && fault.contains("was removed from its cluster")
    };
    eventually("it takes no part any more", || has_stopped(world.node(2))).await;
    eventually("it is on its own", || {
        !is_open(world.node(2), "one") && !is_open(world.node(0), "two")
    })
    .await;
    assert_eq!(served_in(world.node(2)).await, "two");
    let refused = world.node(2).control_plane().expect("a part").propose(
        Command::SetRegionWeight { region: "one".into(), weight_permille: 1, expect: Expect::Any },
        Actor::Operator("ada".into()),
        None,
        LIMIT,
    );
    let refused = refused.await.expect_err("a refusal");
    assert!(refused.to_string().contains("was removed"), "{refused}");
    // The others go on without it: two voters, and writes.
    eventually("two members are left", || {
        [0, 1].iter().all(|index| {
            let status = world.node(*index).control_plane().expect("a part").status();
            status.members.len() == 2 && status.voters.len() == 2
        })
    })
    .await;
    set_region(world.node(1), "three", RegionState::Draining).await;

    world.stop(2).await;
    world.start(2).await;
    eventually("it stays removed", || has_stopped(world.node(2))).await;
    assert_eq!(status_of(world.node(2)).await, 200);
    // With an empty folder and a token it comes back, as another one.
    world.stop(2).await;
    world.wipe(2);
    let token = make_token(world.node(0), "back", |token| token).await;
    world.cluster.give_token(2, &token);
    world.start(2).await;
    eventually("it is a member again", || {
        world.running().all(|node| number(node, "n2").is_some_and(|now| now > removed))
    })
    .await;
}

#[tokio::test]
async fn the_leader_of_two_is_removed_and_the_other_goes_on_alone() {
    let mut world = Growing::started(&["one", "two"], 0).await;
    let status = |node: &Node| node.control_plane().expect("a part").status();
    eventually("both vote", || world.running().all(|node| status(node).voters.len() == 2)).await;
    let leads = |world: &Growing| {
        [0, 1].into_iter().find(|index| status(world.node(*index)).role == Role::Leader)
    };
    eventually("one leads", || leads(&world).is_some()).await;
    let leader = leads(&world).expect("a leader");
    let other = 1 - leader;
    let removed = number(world.node(other), &format!("n{leader}")).expect("a number");
    remove(world.node(other), RecordKey::Node(NodeId(removed))).await;
    // It takes both to agree that one is enough.
    eventually("the other is the only one", || {
        let status = status(world.node(other));
        status.role == Role::Leader && status.voters.len() == 1 && status.members.len() == 1
    })
    .await;
    set_region(world.node(other), ["one", "two"][other], RegionState::Draining).await;
    eventually("it was told", || world.trouble(leader).contains("was removed")).await;
    assert_eq!(served_in(world.node(leader)).await, ["one", "two"][leader]);
    world.stop(leader).await;
}

#[tokio::test]
async fn a_node_that_was_removed_while_it_was_away_is_told_when_it_is_back() {
    let mut world = Growing::started(&["one", "three", "two"], 0).await;
    world.stop(2).await;
    let away = number(world.node(0), "n2").expect("a number");
    remove(world.node(0), RecordKey::Node(NodeId(away))).await;
    world.start(2).await;
    assert_eq!(served_in(world.node(2)).await, "two");
    eventually("it was told", || world.trouble(2).contains("was removed")).await;
    assert_eq!(served_in(world.node(2)).await, "two");
    assert_eq!(members(world.node(0)), 2);
}

#[tokio::test]
async fn a_wiped_disk_never_comes_back_as_the_node_that_it_was() {
    let mut world = Growing::started(&["one", "three", "two"], 0).await;
    let before = disk(world.node(0), "n2");
    world.stop(2).await;
    world.wipe(2);
    world.start(2).await;
    world.troubled(2, "with another disk").await;
    assert_eq!(disk(world.node(0), "n2"), before);
    assert_eq!(world.node(2).control_plane().expect("a part").status().cluster, None);
    assert_eq!(served_in(world.node(2)).await, "two");

    // Not even with a token, as long as the old one is a member.
    world.stop(2).await;
    let token = make_token(world.node(0), "t", |token| TokenTerms { uses: 9, ..token }).await;
    world.cluster.give_token(2, &token);
    world.start(2).await;
    world.troubled(2, "with another disk").await;
    assert_eq!(disk(world.node(0), "n2"), before);
    let old = number(world.node(0), "n2").expect("a number");
    remove(world.node(0), RecordKey::Node(NodeId(old))).await;
    eventually("it joins under its name", || {
        world.running().all(|node| number(node, "n2").is_some_and(|now| now > old))
    })
    .await;
    assert_ne!(disk(world.node(0), "n2"), before);
    let reply = Client::once(world.node(2).addresses()[0], spillway_tests::chat("tiny", "")).await;
    assert_eq!(reply.status, 200);
}
