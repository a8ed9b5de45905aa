//! Choice of voters while nodes die and come back.

use spillway_cluster_state::{Command, Expect, Item, Outcome};
use spillway_node::Node;
use spillway_tests::{Cluster, OK, Scripted, Setup, eventually};

use crate::world::*;

/// The two nodes of the first region; each of the others has one.
const NEIGHBOURS: [usize; 2] = [0, 3];
/// A node elsewhere, whose state is read.
const WITNESS: usize = 1;

/// Returns whether node `index` votes and the number of voters, as a witness knows them.
fn votes(nodes: &[Option<Node>], index: usize) -> (bool, usize) {
    let witness = nodes[WITNESS].as_ref().expect("a node that runs");
    let status = witness.control_plane().expect("a part in the cluster").status();
    let name = format!("n{index}");
    let is_it = |id| status.members.get(id).is_some_and(|member| member.name.as_str() == name);
    (status.voters.iter().any(is_it), status.voters.len())
}

#[tokio::test]
async fn a_dead_voter_is_replaced_by_its_neighbour_and_follows_when_it_is_back() {
    let replica = Scripted::start().await.serve(OK);
    let cluster = Cluster::new(&["one", "three", "two", "one"]).agreeing();
    let setup = || Setup::new().replica("a", replica.address);
    let mut nodes = Vec::new();
    for index in 0..4 {
        nodes.push(Some(cluster.start(index, setup()).await));
    }
    eventually("one node of each region votes", || {
        let both = NEIGHBOURS.map(|index| votes(&nodes, index));
        both.iter().all(|(_, count)| *count == 3) && both[0].0 != both[1].0
    })
    .await;
    let setting = Item::Setting("voters.dead_after_ms".to_owned(), "5000".to_owned());
    let put = Command::Put { item: setting, expect: Expect::Any };
    let done = order(nodes[WITNESS].as_ref().expect("a node"), put).await;
    assert!(matches!(done, Outcome::Applied { .. }), "{done:?}");

    let is_first = votes(&nodes, NEIGHBOURS[0]).0;
    let (dead, heir) = if is_first { (0, 3) } else { (3, 0) };
    // Without a farewell: a process that ends in order would hand over its vote.
    drop(nodes[dead].take());
    eventually("its neighbour votes in its place", || {
        votes(&nodes, heir) == (true, 3) && !votes(&nodes, dead).0
    })
    .await;
    nodes[dead] = Some(cluster.start(dead, setup()).await);
    let written = Item::Setting("join.token_required".to_owned(), "false".to_owned());
    order(
        nodes[heir].as_ref().expect("a node"),
        Command::Put { item: written, expect: Expect::Any },
    )
    .await;
    eventually("it follows, without a vote", || {
        let back = nodes[dead].as_ref().expect("a node");
        state(back).setting("join.token_required").is_some_and(|value| value == "false")
    })
    .await;
    assert_eq!((votes(&nodes, dead).0, votes(&nodes, heir)), (false, (true, 3)));
}
