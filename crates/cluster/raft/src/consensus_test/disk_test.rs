//! Disks that lie, seen from a whole node.

use std::time::Duration;

use super::world::{PATIENCE, World, until};
use crate::{Compaction, DiskError, RaftStartError};

const NEAR: Duration = Duration::from_millis(4);

fn damaged(started: Result<(), RaftStartError>) {
    let Err(RaftStartError::Disk(fault @ DiskError::Damaged { .. })) = started else {
        panic!("{started:?}");
    };
    assert!(fault.to_string().contains("join as a new node"), "{fault}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_log_is_refused() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.kill(2).await;
    std::fs::remove_file(world.nodes[2].folder.join("log.redb")).unwrap();
    damaged(world.try_start(2).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_log_is_refused() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.kill(2).await;
    let log = world.nodes[2].folder.join("log.redb");
    let older = std::fs::read(&log).unwrap();
    world.start(2).await;
    world.set(0, 1, 2).await.unwrap();
    until("it has it", || world.get_stale(2, 1) == Some(2)).await;
    world.kill(2).await;
    std::fs::write(&log, older).unwrap();
    damaged(world.try_start(2).await);
}

fn snapshots(world: &World) -> Vec<std::path::PathBuf> {
    let folder = std::fs::read_dir(world.nodes[0].folder.join("snapshots")).unwrap();
    let mut files: Vec<_> = folder.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "snapshot"));
    files.sort();
    files
}

/// A crash while the log is made leaves something that is no log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_half_made_is_made_anew() {
    let mut world = World::new(1, NEAR);
    std::fs::create_dir_all(&world.nodes[0].folder).unwrap();
    std::fs::write(world.nodes[0].folder.join("log.unfinished"), b"redb, nearly").unwrap();
    std::fs::write(world.nodes[0].folder.join("witness"), b"").unwrap();
    world.start(0).await;
    world.form().await;
    world.set_somewhere(&[0], 1, 1).await;
}

/// Other nodes and readers on this one do not notice which log of the node it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_opened_again_follows_over_the_same_link() {
    let mut world = World::three(NEAR).await;
    world.set_somewhere(&[0], 1, 1).await;
    let mut applied = world.log(2).applied();
    world.reopen(2).await;
    world.set_somewhere(&[0], 1, 2).await;
    let index = world.log(0).digest().1.unwrap();
    let followed = tokio::time::timeout(PATIENCE, applied.wait_for(|next| *next > index));
    followed.await.unwrap().unwrap();
    world.agree().await;
    // The leader, too, which the others replace.
    world.reopen(0).await;
    world.set_somewhere(&[0, 1, 2], 1, 3).await;
    world.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_snapshot_is_made_good_by_the_one_before_and_the_log() {
    let mut world = World::new(1, NEAR);
    world.compaction = Compaction { entries: 30, bytes: 16 << 20, entries_kept: 3 };
    world.start_all().await;
    world.form().await;
    for number in 0..200 {
        world.set_somewhere(&[0], number % 11, number).await;
    }
    until("the log was shortened", || world.log(0).status().purged_index.is_some()).await;
    for round in 0..3 {
        // After a damaged one, more entries make a second one again.
        let mut number = 0;
        while snapshots(&world).len() < 2 {
            number += 1;
            world.set_somewhere(&[0], number % 11, number).await;
        }
        let digest = world.log(0).digest();
        world.kill(0).await;
        let files = snapshots(&world);
        assert_eq!(files.len(), 2, "{files:?}");
        let newest = &files[1];
        let mut bytes = std::fs::read(newest).unwrap();
        match round {
            0 => *bytes.last_mut().unwrap() ^= 0x10,
            1 => bytes.truncate(bytes.len() / 2),
            _ => {
                // Without both there is nothing to go on from.
                std::fs::write(&files[0], b"").unwrap();
                bytes.clear();
            }
        }
        std::fs::write(newest, bytes).unwrap();
        let started = world.try_start(0).await;
        if round == 2 {
            damaged(started);
            return;
        }
        started.unwrap();
        world.leader().await;
        // The blank entry of its election changes the index, not the state.
        assert_eq!(world.log(0).digest().0, digest.0, "round {round}");
    }
}
