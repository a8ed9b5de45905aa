//! Changes of membership: joiners, promotion, replacement, removal, snapshots.

use std::collections::BTreeSet;
use std::time::Duration;

use super::register::Change;
use super::world::{LIMIT, PATIENCE, World, until};
use crate::{
    ChangeError, Compaction, Former, Founder, NodeId, ProposeError, Role, Urgency,
    force_new_cluster, restore,
};

const NEAR: Duration = Duration::from_millis(4);

fn ids(ids: &[u64]) -> BTreeSet<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn voters_go_from_three_to_five_and_back_while_writes_go_on() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    for at in 3..5 {
        world.add();
        world.start(at).await;
        let member = world.nodes[at].member();
        world.log(0).add_learner(world.nodes[at].id, member, LIMIT).await.unwrap();
        until("it has caught up", || world.get_stale(at, 1) == Some(1)).await;
        assert_eq!(world.log(at).status().role, Role::Learner);
    }
    let world = &world;
    let changing = async {
        world.log(0).change_voters(ids(&[1, 2, 3, 4, 5]), Former::Learners, LIMIT).await.unwrap();
        // The leader goes too.
        world.log(0).change_voters(ids(&[2, 4, 5]), Former::Learners, LIMIT).await.unwrap();
    };
    let (changing, is_changed) = (changing, std::cell::Cell::new(false));
    let changing = async {
        changing.await;
        is_changed.set(true);
    };
    let writing = async {
        let mut number = 1;
        while !is_changed.get() {
            number += 1;
            world.set_somewhere(&[0, 1, 3], 1, number).await;
        }
        number
    };
    let ((), number) = tokio::join!(changing, writing);
    assert!(number > 3, "{number}");
    // The old leader hands over once the others know of the change.
    until("one of them leads", || world.find_leader().is_some_and(|at| [1, 3, 4].contains(&at)))
        .await;
    let leader = world.leader().await;
    assert_eq!(world.log(leader).status().voters, ids(&[2, 4, 5]));
    // With this write, the new leader also commits the change of voters, before the next change.
    world.set_somewhere(&[leader], 1, 998).await;
    world.log(leader).remove_learners(ids(&[1, 3]), LIMIT).await.unwrap();
    world.set_somewhere(&[leader], 1, 999).await;
    for at in [1, 3, 4] {
        until("all have it", || world.get_stale(at, 1) == Some(999)).await;
    }
    let members: BTreeSet<NodeId> = world.log(leader).status().members.into_keys().collect();
    assert_eq!(members, ids(&[2, 4, 5]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_leader_changes_members_and_only_sensibly() {
    let world = World::three(NEAR).await;
    let on_follower = world.log(1).change_voters(ids(&[1, 2]), Former::Gone, LIMIT).await;
    assert_eq!(on_follower, Err(ChangeError::NotLeader { leader: Some(NodeId(1)) }));
    let stranger = world.log(0).change_voters(ids(&[1, 9]), Former::Gone, LIMIT).await;
    assert!(matches!(stranger, Err(ChangeError::Refused(_))), "{stranger:?}");
    let nobody = world.log(0).change_voters(ids(&[]), Former::Gone, LIMIT).await;
    assert!(matches!(nobody, Err(ChangeError::Refused(_))), "{nobody:?}");
    world.set(0, 1, 1).await.unwrap();
}

/// Fills the log until it has been shortened.
async fn compact(world: &World, at: usize) {
    let before = world.log(at).status().purged_index;
    let mut number = 0;
    while world.log(at).status().purged_index == before {
        number += 1;
        world.set(at, 100 + number % 7, number).await.unwrap();
        assert!(number < 2_000, "never shortened");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joiner_gets_a_snapshot_when_the_log_does_not_reach_back() {
    let mut world = World::new(3, NEAR);
    world.compaction = Compaction { entries: 40, bytes: 16 << 20, entries_kept: 5 };
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    world.set(0, 1, 77).await.unwrap();
    compact(&world, 0).await;
    compact(&world, 0).await;
    world.add();
    world.start(3).await;
    let member = world.nodes[3].member();
    world.log(0).add_learner(NodeId(4), member, LIMIT).await.unwrap();
    until("it has caught up", || world.get_stale(3, 1) == Some(77)).await;
    until("it has a snapshot", || world.log(3).status().snapshot_index.is_some()).await;
    world.log(0).change_voters(ids(&[1, 2, 3, 4]), Former::Gone, LIMIT).await.unwrap();
    world.agree().await;
    // From its own disk it comes back as it was.
    world.kill(3).await;
    world.set(0, 1, 78).await.unwrap();
    world.start(3).await;
    until("it has caught up", || world.get_stale(3, 1) == Some(78)).await;
    world.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_was_away_for_long_gets_a_snapshot() {
    let mut world = World::new(3, NEAR);
    world.compaction = Compaction { entries: 40, bytes: 16 << 20, entries_kept: 5 };
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    world.set(0, 1, 1).await.unwrap();
    world.isolate(2, true);
    compact(&world, 0).await;
    compact(&world, 0).await;
    world.set(0, 1, 2).await.unwrap();
    world.isolate(2, false);
    until("it has caught up", || world.get_stale(2, 1) == Some(2)).await;
    world.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_shortened_by_its_bytes_too() {
    let mut world = World::new(3, NEAR);
    world.compaction = Compaction { entries: 100_000, bytes: 300_000, entries_kept: 2 };
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    let pad = Change::Pad("x".repeat(30_000));
    for _ in 0..45 {
        world.log(0).propose(&pad, Urgency::Operator, LIMIT).await.unwrap();
    }
    until("the log is shorter", || world.log(0).status().log_bytes < 1_000_000).await;
    assert!(world.log(0).status().snapshot_index.is_some());
}

/// A node whose disk was wiped is another node, even under the same config.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_disk_does_not_come_back_as_itself() {
    let mut world = World::three(NEAR).await;
    world.set(0, 1, 1).await.unwrap();
    world.kill(2).await;
    std::fs::remove_dir_all(&world.nodes[2].folder).unwrap();
    world.start(2).await;
    until("the links stand", || {
        world.nodes[2].up().link.peers().iter().all(|peer| peer.is_connected())
    })
    .await;
    world.set(0, 1, 2).await.unwrap();
    // wait: that nothing happens has no event; several elections would fit.
    tokio::time::sleep(3 * world.timing.lease()).await;
    let status = world.log(2).status();
    assert_eq!((status.role, status.applied_index, status.cluster), (Role::Learner, None, None));
    // It counts for nothing: with one more gone there is no majority.
    world.kill(1).await;
    until("the leader knows", || world.log(0).status().role == Role::IsolatedLeader).await;
    assert!(matches!(world.set(0, 1, 3).await, Err(ProposeError::NoQuorum { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_is_made_a_new_cluster_with_all_it_had() {
    let mut world = World::three(NEAR).await;
    for key in 0..20 {
        world.set(0, key, key).await.unwrap();
    }
    let old = world.log(0).status().cluster;
    for at in 0..3 {
        world.kill(at).await;
    }
    let founder = Founder { node: NodeId(2), name: "n2".into(), region: "r".into() };
    let cluster = force_new_cluster(&world.nodes[1].folder, &founder).unwrap();
    assert_ne!(Some(cluster), old);
    world.start(1).await;
    world.set_somewhere(&[1], 50, 50).await;
    for key in 0..20 {
        assert_eq!(world.get(1, key).await, Some(key));
    }
    assert_eq!(world.log(1).status().voters, ids(&[2]));
    // A node of the old cluster is not taken for one of the new.
    world.start(0).await;
    let member = world.nodes[0].member();
    world.log(1).add_learner(NodeId(1), member, LIMIT).await.unwrap();
    world.set(1, 51, 51).await.unwrap();
    // wait: that nothing happens has no event.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.get_stale(0, 51), None);
    assert_eq!(world.log(0).status().cluster, old);
    // As a new node it is.
    world.kill(0).await;
    std::fs::remove_dir_all(&world.nodes[0].folder).unwrap();
    world.start(0).await;
    let member = world.nodes[0].member();
    world.log(1).remove_learners(ids(&[1]), LIMIT).await.unwrap();
    world.log(1).add_learner(NodeId(1), member, LIMIT).await.unwrap();
    until("it has caught up", || world.get_stale(0, 51) == Some(51)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_becomes_a_new_cluster() {
    let mut world = World::three(NEAR).await;
    for key in 0..20 {
        world.set(0, key, key).await.unwrap();
    }
    let file = world.nodes[0].folder.join("../backup.swb");
    world.log(0).backup(&file).await.unwrap();
    let digest = world.log(0).digest();
    let before = world.log(2).status();
    // All three are gone, with their disks.
    for node in 0..3 {
        world.kill(node).await;
    }
    let (folder, name) = (world.nodes[2].folder.clone(), "n3".into());
    std::fs::remove_dir_all(&folder).unwrap();
    let stranger = restore(&file, &folder, &"n9".into()).unwrap_err();
    assert!(stranger.to_string().contains("begin with one of n1, n2, n3"), "{stranger}");
    let (cluster, founder) = restore(&file, &folder, &name).unwrap();
    assert_ne!(Some(cluster), before.cluster);
    assert_eq!(founder, Founder { node: NodeId(3), name: name.clone(), region: "r".into() });
    assert!(restore(&file, &folder, &name).is_err());
    world.start(2).await;
    let begun = tokio::time::timeout(PATIENCE, world.set_somewhere(&[2], 100, 1));
    begun.await.unwrap();
    for key in 0..20 {
        assert_eq!(world.get(2, key).await, Some(key));
    }
    assert!(world.log(2).digest().1 > digest.1);
    // It is known by its old name, number and disk, in another cluster.
    let after = world.log(2).status();
    assert_eq!((after.disk, after.cluster), (before.disk, Some(cluster)));
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(restore(&file, &folder.join("other"), &name).is_err());
}
