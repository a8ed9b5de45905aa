//! Questions that a new leader has to ask before it commits.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::world::{Stopwatch, World, until};
use crate::Role;

/// Nodes far apart that have so many entries, the last one alike on all.
async fn with_entries(rtt: Duration, entries: u64) -> World {
    let mut world = World::new(3, rtt);
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    for from in (0..entries).step_by(200) {
        let writes =
            (from..entries.min(from + 200)).map(|number| world.set(0, number % 50, number));
        futures_util::future::try_join_all(writes).await.unwrap();
    }
    world.agree().await;
    world
}

/// Entries of earlier terms that nodes have sent to find out where logs meet.
fn old_sent(world: &World, among: &[usize]) -> u64 {
    let sent = |at: &usize| world.log(*at).context.old_sent.load(Ordering::Relaxed);
    among.iter().map(sent).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_sends_no_old_entries_to_those_who_voted_for_it() {
    let mut world = with_entries(Duration::from_millis(20), 2_000).await;
    let before = old_sent(&world, &[1, 2]);
    world.kill(0).await;
    world.set_somewhere(&[1, 2], 1, 2).await;
    assert_eq!(old_sent(&world, &[1, 2]), before);
    world.agree().await;
}

/// It did not vote, so it is asked once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_comes_back_is_asked_once_where_its_log_ends() {
    let mut world = with_entries(Duration::from_millis(20), 1_000).await;
    world.kill(0).await;
    let leader = world.set_somewhere(&[1, 2], 1, 2).await;
    let before = old_sent(&world, &[leader]);
    world.start(0).await;
    world.agree().await;
    let sent = old_sent(&world, &[leader]) - before;
    // Tries while it could not be reached are lost before they are counted.
    assert!(sent <= 2, "{sent}");
}

/// Its log is as long as the leader's and ends differently: the end that it reports is no help, and
/// must not be taken for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_with_entries_that_were_never_committed_gets_the_right_ones() {
    let mut world = with_entries(Duration::from_millis(20), 200).await;
    world.isolate(0, true);
    // In its log, and nowhere else.
    let lost = (0..30).map(|number| world.set(0, number, 1_000_000));
    assert!(futures_util::future::join_all(lost).await.iter().all(Result::is_err));
    world.kill(0).await;
    for number in 0..40 {
        world.set_somewhere(&[1, 2], number, 5).await;
    }
    world.start(0).await;
    world.agree().await;
    assert_eq!(world.get_stale(0, 3), Some(5));
    assert_eq!(world.get_stale(0, 39), Some(5));
}

/// Prints what a fail-over consists of; run with `--no-capture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fail_over_takes_as_long_with_a_long_log_as_with_a_short_one() {
    let rtt = Duration::from_millis(100);
    let mut took = Vec::new();
    for entries in [10, 2_000] {
        let mut world = with_entries(rtt, entries).await;
        let killed = Stopwatch::start();
        world.kill(0).await;
        world.set_somewhere(&[1, 2], 1, 2).await;
        took.push(killed.elapsed());
    }
    println!("with 10 and 2,000 entries: {took:?}");
    // The searches would take seven round trips more.
    assert!(took[1] < took[0] + 4 * rtt, "{took:?}");
}

/// us, eu and ap, the first of which leads, with a long log.
async fn three_continents() -> World {
    let world = with_entries(Duration::from_millis(4), 2_000).await;
    for (a, b, rtt_ms) in [(0, 1, 80), (0, 2, 170), (1, 2, 220)] {
        world.set_rtt(a, b, Duration::from_millis(rtt_ms));
    }
    // The links measure the round trip during these writes.
    for number in 0..10 {
        world.set(0, number, 1).await.unwrap();
    }
    world
}

/// Returns the times, from `begun` on, at which each event after the loss of the leader was first
/// seen.
async fn time_line(world: &World, begun: Stopwatch) -> [(&'static str, Duration); 4] {
    let term = world.log(1).status().term;
    let statuses = || [1, 2].map(|at| world.log(at).status());
    until("its lease has ended", || [1, 2].iter().any(|at| !world.log(*at).context.is_held()))
        .await;
    let lease = begun.elapsed();
    until("somebody was given votes", || statuses().iter().any(|status| status.term > term)).await;
    let vote = begun.elapsed();
    until("somebody leads", || statuses().iter().any(|status| status.role == Role::Leader)).await;
    let lead = begun.elapsed();
    world.set_somewhere(&[1, 2], 1, 2).await;
    [("lease over", lease), ("asks for votes", vote), ("leads", lead), ("commits", begun.elapsed())]
}

/// Prints what a fail-over consists of; run with `--no-capture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_of_three_continents_is_replaced_within_four_seconds_killed_or_cut_off() {
    let killed = async {
        let mut world = three_continents().await;
        let begun = Stopwatch::start();
        world.kill(0).await;
        // It made all ways the same again.
        world.set_rtt(1, 2, Duration::from_millis(220));
        time_line(&world, begun).await
    };
    let cut = async {
        let world = three_continents().await;
        let begun = Stopwatch::start();
        world.isolate(0, true);
        time_line(&world, begun).await
    };
    let (killed, cut) = tokio::join!(killed, cut);
    println!("killed: {killed:?}\ncut off: {cut:?}");
    for line in [killed, cut] {
        assert!(line[3].1 <= Duration::from_secs(4), "{line:?}");
    }
}
