//! A disk that takes half a second or more for each force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::register::Change;
use super::world::{LIMIT, Stopwatch, World, until};
use crate::disk::disk_test::slow;
use crate::{ProposeError, Urgency};

const NEAR: Duration = Duration::from_millis(4);
const SLOW: Duration = Duration::from_millis(500);
const FAST: Duration = Duration::ZERO;

/// Writes to one node and how they ended.
#[derive(Debug, Default)]
struct Written {
    took: Vec<Duration>,
    /// The same by a clock for upper bounds.
    watched: Vec<Duration>,
    failed: Vec<ProposeError>,
    /// The last value that was acknowledged.
    last: u64,
}

/// Writes to a node, one after the other, for so long and at least so often.
async fn write(world: &World, at: usize, key: u64, long: Duration, at_least: usize) -> Written {
    let start = Instant::now();
    let mut written = Written::default();
    for value in 1.. {
        if start.elapsed() > long && written.took.len() >= at_least {
            return written;
        }
        let (began, watch) = (Instant::now(), Stopwatch::start());
        let change = Change::Set(key, value);
        match world.log(at).propose(&change, Urgency::Operator, LIMIT).await {
            Ok(_) => written.last = value,
            Err(error) => written.failed.push(error),
        }
        written.took.push(began.elapsed());
        written.watched.push(watch.elapsed());
        // wait: between two writes, so that writing leaves the processor to the nodes
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    written
}

impl Written {
    /// Returns the time that all but one of 20 writes kept, by the clock for upper bounds. One of 20 may
    /// fail: a machine can hold a node up for longer than a lease.
    fn p95(&self) -> Duration {
        assert!(self.failed.len() * 20 <= self.took.len(), "{:?}", self.failed);
        let mut took = self.watched.clone();
        took.sort_unstable();
        took[took.len() * 95 / 100]
    }
}

fn make_slow(world: &World, at: usize, delay: Duration) -> Arc<AtomicU64> {
    slow::set(&world.nodes[at].folder, delay)
}

/// The others are a majority without it, and need not wait: not even for their leader's disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_slow_disk_delays_no_commit_and_moves_no_lead_wherever_it_is() {
    let mut world = World::three(NEAR).await;
    // A force outlives the lease, and is far longer than what a busy machine holds a write up.
    let slow = 2 * world.timing.lease();
    let term = world.log(0).status().term;
    let long = 5 * slow;
    let mut last = [0; 3];
    for slow_at in [2, 0] {
        let forces = make_slow(&world, slow_at, slow);
        let writing = [0, 1, 2].map(|at| write(&world, at, at as u64, long, 40));
        let all = futures_util::future::join_all(writing).await;
        for (at, written) in all.iter().enumerate() {
            let took = written.p95();
            assert!(took < slow / 2, "node {slow_at} is slow, writes at node {at} take {took:?}");
            last[at] = written.last;
        }
        // It was slow indeed, and many entries wait for one force.
        let forces = forces.load(Ordering::Relaxed);
        let entries: usize = all.iter().map(|written| written.took.len()).sum();
        assert!(forces >= 4 && forces * 4 <= entries as u64, "{forces} forces, {entries} entries");
        assert_eq!((world.find_leader(), world.log(0).status().term), (Some(0), term));
        until("the slow one has it all", || world.get_stale(slow_at, 0) >= Some(last[0])).await;
        make_slow(&world, slow_at, FAST);
    }
    // All are killed while one of them is still writing: what was acknowledged is there.
    make_slow(&world, 2, SLOW);
    world.set(0, 9, 99).await.unwrap();
    for at in [2, 1, 0] {
        world.kill(at).await;
    }
    make_slow(&world, 2, FAST);
    world.start_all().await;
    let leader = world.leader().await;
    for (key, value) in (0..).zip(last).chain([(9, 99)]) {
        // More than the last acknowledged one, if the one after it was held up for too long.
        assert!(world.get(leader, key).await >= Some(value), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_need_the_slow_disk_take_its_time_and_the_leader_stays() {
    for slow_at in [2, 0] {
        let mut world = World::three(NEAR).await;
        make_slow(&world, slow_at, SLOW);
        world.kill(1).await;
        let term = world.log(0).status().term;
        let writing = [0, 2].map(|at| write(&world, at, at as u64, Duration::from_secs(4), 3));
        for written in futures_util::future::join_all(writing).await {
            let took = written.p95();
            // One force at least; two if it comes while another one is under way.
            let longest = written.took.iter().max();
            assert!(took < 3 * SLOW && longest >= Some(&SLOW), "{took:?}, {longest:?}");
        }
        assert_eq!((world.find_leader(), world.log(0).status().term), (Some(0), term));
        make_slow(&world, slow_at, FAST);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_times_of_the_disk_go_on_in_a_log_that_is_opened_again() {
    let mut world = World::new(1, NEAR);
    world.start_all().await;
    world.form().await;
    world.leader().await;
    for value in 0..10 {
        world.set(0, 1, value).await.unwrap();
    }
    let before = world.log(0).status().disk_times;
    world.reopen(0).await;
    let after = world.log(0).status().disk_times;
    assert!(after.writes > before.writes && after.total > before.total, "{before:?}, {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_waits_for_the_disk_is_seen_and_so_is_its_end() {
    let mut world = World::new(1, NEAR);
    world.start_all().await;
    world.form().await;
    world.leader().await;
    make_slow(&world, 0, SLOW);
    let waiting = || world.log(0).status().disk_times.waiting;
    let seen = until("the wait", || waiting().is_some_and(|waiting| waiting > SLOW / 5));
    let (written, ()) = tokio::join!(world.set(0, 1, 1), seen);
    written.unwrap();
    make_slow(&world, 0, FAST);
    until("the end of the wait", || waiting().is_none()).await;
    let times = world.log(0).status().disk_times;
    assert!(times.writes > 0 && times.total > SLOW, "{times:?}");
}
