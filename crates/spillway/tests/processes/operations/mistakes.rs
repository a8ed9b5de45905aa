//! Leaked secrets, and wrong changes.

use super::world::{NODES, World, said};
use crate::caller::call;
use crate::machines::{admin, spillway};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_join_token_lets_nobody_in() {
    let mut world = World::started().await;
    let token = World::text(0, &["join-token", "create", "--hours", "1", "--uses", "5"]);
    // Its node is gone. An attacker with the token and a certificate tries to join in its place.
    world.machines.kill(2);
    world.wipe(2);
    World::text(0, &["remove", "node", "n2"]);
    world.give_token(2, token.trim());
    let id = token.trim().split('_').nth(1).unwrap().to_owned();
    World::text(0, &["remove", "join-token", &id]);
    assert!(!World::text(0, &["get", "join-tokens"]).contains(&id));
    world.machines.start(2);
    world.until("a refusal", 2, || world.machines.log(2).contains("no such join token"));
    world.has_members(0, NODES - 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_key_leaked_is_out_at_once_and_comes_back_with_another() {
    let world = World::started().await;
    let stolen = world.file("n2.region-2.pem");
    World::text(0, &["certs", "revoke", stolen.to_str().unwrap(), "--reason", "stolen"]);
    // The links of the node are closed, so it gets no new entries.
    for at in [0, 1] {
        let closed = "its certificate was revoked";
        world.until("a closed link", at, || world.machines.log(at).contains(closed));
    }
    assert!(World::text(0, &["get", "revoked-certificates"]).contains("stolen"));
    World::text(0, &["apply", "tenant", "after", "{}"]);
    assert!(!World::order(2, &["get", "tenant", "after"]).status.success());
    world.serves(2).await;
    let dir = world.machines.folder.path().to_str().unwrap().to_owned();
    let words = ["certs", "node", "--dir", &dir, "--region", "region-2", "--node", "n2", "--force"];
    let made = spillway(&words);
    assert!(made.status.success(), "{}", said(&made));
    // A running node loads new files within ten seconds.
    world.has_tenant(2, "after");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_change_is_found_in_the_audit_trail_and_taken_back() {
    let _world = World::started().await;
    let setting = "voters.dead_after_ms";
    World::text(0, &["apply", "setting", setting, "60000"]);
    let shown = World::text(0, &["get", "setting", setting, "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let version = shown["item"]["version"].to_string();
    World::text(1, &["apply", "setting", setting, "5000"]);

    let reply = call(admin(2), "GET /v1/audit", "").await.unwrap();
    assert!(reply.contains(setting), "{reply}");
    // The operator names the wrong version, so that a newer change is not lost.
    let late = ["apply", "setting", setting, "60000", "--if-version", &version];
    assert!(said(&World::order(0, &late)).contains("conflict"));
    let shown = World::text(0, &["get", "setting", setting, "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let version = shown["item"]["version"].to_string();
    let back = ["apply", "setting", setting, "60000", "--if-version", &version];
    World::text(0, &back);
    let shown = World::text(0, &["get", "setting", setting]);
    assert!(shown.contains("60000"), "{shown}");
    World::text(0, &["remove", "setting", setting]);
}
