//! Loss of nodes, majorities and whole clusters, together with their disks.

use std::fs;
use std::time::Instant;

use super::world::{NODES, World, said, took};
use crate::caller::{call, status};
use crate::machines::{data, spillway};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_lost_with_its_disk_is_taken_out_and_comes_back_as_a_new_node() {
    let mut world = World::started().await;
    World::text(0, &["apply", "tenant", "kept", "{}"]);
    let begin = Instant::now();
    world.machines.kill(2);
    world.wipe(2);
    World::text(0, &["apply", "tenant", "after", "{}"]);
    println!("{}", took("a write after a lost node", begin));
    world.serves(0).await;
    println!("{}", took("and a request", begin));

    // With an empty folder the node can't come back as the member it was, and its message has the
    // remedy.
    world.machines.start(2);
    world.until("what to do", 2, || world.machines.log(2).contains("remove node"));
    world.serves(2).await;
    world.machines.stop(2);
    world.wipe(2);
    let begin = Instant::now();
    World::text(0, &["remove", "node", "n2"]);
    world.has_members(1, NODES - 1);
    world.join(2, 0, NODES);
    world.has_tenant(2, "kept");
    println!("{}", took("from its removal until it knows everything", begin));
    world.serves(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_lost_majority_the_surviving_folder_begins_a_new_cluster() {
    let mut world = World::started().await;
    World::text(1, &["apply", "tenant", "kept", "{}"]);
    world.has_tenant(0, "kept");
    for node in [1, 2] {
        world.machines.kill(node);
        world.wipe(node);
    }
    world.serves(0).await;
    let refused = World::order(0, &["apply", "tenant", "lost", "{}"]);
    assert!(said(&refused).contains("quorum"), "{refused:?}");

    let begin = Instant::now();
    world.machines.stop(0);
    let folder = world.folder(0);
    let words = ["force-new-cluster", "--node", "n0", "--region", "region-0", "--folder"];
    let force = |more: &[&str]| spillway(&[&words[..], &[folder.to_str().unwrap()], more].concat());
    assert!(said(&force(&[])).contains("say --yes"));
    let done = force(&["--dry-run"]);
    assert!(done.status.success(), "{done:?}");
    let done = force(&["--yes"]);
    assert!(done.status.success(), "{done:?}");
    world.machines.start(0);
    world.has_members(0, 1);
    World::text(0, &["apply", "tenant", "new", "{}"]);
    println!("{}", took("until the surviving node takes writes", begin));
    for node in [1, 2] {
        world.join(node, 0, node + 1);
        world.has_tenant(node, "kept");
        world.serves(node).await;
    }
    println!("{}", took("until all three are one cluster", begin));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_cluster_that_is_gone_the_backup_begins_a_new_one() {
    let mut world = World::started().await;
    World::text(0, &["apply", "tenant", "kept", "{}"]);
    let backup = world.file("state.backup");
    let backup = backup.to_str().unwrap();
    World::text(0, &["backup", backup]);
    World::text(0, &["apply", "tenant", "later", "{}"]);
    for node in 0..NODES {
        world.machines.kill(node);
        world.wipe(node);
    }
    let begin = Instant::now();
    let folder = world.folder(0);
    let done = spillway(&["restore", backup, "--node", "n0", "--folder", folder.to_str().unwrap()]);
    assert!(done.status.success(), "{done:?}");
    world.machines.start(0);
    world.has_members(0, 1);
    world.serves(0).await;
    println!("{}", took("until the first node serves and takes writes", begin));
    for node in [1, 2] {
        world.join(node, 0, node + 1);
        world.serves(node).await;
    }
    println!("{}", took("until all three are one cluster", begin));
    world.has_tenant(2, "kept");
    assert!(!World::order(2, &["get", "tenant", "later"]).status.success(), "after the backup");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_corrupt_log_serves_and_joins_anew() {
    let mut world = World::started().await;
    for number in 0..40 {
        World::text(0, &["apply", "tenant", &format!("t{number}"), "{}"]);
    }
    world.has_tenant(2, "t39");
    world.machines.stop(2);
    let log = world.folder(2).join("log.redb");
    let mut bytes = fs::read(&log).unwrap();
    // Damages all but the start of the file, so that any later read finds wrong bytes.
    bytes[4_096..].iter_mut().step_by(61).for_each(|byte| *byte ^= 0x55);
    fs::write(&log, bytes).unwrap();
    world.machines.start(2);
    world.until("the fault", 2, || {
        let status = World::order(2, &["status"]);
        let text = String::from_utf8_lossy(&status.stdout);
        text.starts_with("LOG STOPPED: ") && text.contains("join as a new node")
    });
    world.serves(2).await;
    let reply = call(data(0), "GET /readyz", "").await.unwrap();
    assert_eq!(status(&reply), 200, "the others go on");

    world.machines.stop(2);
    world.wipe(2);
    let begin = Instant::now();
    World::text(0, &["remove", "node", "n2"]);
    world.join(2, 0, NODES);
    world.has_tenant(2, "t39");
    println!("{}", took("from its removal until it knows everything", begin));
}
