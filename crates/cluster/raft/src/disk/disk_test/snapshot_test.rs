//! A crash at any step of writing, taking in or dropping snapshots, and of shortening the log
//! after them, loses nothing that was acknowledged; damaged snapshots are never believed.

use std::path::{Path, PathBuf};

use spillway_types::DiskId;

use super::faulty::Power;
use super::faulty_files::FaultyFiles;
use super::machine::{Disks, Node, Script};
use crate::DiskError;
use crate::disk::snapshots::write_on;
use crate::disk::system::Files;
use crate::raft::{SnapshotMeta, StoredMembers};
use crate::state_machine::stored;

/// Scripts of which every step is a crash.
const SCRIPTS: u64 = 12;

/// Crashes at every step of a script, and again while it recovers. Says how many crashes there were.
async fn sweep(seed: u64) -> usize {
    let mut whole = Script::new(seed);
    let disks = Disks::new();
    whole.play(&disks).await.unwrap();
    let steps = disks.power.steps();
    for at in 0..steps {
        crash(seed, at).await;
    }
    steps
}

async fn crash(seed: u64, at: usize) {
    let mut random = fastrand::Rng::with_seed(seed << 32 | at as u64);
    let mut script = Script::new(seed);
    let disks = Disks::new();
    disks.power.fail_after(at);
    // It fails, unless all that is left undone is closing the log.
    drop(script.play(&disks).await);
    // While it recovers the power fails again.
    let again = disks.after_crash(&mut random);
    again.power.fail_after(random.usize(0..40));
    if let Ok(node) = Node::open(&again).await {
        node.close().await;
    }
    let last = again.after_crash(&mut random);
    let node = Node::open(&last).await;
    let mut node = node.unwrap_or_else(|fault| panic!("seed {seed}, step {at}: {fault}"));
    script.check(&node, &last).unwrap_or_else(|why| panic!("seed {seed}, step {at}: {why}"));
    // And it goes on as if nothing had been.
    script.run_orders(&mut node, 4).await.unwrap();
    node.close().await;
    let node = Node::open(&last).await.unwrap();
    script.check(&node, &last).unwrap_or_else(|why| panic!("seed {seed}, step {at}, later: {why}"));
    node.close().await;
}

async fn sweeps(seeds: std::ops::Range<u64>) {
    let mut crashes = 0;
    for seed in seeds.clone() {
        crashes += sweep(seed).await;
    }
    let scripts = seeds.end - seeds.start;
    assert!(crashes as u64 > 64 * scripts, "{crashes} crashes of {scripts} scripts");
}

// Four tests, so that they run beside each other: more than 1,024 crashes, each followed by another.
#[tokio::test]
async fn crashes_around_snapshots_lose_nothing_acknowledged_1() {
    sweeps(0..SCRIPTS / 4).await;
}

#[tokio::test]
async fn crashes_around_snapshots_lose_nothing_acknowledged_2() {
    sweeps(SCRIPTS / 4..SCRIPTS / 2).await;
}

#[tokio::test]
async fn crashes_around_snapshots_lose_nothing_acknowledged_3() {
    sweeps(SCRIPTS / 2..SCRIPTS / 4 * 3).await;
}

#[tokio::test]
async fn crashes_around_snapshots_lose_nothing_acknowledged_4() {
    sweeps(SCRIPTS / 4 * 3..SCRIPTS).await;
}

/// Cuts a file off, or flips one of its bits.
fn damage(bytes: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    if random.bool() {
        damaged.truncate(random.usize(0..bytes.len()));
    } else {
        damaged[random.usize(0..bytes.len())] ^= 1 << random.u8(0..8);
    }
    damaged
}

/// A node that has made two snapshots by itself, and them: the older one first.
async fn with_two(seed: u64) -> (Script, Disks, Vec<PathBuf>) {
    let mut script = Script::new(seed);
    let disks = Disks::new();
    let mut node = Node::open(&disks).await.unwrap();
    for _ in 0..2 {
        script.grow(&mut node, 9).await.unwrap();
        script.apply(&mut node).await.unwrap();
        script.build(&mut node, 0).await.unwrap();
    }
    script.grow(&mut node, 3).await.unwrap();
    node.close().await;
    let files = disks.snapshots();
    assert_eq!(files.len(), 2, "{files:?}");
    (script, disks, files)
}

#[tokio::test]
async fn a_damaged_snapshot_leaves_the_other_one_and_the_log_which_know_everything() {
    let mut random = fastrand::Rng::with_seed(5);
    let (script, disks, files) = with_two(1).await;
    for round in 0..300 {
        let copy = disks.copy();
        let which = &files[round % 2];
        copy.files.replace(which, damage(&disks.read(which), &mut random));
        let node = Node::open(&copy).await.unwrap_or_else(|fault| panic!("{round}: {fault}"));
        // The newer one is what a node goes on from, if it can be read.
        let from = script.snapshot_of(&files[1 - round % 2]);
        assert_eq!(node.newest(), from, "{round}");
        script.check_state(&node).unwrap();
        assert_eq!(copy.with_ending("damaged").len(), 1, "put aside for somebody to look into");
        node.close().await;
    }
}

#[tokio::test]
async fn without_any_whole_snapshot_a_shortened_log_is_refused() {
    let mut random = fastrand::Rng::with_seed(6);
    let (_, disks, files) = with_two(2).await;
    for round in 0..200 {
        let copy = disks.copy();
        for file in &files {
            copy.files.replace(file, damage(&disks.read(file), &mut random));
        }
        let fault = Node::open(&copy).await.map(drop).unwrap_err();
        assert!(matches!(fault, DiskError::Damaged { .. }), "{round}: {fault}");
        assert_eq!(copy.with_ending("damaged").len(), 0, "evidence stays where it is");
    }
    // One that is gone altogether is as bad.
    let bare = Disks { files: FaultyFiles::new(&disks.power), ..disks.copy() };
    let fault = Node::open(&bare).await.map(drop).unwrap_err();
    assert!(fault.to_string().contains("a snapshot is missing"), "{fault}");
}

#[tokio::test]
async fn a_damaged_snapshot_that_came_from_the_leader_is_refused_since_nothing_else_reaches_it() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut script, disks, _) = with_two(3).await;
    let mut node = Node::open(&disks).await.unwrap();
    script.check(&node, &disks).unwrap();
    script.install(&mut node, 20).await.unwrap();
    node.close().await;
    let files = disks.snapshots();
    assert_eq!(files.len(), 1, "older ones are of no use: {files:?}");
    for round in 0..200 {
        let copy = disks.copy();
        copy.files.replace(&files[0], damage(&disks.read(&files[0]), &mut random));
        let fault = Node::open(&copy).await.map(drop).unwrap_err();
        assert!(matches!(fault, DiskError::Damaged { .. }), "{round}: {fault}");
    }
}

/// As a backup is written: nothing comes after it that would make its name last.
#[test]
fn a_snapshot_that_was_written_is_found_after_any_crash() {
    let mut random = fastrand::Rng::with_seed(8);
    let (power, path) = (Power::default(), Path::new("/backup.snapshot"));
    let meta = SnapshotMeta { last_log_id: None, last_membership: StoredMembers::default() };
    let snapshot = stored(&meta, vec![7; 3_000].into());
    for steps in 0..8 {
        for _ in 0..20 {
            let files = FaultyFiles::new(&power);
            power.fail_after(steps);
            let written = write_on(&files, path, DiskId(1), &snapshot);
            let left = files.after_crash(&Power::default(), &mut random);
            match (left.read(path), written) {
                (Ok(bytes), _) => assert_eq!(bytes, files.read(path).unwrap(), "whole"),
                (Err(_), Err(_)) => {}
                (Err(error), Ok(())) => panic!("{error} though it was written"),
            }
        }
    }
}

#[tokio::test]
async fn a_snapshot_of_another_disk_is_not_believed() {
    let (_, disks, files) = with_two(4).await;
    let (_, other, others) = with_two(4).await;
    assert_eq!(files, others);
    let copy = disks.copy();
    copy.files.replace(&files[1], other.read(&files[0]));
    let node = Node::open(&copy).await.unwrap();
    assert_eq!(copy.with_ending("damaged"), [files[1].with_extension("damaged")]);
    node.close().await;
    let strange = Disks { disk: DiskId(78), ..Disks::new() };
    let mut script = Script::new(4);
    let mut node = Node::open(&strange).await.unwrap();
    for _ in 0..2 {
        script.grow(&mut node, 9).await.unwrap();
        script.apply(&mut node).await.unwrap();
        script.build(&mut node, 0).await.unwrap();
    }
    node.close().await;
    let copy = disks.copy();
    copy.files.replace(&files[1], strange.read(&files[1]));
    Node::open(&copy).await.unwrap().close().await;
    assert_eq!(copy.with_ending("damaged"), [files[1].with_extension("damaged")]);
}
