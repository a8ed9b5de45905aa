//! Keys that the cluster agreed on: let in everywhere, and refused everywhere once they are revoked.

use std::time::{Duration, Instant};

use spillway_cluster_state::{Actor, Command, Expect, Item, KeyId, Outcome, RequestId, Tenant};
use spillway_node::Node;
use spillway_raft::ProposeError;
use spillway_tests::{
    Client, Cluster, OK, PATIENCE, SLOWDOWN, Scripted, Setup, chat, eventually, retried,
};

use crate::keys::{Key, record};

/// How long a command may take, elections included.
const LIMIT: Duration = PATIENCE;
/// What a revocation may take everywhere.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

async fn agree(node: &Node, item: Item) {
    let control_plane = node.control_plane().expect("a part in the cluster");
    let command = Command::Put { item, expect: Expect::Any };
    // A repeated request id is carried out once.
    let request = Some(RequestId(fastrand::u128(..).to_le_bytes()));
    let actor = Actor::Operator("ada".to_owned());
    // An election may be under way, or come in between.
    let done = retried(ProposeError::is_transient, || {
        control_plane.propose(command.clone(), actor.clone(), request, LIMIT)
    });
    let outcome = done.await.expect("an outcome").outcome;
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
}

async fn status(node: &Node, key: &Key) -> u16 {
    Client::once(node.addresses()[0], key.sign(chat("tiny", ""))).await.status
}

async fn until(node: &Node, key: &Key, expected: u16) -> Duration {
    let since = Instant::now();
    while status(node, key).await != expected {
        assert!(since.elapsed() < LIMIT, "never {expected}");
        // wait: the next look.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    since.elapsed()
}

#[tokio::test]
async fn a_key_of_the_cluster_is_let_in_and_revoked_everywhere() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "three", "two"]).agreeing();
    let own = Key::new("own", "acme", "");
    let mut nodes = Vec::new();
    for index in 0..3 {
        let setup = Setup::new().replica("a", replica.address).table(&*own.block);
        nodes.push(cluster.start(index, setup).await);
    }
    let is_formed = || {
        let counts =
            |node: &Node| node.control_plane().expect("one").published().records().nodes.len();
        nodes.iter().all(|node| counts(node) == 3)
    };
    eventually("the cluster is formed", is_formed).await;
    let key = Key::new("a", "acme", "");
    for node in &nodes {
        assert_eq!(status(node, &key).await, 401, "not yet");
    }
    let good = record(&key.text, "acme");
    agree(&nodes[0], Item::Tenant("acme".into(), Tenant::default())).await;
    agree(&nodes[0], Item::Key(KeyId::from("a"), good.clone())).await;
    for node in &nodes {
        until(node, &key, 200).await;
        assert_eq!(status(node, &own).await, 200, "the config's own key too");
    }
    let mut revoked = good;
    revoked.is_revoked = true;
    // Also one that the config has: the cluster's word counts.
    let mut own_revoked = record(&own.text, "acme");
    own_revoked.is_revoked = true;
    let since = Instant::now();
    agree(&nodes[1], Item::Key(KeyId::from("a"), revoked)).await;
    for node in &nodes {
        until(node, &key, 401).await;
    }
    assert!(since.elapsed() <= SLOWDOWN * REVOKED_WITHIN, "{:?}", since.elapsed());
    agree(&nodes[1], Item::Key(KeyId::from("own"), own_revoked)).await;
    for node in &nodes {
        until(node, &own, 401).await;
    }
    let other = Key::new("b", "acme", "");
    agree(&nodes[2], Item::Key(KeyId::from("b"), record(&other.text, "acme"))).await;
    for node in &nodes {
        until(node, &other, 200).await;
    }
    let suspended = Tenant { is_suspended: true, ..Tenant::default() };
    agree(&nodes[2], Item::Tenant("acme".into(), suspended)).await;
    for node in &nodes {
        until(node, &other, 401).await;
    }
    for node in nodes {
        node.stop().await;
    }
}
