//! A disk that takes half a second for each force.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::world::{LIMIT, World, until};
use crate::disk::disk_test::slow;
use crate::{ProposeError, Timing, Urgency};

use super::register::Change;

const NEAR: Duration = Duration::from_millis(4);
const SLOW: Duration = Duration::from_millis(500);
const FAST: Duration = Duration::ZERO;

/// What became of writes to one node.
#[derive(Debug, Default)]
struct Written {
    took: Vec<Duration>,
    failed: Vec<ProposeError>,
    /// The last value that was acknowledged.
    last: u64,
}

/// Writes to a node, one after the other, for so long.
async fn write(world: &World, at: usize, key: u64, long: Duration) -> Written {
    let start = Instant::now();
    let mut written = Written::default();
    for value in 1.. {
        if start.elapsed() > long {
            return written;
        }
        let began = Instant::now();
        let change = Change::Set(key, value);
        match world.log(at).propose(&change, Urgency::Operator, LIMIT).await {
            Ok(_) => written.last = value,
            Err(error) => written.failed.push(error),
        }
        written.took.push(began.elapsed());
        // wait: between two writes, so that a fast cluster has time for others
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    written
}

impl Written {
    /// What all but one of 20 writes did not exceed, and at least so many were written.
    fn p95(&self, at_least: usize) -> Duration {
        assert!(self.failed.is_empty(), "{:?}", self.failed);
        let mut took = self.took.clone();
        assert!(took.len() >= at_least, "{} writes", took.len());
        took.sort_unstable();
        took[took.len() * 95 / 100]
    }
}

/// Far enough apart that a lease is longer than a force, as it is between regions.
async fn wide() -> World {
    let mut world = World::new(3, NEAR);
    world.timing = Timing::for_rtt(Duration::from_millis(220));
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    world
}

fn make_slow(world: &World, at: usize, delay: Duration) -> Arc<AtomicU64> {
    slow::set(&world.nodes[at].folder, delay)
}

/// The others are a majority without it, and need not wait: not even for their leader's disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_slow_disk_delays_no_commit_and_moves_no_lead_wherever_it_is() {
    let mut world = World::three(NEAR).await;
    let term = world.log(0).status().term;
    let long = Duration::from_secs(3);
    let mut last = [0; 3];
    for slow_at in [2, 0] {
        let forces = make_slow(&world, slow_at, SLOW);
        let writing = [0, 1, 2].map(|at| write(&world, at, at as u64, long));
        let all = futures_util::future::join_all(writing).await;
        for (at, written) in all.iter().enumerate() {
            let took = written.p95(40);
            assert!(took < SLOW / 2, "node {slow_at} is slow, writes at node {at} take {took:?}");
            last[at] = written.last;
        }
        // It was slow indeed, and many entries wait for one force.
        let forces = forces.load(Ordering::Relaxed);
        assert!((4..10).contains(&forces), "{forces}");
        assert_eq!((world.find_leader(), world.log(0).status().term), (Some(0), term));
        until("the slow one has it all", || world.get_stale(slow_at, 0) == Some(last[0])).await;
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
        assert_eq!(world.get(leader, key).await, Some(value));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_need_the_slow_disk_take_its_time_and_the_leader_stays() {
    for slow_at in [2, 0] {
        let mut world = wide().await;
        make_slow(&world, slow_at, SLOW);
        world.kill(1).await;
        let term = world.log(0).status().term;
        let writing = [0, 2].map(|at| write(&world, at, at as u64, Duration::from_secs(4)));
        for written in futures_util::future::join_all(writing).await {
            let took = written.p95(3);
            // One force at least; two if it comes while another one is under way.
            assert!(took >= SLOW && took < 3 * SLOW, "{took:?}");
        }
        assert_eq!((world.find_leader(), world.log(0).status().term), (Some(0), term));
        make_slow(&world, slow_at, FAST);
    }
}
