//! Nodes of two versions in one cluster, as a rolling upgrade has them: each is stopped and started
//! again in the other version, one after the other, and back. The older version is an invented one,
//! see `wire/older.rs`.

use super::world::{World, until};
use crate::WireVersion;

const OLD: WireVersion = WireVersion::OLDEST;
const NEW: WireVersion = WireVersion::NEWEST;
const NEAR: std::time::Duration = std::time::Duration::from_millis(4);

/// Acknowledged writes: the last value of each node's key.
type Written = [u64; 3];

/// Writes at each of these nodes; each write has to be done at once, without a second try.
async fn write(world: &World, among: &[usize], written: &mut Written) {
    for _ in 0..5 {
        for at in among {
            let value = written[*at] + 1;
            let done = world.set(*at, *at as u64, value).await;
            assert!(done.is_ok(), "a write at {at}: {done:?}");
            written[*at] = value;
        }
    }
}

/// Starts a node again in this version while the others go on.
async fn change(world: &mut World, at: usize, to: WireVersion, written: &mut Written) {
    let others: Vec<usize> = (0..3).filter(|other| *other != at).collect();
    if world.leader().await == at {
        world.lead(others[0]).await;
    }
    world.kill(at).await;
    write(world, &others, written).await;
    world.wire_newest = to;
    world.start(at).await;
    until("it has caught up", || {
        others.iter().all(|other| world.get_stale(at, *other as u64) == Some(written[*other]))
    })
    .await;
    write(world, &[0, 1, 2], written).await;
}

/// Waits until all nodes use these versions with each other.
async fn speak(world: &World, versions: [WireVersion; 3]) {
    until("they speak what both know", || {
        (0..3).all(|from| {
            (0..3).filter(|to| *to != from).all(|to| {
                let found = world.log(from).context.versions.with(&world.log(to).member().name);
                found == versions[from].min(versions[to])
            })
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_upgrade_and_the_way_back_lose_no_write_whoever_leads() {
    let mut world = World::new(3, NEAR);
    world.wire_newest = OLD;
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    let mut written = [0; 3];
    write(&world, &[0, 1, 2], &mut written).await;
    let mut versions = [OLD; 3];
    for to in [NEW, OLD] {
        for at in [2, 1, 0] {
            change(&mut world, at, to, &mut written).await;
            versions[at] = to;
            speak(&world, versions).await;
            // OLD of the old version leads others of the new one, and the other way round.
            for leader in [at, (at + 1) % 3] {
                world.lead(leader).await;
                write(&world, &[0, 1, 2], &mut written).await;
                let reader = (leader + 1) % 3;
                assert_eq!(world.get(reader, 0).await, Some(written[0]));
            }
        }
    }
    world.agree().await;
    for (at, value) in written.into_iter().enumerate() {
        assert_eq!(world.get(at, at as u64).await, Some(value));
    }
}

/// The older node gets messages in the newer version as long as its version is unknown. It does not
/// read half of them: it refuses them, and from then on gets messages in its own version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_of_each_version_brings_a_follower_of_the_other_up_with_a_snapshot() {
    for (old, new) in [(0, 2), (2, 0)] {
        let mut world = World::new(3, NEAR);
        world.compaction = crate::Compaction { entries: 20, bytes: 16 << 20, entries_kept: 2 };
        for at in 0..3 {
            world.wire_newest = if at == old { OLD } else { NEW };
            world.start(at).await;
        }
        world.form().await;
        world.lead(0).await;
        let behind = 2;
        world.kill(behind).await;
        for value in 1..80 {
            world.set_somewhere(&[0, 1], 7, value).await;
        }
        until("the log was shortened", || world.log(0).status().purged_index.is_some()).await;
        world.wire_newest = if behind == old { OLD } else { NEW };
        world.start(behind).await;
        until("it has it all", || world.get_stale(behind, 7) == Some(79)).await;
        world.agree().await;
        assert!(world.log(new).context.versions.own() == NEW);
    }
}
