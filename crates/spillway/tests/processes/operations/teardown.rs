//! Removal of a region, then of the whole cluster, in order.

use std::time::Instant;

use super::world::{NODES, World, said, took};
use crate::machines::data;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_is_taken_away_and_then_the_rest() {
    let mut world = World::started().await;
    world.enforces_membership(0);
    let begin = Instant::now();
    World::text(0, &["drain", "region-2", "--evacuate"]);
    // The region loses its vote first. Its clients are served elsewhere during that time.
    world.has_voters(0, NODES - 1);
    world.serves(2).await;
    World::text(0, &["remove", "region", "region-2"]);
    world.has_members(0, NODES - 1);
    println!("{}", took("until the region is out", begin));
    // The removed node serves its own clients until it is stopped.
    world.serves(2).await;
    world.machines.stop(2);
    let certificate = world.file("n2.region-2.pem");
    World::text(0, &["certs", "revoke", certificate.to_str().unwrap(), "--reason", "gone"]);
    world.wipe(2);
    let removed = World::text(0, &["get", "removed-nodes"]);
    assert!(removed.contains("n2"), "{removed}");
    world.serves(0).await;
    world.serves(1).await;

    // The rest: no more tokens, a last backup, then the nodes.
    let tokens = World::text(0, &["get", "join-tokens", "--json"]);
    let tokens: serde_json::Value = serde_json::from_str(&tokens).unwrap();
    assert_eq!(tokens["items"], serde_json::json!([]));
    let backup = world.file("last.backup");
    World::text(0, &["backup", backup.to_str().unwrap()]);
    World::text(0, &["drain", "region-1", "--evacuate"]);
    // A voter that is stopped takes the majority of two with it.
    world.has_voters(0, 1);
    World::text(0, &["remove", "region", "region-1"]);
    world.has_members(0, 1);
    world.machines.stop(1);
    // The other node may have led until it stopped.
    let last = World::order_with_leader(0, &["remove", "node", "n0"]);
    assert!(said(&last).contains("it is the last node"), "{last:?}");
    world.machines.stop(0);
    for node in [0, 1] {
        world.wipe(node);
    }
    assert!(backup.exists());
    assert!(std::net::TcpStream::connect(data(0)).is_err(), "nobody listens");
    println!("{}", took("until nothing is left", begin));
}
