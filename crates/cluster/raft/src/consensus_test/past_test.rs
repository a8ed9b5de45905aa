//! Disks from the past, states that differ, and two processes in the name of one node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use openraft::storage::{RaftLogReader, RaftLogStorage};

use super::world::{World, until};
use crate::raft::LogId;
use crate::wire::DiskCount;
use crate::wire::{Answer, Call, Point, Purpose, Report, WireVersion};
use crate::{DiskError, Role, Trouble};

const NEAR: Duration = Duration::from_millis(4);

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => _ = std::fs::copy(entry.path(), to).unwrap(),
        }
    }
}

/// Stops a node for a moment and copies its folder, as an image of its machine would be.
async fn image(world: &mut World, at: usize) -> PathBuf {
    world.kill(at).await;
    let folder = world.nodes[at].folder.clone();
    let image = folder.with_extension("image");
    copy(&folder, &image);
    world.start(at).await;
    image
}

/// Puts an image in the place of a stopped node's folder.
fn go_back(world: &World, at: usize, image: &Path) {
    let folder = &world.nodes[at].folder;
    std::fs::remove_dir_all(folder).unwrap();
    copy(image, folder);
}

fn is_told(world: &World, at: usize, wanted: impl Fn(&Trouble) -> bool) -> bool {
    world.log(at).status().troubles.iter().any(wanted)
}

/// Waits until a node knows that another one's present process has written something.
async fn known_to(world: &World, at: usize, of: usize) {
    let comparison = |at: usize| &world.log(at).context.comparison;
    until("its disk is known", || comparison(at).knows(comparison(of))).await;
}

fn fault(world: &World, at: usize) -> Option<DiskError> {
    world.log(at).context.log.fault()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_on_a_disk_from_the_past_is_told_of_and_caught_up_by_the_same_leader() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    let old = image(&mut world, 2).await;
    for value in 2..30 {
        world.set(0, 1, value).await.unwrap();
    }
    world.agree().await;
    let (leader, term) = (world.leader().await, world.log(0).status().term);
    known_to(&world, 1, 2).await;
    world.kill(2).await;
    go_back(&world, 2, &old);
    world.start(2).await;
    until("it is brought up to date", || world.get_stale(2, 1) == Some(29)).await;
    until("its count goes on", || world.log(2).context.comparison.is_cleared()).await;
    assert_eq!((world.leader().await, world.log(0).status().term), (leader, term));
    until("the others take it for good again", || {
        (0..3).all(|at| world.log(at).status().troubles.is_empty())
    })
    .await;
    // Its next start is no surprise, and its vote counts.
    world.kill(2).await;
    world.start(2).await;
    world.set(0, 1, 30).await.unwrap();
    world.agree().await;
    world.kill(0).await;
    world.set_somewhere(&[1, 2], 1, 31).await;
}

/// Without the vote of the disk from the past nothing is lost: the one who has all comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_from_the_past_elects_nobody_and_so_loses_nothing() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    let old = image(&mut world, 2).await;
    // The third node learns of the restart, and remembers it across its own restart.
    world.agree().await;
    known_to(&world, 1, 2).await;
    until("it is kept", || world.log(1).context.comparison.is_kept()).await;
    world.kill(1).await;
    for value in 3..30 {
        world.set(0, 1, value).await.unwrap();
    }
    until("its disk has them", || world.get_stale(2, 1) == Some(29)).await;
    world.kill(2).await;
    go_back(&world, 2, &old);
    world.kill(0).await;
    world.start(1).await;
    world.start(2).await;
    let is_own = |it: &Trouble| matches!(it, Trouble::DiskFromPast { is_own: true, .. });
    until("it is told", || is_told(&world, 2, is_own)).await;
    let is_other = |it: &Trouble| matches!(it, Trouble::DiskFromPast { is_own: false, .. });
    until("the other one tells", || is_told(&world, 1, is_other)).await;
    // wait: for elections that must not be won, several turns of both.
    tokio::time::sleep(6 * world.timing.election_max).await;
    assert_eq!(world.find_leader(), None);
    // A restart does not make the disk younger.
    world.kill(2).await;
    world.start(2).await;
    until("it is still told", || is_told(&world, 2, is_own)).await;
    world.start(0).await;
    assert_eq!(world.leader().await, 0);
    world.agree().await;
    assert_eq!(world.get_stale(2, 1), Some(29), "all that was acknowledged");
    until("it votes again", || world.log(2).status().troubles.is_empty()).await;
}

/// The node that had all entries is gone permanently. The two that are left continue once an
/// operator allows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_has_a_disk_from_the_past_vote() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    assert!(!world.log(2).trust_disk().await.unwrap(), "there is nothing to forgive");
    let old = image(&mut world, 2).await;
    world.agree().await;
    known_to(&world, 1, 2).await;
    until("it is kept", || world.log(1).context.comparison.is_kept()).await;
    world.kill(1).await;
    for value in 3..30 {
        world.set(0, 1, value).await.unwrap();
    }
    world.kill(2).await;
    go_back(&world, 2, &old);
    world.kill(0).await;
    world.start(1).await;
    world.start(2).await;
    let is_own = |it: &Trouble| matches!(it, Trouble::DiskFromPast { is_own: true, .. });
    until("it is told", || is_told(&world, 2, is_own)).await;
    assert!(!world.log(1).trust_disk().await.unwrap(), "only the node itself can");
    assert!(world.log(2).trust_disk().await.unwrap());
    world.set_somewhere(&[1, 2], 1, 100).await;
    until("nothing is told any more", || {
        [1, 2].iter().all(|at| world.log(*at).status().troubles.is_empty())
    })
    .await;
    // The order outlives the processes.
    for at in [1, 2] {
        world.kill(at).await;
        world.start(at).await;
    }
    world.set_somewhere(&[1, 2], 1, 101).await;
    assert!([1, 2].iter().all(|at| world.log(*at).status().troubles.is_empty()));
}

/// As in an upgrade: the older program ends the stream of a question that it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_started_elects_with_one_that_knows_no_comparison() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.agree().await;
    for at in 0..3 {
        world.kill(at).await;
    }
    world.wire_newest = WireVersion::OLDEST;
    world.start(1).await;
    world.wire_newest = WireVersion::NEWEST;
    world.start(2).await;
    world.set_somewhere(&[1, 2], 1, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_again_and_again_lead_and_are_no_trouble() {
    let mut world = World::three(NEAR).await;
    for value in 1..5 {
        world.set_somewhere(&[0, 1, 2], 1, value).await;
        for at in 0..3 {
            world.kill(at).await;
        }
        // Each pair of them is a majority, whichever is away.
        let away = value as usize % 3;
        for at in (0..3).filter(|at| *at != away) {
            world.start(at).await;
        }
        let up: Vec<usize> = (0..3).filter(|at| *at != away).collect();
        world.set_somewhere(&up, 2, value).await;
        world.start(away).await;
        world.agree().await;
        let troubles = |at| world.log(at).status().troubles;
        assert!((0..3).all(|at| troubles(at).is_empty()), "{:?}", [0, 1, 2].map(troubles));
    }
}

/// No node is left that knows that the disk is from the past.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_entries_are_not_dropped_and_the_node_that_has_them_stops_with_words() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.agree().await;
    world.kill(1).await;
    let old = image(&mut world, 2).await;
    for value in 2..10 {
        world.set_somewhere(&[0], 1, value).await;
    }
    until("it is carried out", || world.get_stale(0, 1) == Some(9)).await;
    world.kill(2).await;
    go_back(&world, 2, &old);
    world.kill(0).await;
    world.start(1).await;
    world.start(2).await;
    world.set_somewhere(&[1, 2], 1, 100).await;
    world.start(0).await;
    until("it stops", || world.log(0).status().role == Role::Stopped).await;
    let stopped = fault(&world, 0).unwrap();
    assert!(stopped.is_apart(), "{stopped}");
    assert!(stopped.to_string().contains("Keep a copy of its folder"), "{stopped}");
    assert_eq!(world.get_stale(0, 1), Some(9), "what was acknowledged is still there");
    assert!(world.log(0).status().is_misled);
    // A restart changes nothing, and the others go on.
    world.kill(0).await;
    world.start(0).await;
    until("it stops again", || world.log(0).status().role == Role::Stopped).await;
    world.set_somewhere(&[1, 2], 1, 101).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_whose_state_differs_from_most_stops_and_the_others_go_on() {
    let world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.agree().await;
    world.log(2).applied.spoil(|register| _ = register.numbers.insert(9, 9));
    world.set(0, 1, 2).await.unwrap();
    until("it stops", || world.log(2).status().role == Role::Stopped).await;
    let stopped = fault(&world, 2).unwrap();
    assert!(matches!(stopped, DiskError::Apart { .. }), "{stopped}");
    assert!(stopped.to_string().contains("let it join as a new node"), "{stopped}");
    let is_other = |it: &Trouble| matches!(it, Trouble::StateDiffers { is_own: false, .. });
    until("the others tell", || is_told(&world, 0, is_other)).await;
    world.set(0, 1, 3).await.unwrap();
    assert_eq!((fault(&world, 0), fault(&world, 1)), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_state_differs_from_most_stops_and_another_one_leads() {
    let world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.agree().await;
    world.log(0).applied.spoil(|register| _ = register.numbers.insert(9, 9));
    world.set(0, 1, 2).await.unwrap();
    until("it stops", || world.log(0).status().role == Role::Stopped).await;
    world.set_somewhere(&[1, 2], 1, 3).await;
    assert_eq!((fault(&world, 1), fault(&world, 2)), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_states_differ_the_leaders_counts() {
    let world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.agree().await;
    for at in [1, 2] {
        world.log(at).applied.spoil(|register| _ = register.numbers.insert(9, at as u64));
    }
    drop(world.set(0, 1, 2).await);
    until("the followers stop", || {
        [1, 2].iter().all(|at| world.log(*at).status().role == Role::Stopped)
    })
    .await;
    assert_eq!(fault(&world, 0), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_drops_no_committed_entry() {
    let world = World::three(NEAR).await;
    let last = world.set(0, 1, 1).await.unwrap().index;
    let mut log = world.log(0).context.log.clone();
    let entries = log.try_get_log_entries(last..=last).await.unwrap();
    let at = Point::from(entries[0].log_id);
    assert_eq!(log.contradiction([at], at.term), None);
    let other = Point { term: at.term + 1, ..at };
    let (next, found) = (other.term, |found: Option<(u64, u64)>| found.map(|(index, _)| index));
    assert_eq!(found(log.contradiction([at, other], next)), Some(last));
    assert_eq!(log.contradiction([Point { index: last + 1_000, ..other }], next), None);
    // A leader that was cut off with an entry of its own, and does not know of its successor.
    let late = Point { term: at.term - 1, ..at };
    assert_eq!(log.contradiction([late], late.term), None);
    assert_eq!(found(log.contradiction([late], at.term)), Some(last));
    let before = LogId::from(Point { index: last - 1, ..at });
    let refused = log.truncate_after(Some(before)).await.unwrap_err();
    assert!(refused.to_string().contains("committed and carried out here"), "{refused}");
    assert!(matches!(fault(&world, 0), Some(DiskError::Overwritten { .. })));
}

/// Another process with a copy of the folder and the certificate sends messages in turn with the
/// node itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_in_the_name_of_one_node_are_told() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.agree().await;
    until("it is known", || world.log(0).context.comparison.has_answered(world.nodes[2].id)).await;
    let own = world.log(2).context.comparison.process();
    world.kill(2).await;
    let thief = world.thief(2).await;
    let report = |process| {
        let count = DiskCount { process, began: 1_000, serial: 1_000, cleared: 0 };
        Call::Compare(Report { count, digests: Vec::new(), ahead: None, is_double: false })
    };
    for process in [7, own, 7, own] {
        let said = world.say(&thief, (3, 0), (Purpose::Call, report(process))).await;
        assert!(matches!(said, Some(Answer::Compared(_))), "{said:?}");
    }
    let is_two = |it: &Trouble| matches!(it, Trouble::TwoProcesses { .. });
    assert!(is_told(&world, 0, is_two));
    let said = world.say(&thief, (3, 0), (Purpose::Call, report(7))).await;
    let Some(Answer::Compared(Report { is_double: true, .. })) = said else { panic!("{said:?}") };
}
