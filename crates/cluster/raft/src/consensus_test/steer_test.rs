//! Placement of the leader, and the timers that are used.

use std::time::{Duration, Instant};

use super::world::{Stopwatch, World, until};
use crate::{Timing, WireVersion};

const NEAR: Duration = Duration::from_millis(4);

/// Two nodes near each other and one far away.
async fn one_far_away() -> World {
    let mut world = World::new(3, NEAR);
    world.steering_patience = Duration::from_millis(600);
    world.start_all().await;
    world.form().await;
    for near in [0, 1] {
        world.set_rtt(near, 2, Duration::from_millis(60));
    }
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lead_moves_to_where_commits_are_quickest_and_stays() {
    let world = one_far_away().await;
    world.lead(2).await;
    let term = world.log(2).status().term;
    let handed = Instant::now();
    let mut longest = Duration::ZERO;
    while world.find_leader().is_none_or(|leader| leader == 2) {
        let begun = Stopwatch::start();
        world.set_somewhere(&[0, 1, 2], 1, 1).await;
        longest = longest.max(begun.elapsed());
        assert!(handed.elapsed() < Duration::from_secs(15), "it stays far away");
    }
    // There is no election, so no write waits for a lease.
    assert!(longest < world.timing.lease() + Duration::from_millis(200), "{longest:?}");
    let leader = world.leader().await;
    let moved = world.log(leader).status().term;
    assert_eq!(moved, term + 1);
    // wait: that nothing happens has no event; the lead could move three times.
    tokio::time::sleep(3 * world.steering_patience).await;
    assert_eq!((world.leader().await, world.log(leader).status().term), (leader, moved));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_go_by_timers_that_fit_the_longest_round_trip() {
    let mut world = World::new(3, NEAR);
    world.steering_patience = Duration::from_millis(900);
    // As if each config had another value.
    for (at, rtt_ms) in [220, 10, 100].into_iter().enumerate() {
        world.timing = Timing::for_rtt(Duration::from_millis(rtt_ms));
        world.start(at).await;
    }
    world.form().await;
    let all_are = |timing: Timing| (0..3).all(|at| world.log(at).context.timing() == timing);
    let near = Timing::for_rtt(Duration::from_millis(10));
    until("all go by short timers", || all_are(near)).await;
    let term = world.log(0).status().term;
    for at in [0, 1] {
        world.set_rtt(at, 2, Duration::from_millis(150));
    }
    until("all go by longer timers", || {
        let heartbeat = world.log(0).context.timing().heartbeat;
        heartbeat >= Timing::for_rtt(Duration::from_millis(140)).heartbeat
            && all_are(Timing::of_heartbeat(heartbeat))
    })
    .await;
    let leader = world.leader().await;
    world.set(leader, 1, 1).await.unwrap();
    world.agree().await;
    assert!(world.log(0).status().term <= term + 2, "{}", world.log(0).status().term);
}

/// A node of the older version reports no round trips, and the leader does not guess them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_steered_by_what_is_not_known() {
    let mut world = World::new(3, NEAR);
    world.wire_newest = WireVersion::OLDEST;
    world.steering_patience = Duration::from_millis(100);
    world.start_all().await;
    world.form().await;
    for near in [0, 1] {
        world.set_rtt(near, 2, Duration::from_millis(60));
    }
    world.lead(2).await;
    let term = world.log(2).status().term;
    // wait: that nothing happens has no event; the lead could move many times.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!((world.leader().await, world.log(2).status().term), (2, term));
    world.set(2, 1, 1).await.unwrap();
}
