//! Writes and reads.

use std::time::{Duration, Instant};

use super::register::{Before, Change};
use super::world::{LIMIT, Stopwatch, World};
use crate::{Consistency, ProposeError, Urgency};

const NEAR: Duration = Duration::from_millis(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_pass_writes_on_and_hear_the_outcome() {
    let world = World::three(NEAR).await;
    assert_eq!(world.set(1, 5, 50).await.unwrap().outcome, Before(None));
    let second = world.set(2, 5, 51).await.unwrap();
    assert_eq!(second.outcome, Before(Some(50)));
    let third = world.set(0, 5, 52).await.unwrap();
    assert_eq!(third.outcome, Before(Some(51)));
    assert!(third.index > second.index);
    for at in 0..3 {
        assert_eq!(world.get(at, 5).await, Some(52));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_write_is_carried_out_once_with_many_at_a_time() {
    let world = World::three(NEAR).await;
    let count = |at: usize| {
        let world = &world;
        async move {
            for _ in 0..40 {
                let change = Change::Count(1);
                world.log(at).propose(&change, Urgency::Operator, LIMIT).await.unwrap();
            }
        }
    };
    let counting = (0..24).map(|client| count(client % 3));
    futures_util::future::join_all(counting).await;
    assert_eq!(world.get(0, 1).await, Some(24 * 40));
    world.agree().await;
}

/// A single write takes a round trip, and each of many concurrent writes takes hardly more: they do
/// not wait for each other's. With rounds, in which all that waits is sent together, half of them
/// would take one and a half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_commits_take_one_round_trip_each() {
    let rtt = Duration::from_millis(440);
    let mut world = World::new(3, rtt);
    // The cluster is formed by near nodes, which are moved apart then.
    world.one_way = NEAR / 2;
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        world.set_rtt(a, b, rtt);
    }
    world.set(0, 1, 1).await.unwrap();
    let watch = Stopwatch::start();
    let writes = (0..40).map(|number| {
        let (world, watch) = (&world, &watch);
        async move {
            // Spread over several round trips, so that each begins while others are under way.
            // wait: for its turn.
            tokio::time::sleep(Duration::from_millis(40) * number).await;
            let (begun, start) = (watch.elapsed(), Instant::now());
            world.set(0, number.into(), 1).await.unwrap();
            (watch.elapsed() - begun, start.elapsed())
        }
    });
    let (mut watched, took): (Vec<Duration>, Vec<Duration>) =
        futures_util::future::join_all(writes).await.into_iter().unzip();
    watched.sort();
    let median = watched[watched.len() / 2];
    assert!(median < rtt.mul_f64(1.4), "{watched:?}");
    assert!(took.iter().all(|took| *took >= rtt.mul_f64(0.95)), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_see_every_write_that_was_acknowledged_before_on_every_node() {
    let world = World::three(NEAR).await;
    for number in 1..=30_u64 {
        let (writer, reader) = (number as usize % 3, (number as usize + 1) % 3);
        world.set(writer, 1, number).await.unwrap();
        assert_eq!(world.get(reader, 1).await, Some(number));
    }
    let read = world.log(2).read(Consistency::Linearizable, LIMIT, |m| m.commands).await.unwrap();
    assert_eq!((read.value, read.age), (30, Some(Duration::ZERO)));
    let stale = world.log(2).read(Consistency::Stale, LIMIT, |m| m.commands).await.unwrap();
    assert!(stale.age.unwrap() < world.timing.lease(), "{stale:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_cannot_be_read_is_no_refusal() {
    let world = World::three(NEAR).await;
    for at in [0, 1] {
        let done = world.log(at).propose(&Change::Unreadable, Urgency::Operator, LIMIT).await;
        assert_eq!(done, Err(ProposeError::Unknown), "at {at}");
    }
    let read = world.log(0).read(Consistency::Linearizable, LIMIT, |m| m.commands).await.unwrap();
    assert_eq!(read.value, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_long_or_too_much_is_refused_before_it_is_sent() {
    let world = World::three(NEAR).await;
    let long = Change::Pad("x".repeat(66_000));
    let refused = world.log(1).propose(&long, Urgency::Operator, LIMIT).await;
    assert_eq!(refused, Err(ProposeError::TooLarge { bytes_max: crate::COMMAND_BYTES_MAX }));
    let longest = Change::Pad("x".repeat(65_000));
    world.log(1).propose(&longest, Urgency::Operator, LIMIT).await.unwrap();
    let hint = Change::Count(1);
    // All at once: a busy machine would get its budget back between one and the next.
    let hints = (0..200).map(|_| world.log(0).propose(&hint, Urgency::Hint, LIMIT));
    let done = futures_util::future::join_all(hints).await;
    let (accepted, refused): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
    assert!((25..100).contains(&accepted.len()), "{}", accepted.len());
    let is_budget =
        |refused: &Result<_, ProposeError>| matches!(refused, Err(ProposeError::Budget { .. }));
    assert!(refused.iter().all(is_budget), "{refused:?}");
    world.log(0).propose(&hint, Urgency::Health, LIMIT).await.unwrap();
    for _ in 0..100 {
        world.log(0).propose(&hint, Urgency::Operator, LIMIT).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_are_told_of_each_entry() {
    let world = World::three(NEAR).await;
    let mut applied = world.log(2).applied();
    let index = world.set(0, 1, 1).await.unwrap().index;
    applied.wait_for(|next_index| *next_index > index).await.unwrap();
    assert_eq!(world.get_stale(2, 1), Some(1));
}

/// After a partition, a follower receives from its leader before it has all the entries that it
/// missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_at_a_follower_that_is_behind_waits_until_it_is_not() {
    let world = World::three(Duration::from_millis(60)).await;
    let read = |at: usize| {
        let limit = Duration::from_millis(500);
        world.log(at).read(Consistency::Linearizable, limit, |register| register.commands)
    };
    world.set(0, 1, 1).await.unwrap();
    for round in 0..3_u64 {
        world.isolate(2, true);
        let writes = (0..20).map(|number| world.set(0, number, round));
        futures_util::future::join_all(writes).await;
        let written = world.log(0).applied.look(|register, _| register.commands);
        assert!(written >= 20 * (round + 1));
        world.isolate(2, false);
        let begun = Instant::now();
        let seen = loop {
            if let Ok(read) = read(2).await {
                break read.value;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "never read");
            // wait: for a message of the leader, which has no event here.
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert!(seen >= written, "round {round}: {seen} of {written}");
    }
}
