//! Values that reads may return: linearizable reads with timers that differ, and stale reads with
//! their age.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use spillway_testkit::retried;

use super::world::{World, until};
use crate::{Consistency, Role, Timing, WireVersion};

/// Three nodes, the first of which takes its lease to be much longer than the others do theirs.
async fn unequal() -> World {
    let mut world = World::new(3, Duration::from_millis(10));
    let equal = Timing::for_rtt(Duration::from_millis(10));
    world.timing = Timing { election_max: Duration::from_millis(1_500), ..equal };
    world.start(0).await;
    world.timing = equal;
    world.start(1).await;
    world.start(2).await;
    world.form().await;
    world.lead(0).await;
    world
}

/// Cuts the leader off repeatedly and reads from it while other nodes write. Returns how many reads
/// there were, and how many of them missed a write that was acknowledged before they began.
async fn stale_reads(world: &World, cuts: u64) -> (u64, u64) {
    let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut reads, mut stale) = (0, 0);
    for cut in 0..cuts {
        world.lead(0).await;
        world.set(0, 1, acknowledged.load(Ordering::SeqCst)).await.unwrap();
        is_over.store(false, Ordering::SeqCst);
        let writing = async {
            world.isolate(0, true);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1_800) {
                let value = acknowledged.load(Ordering::SeqCst) + 1;
                world.set_somewhere(&[1, 2], 1, value).await;
                acknowledged.store(value, Ordering::SeqCst);
            }
            is_over.store(true, Ordering::SeqCst);
            world.isolate(0, false);
        };
        let reading = async {
            while !is_over.load(Ordering::SeqCst) {
                let floor = acknowledged.load(Ordering::SeqCst);
                let limit = Duration::from_millis(50);
                let look = |register: &super::register::Register| register.numbers[&1];
                match world.log(0).read(Consistency::Linearizable, limit, look).await {
                    Ok(read) => {
                        reads += 1;
                        stale += u64::from(read.value < floor);
                    }
                    // wait: for the next try, so that others get to run.
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(writing, reading);
        assert!(acknowledged.load(Ordering::SeqCst) > cut, "nothing was written");
    }
    (reads, stale)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_stale_with_unequal_timers_and_cuts() {
    let world = unequal().await;
    let (reads, stale) = stale_reads(&world, 4).await;
    assert!(reads > 100, "{reads}");
    assert_eq!(stale, 0, "of {reads}");
}

/// The test above finds what it is for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promises_that_are_not_kept_are_found_by_stale_reads() {
    let world = unequal().await;
    for at in [1, 2] {
        world.log(at).context.breaks_promises.store(true, Ordering::SeqCst);
    }
    let (reads, stale) = stale_reads(&world, 2).await;
    assert!(stale > 0, "of {reads}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_promises_reads_at_once_and_one_without_asks() {
    for (version, is_quick) in [(WireVersion::NEWEST, true), (WireVersion::OLDEST, false)] {
        let rtt = Duration::from_millis(100);
        let mut world = World::new(3, rtt);
        world.wire_newest = version;
        world.start_all().await;
        world.form().await;
        world.lead(0).await;
        world.set(0, 1, 5).await.unwrap();
        // The lead was handed over to it, which ended no lease of its own.
        let mut quick = 0;
        for _ in 0..10 {
            let begun = Instant::now();
            assert_eq!(world.get(0, 1).await, Some(5));
            quick += u32::from(begun.elapsed() < rtt / 2);
        }
        assert!(if is_quick { quick > 5 } else { quick == 0 }, "{version:?}: {quick}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hands_over_gives_up_its_lease_first() {
    let mut world = World::new(3, Duration::from_millis(60));
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    world.set(0, 1, 1).await.unwrap();
    world.get(0, 1).await;
    // It may have announced another leader, so it has to ask whether it still leads itself.
    let unknown = world.log(0).transfer_leader(world.nodes[1].id, Duration::ZERO).await;
    assert!(unknown.is_err(), "{unknown:?}");
    let begun = Instant::now();
    let limit = Duration::from_secs(5);
    let read = world.log(0).read(Consistency::Linearizable, limit, |_| ()).await;
    assert!(read.is_err() || begun.elapsed() >= Duration::from_millis(50), "{read:?}");
    until("the other one leads", || world.log(1).status().role == Role::Leader).await;
}

/// Of five nodes two are cut off with the leader, who goes on speaking to the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_with_a_leader_without_a_quorum_knows_how_old_its_state_is() {
    let mut world = World::new(5, Duration::from_millis(10));
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    world.set(0, 1, 0).await.unwrap();
    until("all have it", || (0..5).all(|at| world.get_stale(at, 1) == Some(0))).await;
    // A follower knows the age from the leader's next message on.
    let age = || async {
        let read = world.log(1).read(Consistency::Stale, Duration::ZERO, |_| ()).await.unwrap();
        read.age.filter(|age| *age < 2 * world.timing.lease()).ok_or(read.age)
    };
    retried(|_| true, age).await.unwrap();
    for (a, b) in [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)] {
        world.cut(a, b, true);
    }
    // When each value was acknowledged.
    let mut acknowledged = Vec::new();
    let begun = Instant::now();
    let mut looks = 0;
    // The old leader falls silent and tries again during this time.
    while begun.elapsed() < 8 * world.timing.lease() {
        let value = acknowledged.len() as u64 + 1;
        world.set_somewhere(&[2, 3, 4], 1, value).await;
        acknowledged.push(Instant::now());
        for at in [0, 1] {
            let asked = Instant::now();
            let look = |register: &super::register::Register| register.numbers[&1];
            let read = world.log(at).read(Consistency::Stale, Duration::ZERO, look).await.unwrap();
            let Some(missed) = acknowledged.get(read.value as usize) else { continue };
            let least = asked.duration_since(*missed);
            assert!(read.age.unwrap() >= least, "node {at}: {read:?}, at least {least:?}");
            looks += 1;
        }
    }
    assert!(looks > 20, "{looks}");
}

/// A node does not know what it has not applied yet, whatever it has received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_that_hears_from_followers_of_another_version_still_commits() {
    let mut world = World::new(3, Duration::from_millis(10));
    for (at, version) in
        [WireVersion::OLDEST, WireVersion::NEWEST, WireVersion::OLDEST].iter().enumerate()
    {
        world.wire_newest = *version;
        world.start(at).await;
    }
    world.form().await;
    for leader in [0, 1, 2] {
        world.lead(leader).await;
        for at in 0..3 {
            let value = (10 * leader + at) as u64;
            world.set(at, 1, value).await.unwrap();
            for reader in 0..3 {
                assert_eq!(world.get(reader, 1).await, Some(value), "{leader} {at} {reader}");
            }
        }
        let age = world.log((leader + 1) % 3).status().age;
        assert!(age.unwrap() < 3 * world.timing.lease(), "{age:?}");
    }
    let leader = world.find_leader().unwrap();
    world.kill(leader).await;
    let rest: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    world.set_somewhere(&rest, 1, 99).await;
    world.agree().await;
}
