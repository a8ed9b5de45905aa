//! Forming, electing, restarting, handing over.

use std::time::{Duration, Instant};

use super::world::{Stopwatch, World, until};
use crate::disk::owner_of;
use crate::{ChangeError, ClusterId, FormError, NodeId, Role};

const NEAR: Duration = Duration::from_millis(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_first_starts_form_a_cluster_that_commits_everywhere() {
    let mut world = World::new(3, NEAR);
    world.start_all().await;
    let cluster = world.form().await;
    for at in 0..3 {
        world.set_somewhere(&[at], at as u64, 10 + at as u64).await;
    }
    for at in 0..3 {
        for key in 0..3 {
            assert_eq!(world.get(at, key).await, Some(10 + key));
        }
        assert_eq!(world.log(at).status().cluster, Some(cluster));
    }
    world.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cluster_is_formed_while_a_seed_is_missing() {
    let mut world = World::new(3, NEAR);
    world.start(0).await;
    world.start(1).await;
    let seeds = world.seeds();
    let forming = async { tokio::join!(world.log(0).form(&seeds), world.log(1).form(&seeds)) };
    // wait: that nothing happens has no event; a few rounds of asking pass.
    let formed = tokio::time::timeout(Duration::from_millis(600), forming).await;
    assert!(formed.is_err());
    assert!((0..2).all(|at| world.log(at).status().cluster.is_none()));
    world.start(2).await;
    world.form().await;
    world.set_somewhere(&[0, 1, 2], 1, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeds_of_two_clusters_are_told_apart_and_never_joined() {
    let mut world = World::new(2, NEAR);
    world.start_all().await;
    for at in 0..2 {
        let members = [(world.nodes[at].id, world.nodes[at].member())].into();
        world.log(at).initialise(ClusterId(at as u128 + 1), members).await.unwrap();
        world.set_somewhere(&[at], 9, 9).await;
    }
    until("the links stand", || world.nodes[0].up().link.peers()[0].is_connected()).await;
    // Each serves its own cluster; a member of the other one is refused.
    for at in 0..2 {
        let formed = world.log(at).form(&world.seeds()).await;
        assert_eq!(formed, Ok(ClusterId(at as u128 + 1)));
    }
    let member = world.nodes[1].member();
    world.log(0).add_learner(NodeId(2), member, super::world::LIMIT).await.unwrap();
    world.set(0, 1, 1).await.unwrap();
    // wait: that nothing happens has no event.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.get_stale(1, 1), None);
    assert_eq!(world.log(1).status().cluster, Some(ClusterId(2)));
    let again = world.log(0).initialise(ClusterId(9), [].into()).await;
    assert!(matches!(again, Err(FormError::Refused(_))), "{again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_within_four_seconds_at_wan_distance() {
    let mut world = World::new(3, Duration::from_millis(80));
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    world.set(0, 1, 1).await.unwrap();
    let killed = Stopwatch::start();
    world.kill(0).await;
    let by = world.set_somewhere(&[1, 2], 1, 2).await;
    let took = killed.elapsed();
    assert!(took <= Duration::from_secs(4), "{took:?}");
    assert_eq!(world.get(by, 1).await, Some(2));
    // It comes back, catches up, and does not disturb.
    let term = world.log(by).status().term;
    world.start(0).await;
    until("it has caught up", || world.get_stale(0, 1) == Some(2)).await;
    world.agree().await;
    assert_eq!(world.log(by).status().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_survives_a_restart_of_all_nodes() {
    let mut world = World::three(NEAR).await;
    for key in 0..50 {
        world.set(0, key, key * 3).await.unwrap();
    }
    let cluster = world.log(0).status().cluster;
    for round in 0..2 {
        for at in 0..3 {
            world.kill(at).await;
        }
        world.start_all().await;
        let leader = world.leader().await;
        for key in 0..50 {
            assert_eq!(world.get(leader, key).await, Some(key * 3), "round {round}");
        }
        assert_eq!(world.log(0).status().cluster, cluster);
        world.form().await;
    }
    world.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_remembers_its_vote_and_gives_none_within_a_lease() {
    let mut world = World::new(3, NEAR);
    world.start_all().await;
    world.form().await;
    let leader = world.leader().await;
    let other = (leader + 1) % 3;
    let term = world.log(leader).status().term;
    until("it follows", || world.log(other).status().term == term).await;
    world.kill(other).await;
    let lease = world.timing.lease();
    let started = Instant::now();
    world.start(other).await;
    // No node reaches it any more: a node without memory would vote for itself at once.
    world.isolate(other, true);
    until("it remembers", || world.log(other).status().term == term).await;
    until("it stands for election", || {
        let role = world.log(other).status().role;
        assert!(role != Role::Candidate || started.elapsed() >= lease);
        started.elapsed() > lease + Duration::from_millis(100)
    })
    .await;
    // By then it asks for votes, and gets none: its term stays.
    assert_eq!(world.log(other).status().term, term);
    world.isolate(other, false);
    world.set(leader, 1, 1).await.unwrap();
    until("it follows again", || world.get_stale(other, 1) == Some(1)).await;
    assert_eq!(world.log(leader).status().term, term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lead_is_handed_over_without_an_election_timer() {
    let mut world = World::new(3, NEAR);
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    for to in [1, 2, 0] {
        let from = world.find_leader().unwrap();
        let begun = Stopwatch::start();
        let limit = Duration::from_secs(2);
        world.log(from).transfer_leader(world.nodes[to].id, limit).await.unwrap();
        world.set_somewhere(&[to], 1, to as u64).await;
        // An election would take a lease and a timer: 2.2 s at least.
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    let limit = Duration::from_secs(1);
    let follower = world.log(1).transfer_leader(NodeId(3), limit).await;
    assert_eq!(follower, Err(ChangeError::NotLeader { leader: Some(NodeId(1)) }));
    let stranger = world.log(0).transfer_leader(NodeId(9), limit).await;
    assert!(matches!(stranger, Err(ChangeError::Refused(_))), "{stranger:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_says_whose_it_is() {
    let mut world = World::three(NEAR).await;
    let (disk, cluster) = (world.log(1).disk(), world.log(1).status().cluster);
    world.kill(1).await;
    let owner = owner_of(&world.nodes[1].folder).unwrap().unwrap();
    assert_eq!((owner.node, owner.disk, owner.cluster), (NodeId(2), disk, cluster));
    assert_eq!(owner_of(&world.nodes[1].folder.join("none")).unwrap(), None);
}
