//! Cuts of all kinds, and their healing.

use std::time::{Duration, Instant};

use super::register::Change;
use super::world::{Stopwatch, World, until};
use crate::{Consistency, NodeId, ProposeError, ReadError, Role, Urgency};

const NEAR: Duration = Duration::from_millis(4);

async fn wan() -> World {
    let mut world = World::new(3, Duration::from_millis(80));
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    world.set(0, 1, 1).await.unwrap();
    world
}

/// Both take seconds and hardly any work, so they run beside each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_cut_off_one_way_or_both_are_replaced_in_time_and_heal_without_an_outage() {
    tokio::join!(
        a_cut_off_leader_is_replaced_and_stops_leading_by_itself(),
        a_leader_that_hears_nobody_is_replaced_within_nine_seconds(),
    );
}

async fn a_cut_off_leader_is_replaced_and_stops_leading_by_itself() {
    let world = wan().await;
    world.isolate(0, true);
    let cut = Stopwatch::start();
    let by = world.set_somewhere(&[1, 2], 1, 2).await;
    let took = cut.elapsed();
    assert!(took <= Duration::from_secs(4), "{took:?}");
    // The old one knows that it may not be the leader any more.
    assert_eq!(world.log(0).status().role, Role::IsolatedLeader);
    let refused = Stopwatch::start();
    assert!(matches!(world.set(0, 1, 3).await, Err(ProposeError::NoQuorum { .. })));
    let read = world.log(0).read(Consistency::Linearizable, Duration::from_secs(5), |_| ()).await;
    assert!(matches!(read, Err(ReadError::NoQuorum { .. })), "{read:?}");
    assert!(refused.elapsed() < world.timing.lease() + Duration::from_millis(200));
    // Its own state can still be read, with its age.
    let stale =
        world.log(0).read(Consistency::Stale, Duration::ZERO, |m| m.numbers[&1]).await.unwrap();
    assert_eq!(stale.value, 1);
    assert!(stale.age.unwrap() >= world.timing.lease());
    // Healing causes no outage.
    let term = world.log(by).status().term;
    world.isolate(0, false);
    let healed = Instant::now();
    while healed.elapsed() < world.timing.lease() {
        let written = Stopwatch::start();
        world.set(by, 2, 1).await.unwrap();
        assert!(written.elapsed() < Duration::from_millis(700), "{:?}", written.elapsed());
    }
    until("it follows", || world.log(0).status().role == Role::Follower).await;
    world.agree().await;
    assert_eq!(world.log(by).status().term, term);
}

async fn a_leader_that_hears_nobody_is_replaced_within_nine_seconds() {
    let world = wan().await;
    // The leader's own messages still arrive, and would keep the others quiet forever.
    world.cut_way(1, 0, true);
    world.cut_way(2, 0, true);
    let cut = Stopwatch::start();
    // Writes under way must not renew what has to end.
    let pending = world.set(0, 1, 2);
    let (pending, by) = tokio::join!(pending, world.set_somewhere(&[1, 2], 1, 3));
    let took = cut.elapsed();
    assert!(took <= Duration::from_secs(9), "{took:?}");
    assert_eq!(pending, Err(ProposeError::Unknown));
    world.cut_way(1, 0, false);
    world.cut_way(2, 0, false);
    let term = world.log(by).status().term;
    until("it follows", || world.log(0).status().role == Role::Follower).await;
    world.set(by, 1, 4).await.unwrap();
    world.agree().await;
    assert_eq!(world.log(by).status().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whom_nobody_hears_is_replaced() {
    let world = World::three(NEAR).await;
    world.cut_way(0, 1, true);
    world.cut_way(0, 2, true);
    world.set_somewhere(&[1, 2], 1, 2).await;
    world.cut_way(0, 1, false);
    world.cut_way(0, 2, false);
    until("it follows", || world.log(0).status().role == Role::Follower).await;
    world.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bridge_leaves_term_and_leader_and_heals_without_a_word() {
    let world = World::three(Duration::from_millis(10)).await;
    world.set(0, 1, 1).await.unwrap();
    let term = world.log(0).status().term;
    // Node 1 receives from node 2, and node 0 does not.
    world.cut(0, 1, true);
    let begun = Instant::now();
    let mut writes = 0;
    // Several elections would fit.
    while begun.elapsed() < 6 * world.timing.lease() {
        world.set(0, 1, writes).await.unwrap();
        writes += 1;
    }
    assert!(writes > 20, "{writes}");
    for at in 0..3 {
        assert_eq!(world.log(at).status().term, term, "node {at}");
    }
    world.cut(0, 1, false);
    let healed = Instant::now();
    while healed.elapsed() < 3 * world.timing.lease() {
        let written = Stopwatch::start();
        world.set(0, 1, writes).await.unwrap();
        assert!(written.elapsed() < world.timing.lease(), "{:?}", written.elapsed());
    }
    until("it has caught up", || world.get_stale(1, 1) == Some(writes)).await;
    assert_eq!((world.find_leader(), world.log(1).status().term), (Some(0), term));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_behind_a_cut_is_not_carried_out_after_it() {
    let world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    for round in 0..5 {
        // Shorter than what connections and leadership survive.
        world.isolate(1, true);
        let change = Change::Set(1, 2);
        let limit = Duration::from_millis(50);
        let given_up = world.log(1).propose(&change, Urgency::Operator, limit).await;
        assert_eq!(given_up, Err(ProposeError::Unknown));
        world.isolate(1, false);
        // On the same connection, so that it notices what was lost.
        for number in 0..20 {
            world.set(1, 2, 20 * round + number).await.unwrap();
        }
        world.agree().await;
        assert_eq!(world.get_stale(0, 1), Some(1), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_writes_are_refused_within_a_lease() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.kill(1).await;
    world.kill(2).await;
    let killed = Stopwatch::start();
    let lease = world.timing.lease();
    let limit = Duration::from_secs(20);
    let change = Change::Set(1, 2);
    // It may have been accepted, but it comes back.
    let first = world.log(0).propose(&change, Urgency::Operator, limit).await;
    assert!(first.is_err());
    assert!(killed.elapsed() < 3 * lease, "{:?}", killed.elapsed());
    until("it knows", || world.log(0).status().role == Role::IsolatedLeader).await;
    let begun = Stopwatch::start();
    let second = world.log(0).propose(&change, Urgency::Operator, limit).await;
    assert!(matches!(second, Err(ProposeError::NoQuorum { .. })), "{second:?}");
    assert!(begun.elapsed() < lease, "{:?}", begun.elapsed());
    let stale = world.log(0).read(Consistency::Stale, Duration::ZERO, |m| m.numbers[&1]).await;
    assert_eq!(stale.unwrap().value, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_lost_its_leader_refuses_at_once_and_names_it() {
    let world = World::three(NEAR).await;
    // Its connections seem to stay open for a while.
    world.isolate(2, true);
    // wait: for the lease of the last leader that it received from.
    tokio::time::sleep(world.timing.lease() + Duration::from_millis(20)).await;
    let begun = Stopwatch::start();
    let refused = world.set(2, 1, 1).await;
    assert_eq!(refused, Err(ProposeError::NoQuorum { leader: Some(NodeId(1)) }));
    let read = world.log(2).read(Consistency::Linearizable, Duration::from_secs(5), |_| ()).await;
    assert!(matches!(read, Err(ReadError::NoQuorum { .. })), "{read:?}");
    // Far less than a lease or the limit of a write.
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!(world.log(2).status().voters, [NodeId(1), NodeId(2), NodeId(3)].into());
}
