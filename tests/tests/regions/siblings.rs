//! Several nodes in one region share its replicas.

use spillway_node::Node;
use spillway_tests::{Client, Cluster, Setup, chat, eventually, spawn, within};

use crate::gate::Gate;

const PLACES: usize = 6;
const NODES: usize = 3;
/// Requests of each phase: so many times all places.
const ROUNDS: usize = 4;

fn claims(nodes: &[Node]) -> Vec<u32> {
    nodes.iter().map(|node| node.gateway().routing.view().replicas()[0].claim()).collect()
}

#[tokio::test]
async fn a_limit_is_never_spent_twice_and_follows_the_demand() {
    let gate = Gate::start().await;
    let lines = format!("connections_max = {PLACES}");
    let cluster = Cluster::new(&["here"; NODES]);
    let mut nodes = Vec::new();
    for index in 0..NODES {
        let setup = Setup::new().replica_with("a", &gate.url(), &lines);
        nodes.push(cluster.start(index, setup).await);
    }
    eventually("each has its part", || claims(&nodes).iter().sum::<u32>() as usize == PLACES).await;
    // All to one node, then to all of them, then to another one.
    for busy_nodes in [0..1, 0..NODES, NODES - 1..NODES] {
        let clients: Vec<_> = (0..ROUNDS * PLACES)
            .map(|number| {
                let node = &nodes[busy_nodes.start + number % busy_nodes.len()];
                spawn(Client::once(node.addresses()[0], chat("tiny", "")))
            })
            .collect();
        // The places are where the requests are, however often they come free.
        for left in (1..=ROUNDS).rev() {
            if left > 1 {
                let what = format!("{busy_nodes:?} have all places, {left} rounds are left");
                eventually(&what, || gate.held("") == PLACES).await;
                gate.release("", PLACES);
                continue;
            }
            // Those that are left may be at one node, which gets the places of the others in time.
            while clients.iter().any(|client| !client.is_finished()) {
                gate.release("", gate.held(""));
                tokio::task::yield_now().await;
            }
        }
        for client in clients {
            let reply = within("a reply", client).await.expect("no panic");
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
    let most = gate.arrived().iter().map(|arrived| arrived.busy).max();
    assert_eq!(most, Some(PLACES), "at a time");
    for node in nodes {
        node.stop().await;
    }
}
