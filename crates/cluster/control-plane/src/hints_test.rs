//! Tests of hot blocks through a real log: three nodes on loopback.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use spillway_cluster_state::{
    Actor, Command, Expect, HotBlock, HotDelta, Outcome, RefusalCode, State,
};
use spillway_raft::ProposeError;
use spillway_testkit::{eventually, retried};
use tokio::task::JoinSet;

use crate::ControlPlane;
use crate::control_plane_test::{World, agreed};

const LIMIT: Duration = Duration::from_secs(60);
/// Number of blocks in one entry.
const BLOCKS: u64 = 50;

/// Makes the first block of a prompt. The upper half of its hash is the epoch of the key.
fn block(key_epoch: u64, number: u64) -> HotBlock {
    HotBlock { hash: (key_epoch << 32) + number + 1, parent: 0, depth: 1, heat: 9 }
}

/// Makes a node's report of its region: blocks from `number` on, hashed with the present key.
fn hot(node: &ControlPlane, number: u64) -> Command {
    let key_epoch = node.published().key_epoch();
    let enter = (number..number + BLOCKS).map(|number| block(key_epoch, number)).collect();
    let delta = HotDelta { enter, leave: Vec::new() };
    Command::HotBlocks { region: node.config.region.clone(), key_epoch, delta }
}

/// Proposes a hint, and repeats it, which does no harm, if a busy machine lost its leader.
async fn hint(node: &ControlPlane, number: u64) -> Result<Outcome, ProposeError> {
    let done = retried(ProposeError::is_transient, || {
        node.propose(hot(node, number), Actor::Node, None, LIMIT)
    });
    done.await.map(|done| done.outcome)
}

/// Proposes a hint as an operator, which no budget limits, as if much time had passed before.
async fn written(node: &ControlPlane, number: u64) {
    let done = agreed(node, hot(node, number)).await;
    // Unchanged if an earlier attempt was carried out and its answer lost.
    assert!(matches!(done, Outcome::Applied { .. } | Outcome::Unchanged), "{done:?}");
}

fn blocks(state: &State, region: &str) -> usize {
    state.hot().region(&region.into()).map_or(0, |blocks| blocks.entries().len())
}

/// Waits until all three nodes have carried out the same entries and are equal.
async fn agree(world: &World) {
    eventually("all nodes are equal at the same index", || {
        let all: Vec<_> = (0..3).map(|at| world.control_plane(at).digest()).collect();
        all.iter().all(|one| *one == all[0])
    })
    .await;
    eventually("that is published", || {
        let published = |at| world.control_plane(at).published().facts_digest().to_u128();
        (0..3).all(|at| published(at) == world.control_plane(at).digest().0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_region_says_is_the_same_everywhere() {
    let world = World::started(3).await;
    world.settled().await;
    for round in 0..4 {
        for at in 0..3 {
            let done = hint(world.control_plane(at), round * BLOCKS / 2).await.unwrap();
            // Unchanged if an earlier attempt was carried out and its answer lost.
            assert!(matches!(done, Outcome::Applied { .. } | Outcome::Unchanged), "{done:?}");
        }
    }
    agree(&world).await;
    let expected = (BLOCKS + 3 * BLOCKS / 2) as usize;
    let first = world.control_plane(0).published();
    for at in 0..3 {
        let node = world.control_plane(at);
        let state = node.published();
        assert_eq!(state.hot(), first.hot());
        for region in ["region-a", "region-b", "region-c"] {
            assert_eq!(blocks(&state, region), expected, "{region} at {at}");
        }
        let counts = node.hints();
        assert!(counts.entries >= 12 && counts.put_off == 0, "{counts:?}");
        assert!(counts.bytes > 12 * BLOCKS * 4 && counts.bytes_per_s > 0.0, "{counts:?}");
    }
    // A node cannot report for another region.
    let command = hot(world.control_plane(1), 0);
    let done = world.control_plane(0).propose(command, Actor::Node, None, LIMIT).await.unwrap();
    let Outcome::Refused(refusal) = done.outcome else { panic!("{done:?}") };
    assert_eq!(refusal.code, RefusalCode::NotOwner);
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_are_put_off_and_health_is_not() {
    let world = World::started(3).await;
    world.settled().await;
    let node = Arc::clone(world.control_plane(0));
    let mut tasks = JoinSet::new();
    // Many at a time, so that even a slow machine has too much to write.
    for task in 0..16_u64 {
        let flood = Arc::clone(&node);
        tasks.spawn(async move {
            for number in 0_u64.. {
                match hint(&flood, 1_000 * task + number % 1_000).await {
                    Ok(Outcome::Applied { .. } | Outcome::Unchanged) => {}
                    Err(ProposeError::Budget { retry_after }) => {
                        assert!(retry_after > Duration::ZERO);
                        tokio::task::yield_now().await;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    eventually("hints have used up their part", || node.hints().put_off > 100).await;
    // Half of the budget is kept for health, enough for everything that one region needs at once.
    for _ in 0..20 {
        let command = Command::ExpireLeases { region: "region-a".into() };
        let done = node.propose(command, Actor::Node, None, LIMIT).await;
        assert!(!matches!(done, Err(ProposeError::Budget { .. })), "{done:?}");
    }
    // Operators' orders are not counted.
    agreed(&node, Command::RotatePrefixKey { expect: Expect::Any }).await;
    tasks.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_late_is_warm_from_a_snapshot() {
    let mut world = World::started(3).await;
    world.settled().await;
    world.stop(2).await;
    for number in 0..150 {
        written(world.control_plane(0), number * BLOCKS).await;
    }
    eventually("both others have shortened their logs", || {
        (0..2).all(|at| world.control_plane(at).status().purged_index.is_some_and(|it| it > 60))
    })
    .await;
    world.start(2).await;
    world.settled().await;
    agree(&world).await;
    let late = world.control_plane(2);
    assert_eq!(blocks(&late.published(), "region-a"), 150 * BLOCKS as usize);
    assert_eq!(late.published().hot(), world.control_plane(0).published().hot());
    assert!(late.hints().entries < 150, "all of it was replayed: {:?}", late.hints());
    // The node goes on from there.
    written(late, 0).await;
    agree(&world).await;
    assert_eq!(blocks(&world.control_plane(0).published(), "region-c"), BLOCKS as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_is_taken_up_under_writes_and_leaves_nothing_of_the_old_one() {
    let world = World::started(3).await;
    world.settled().await;
    let mut writers = JoinSet::new();
    for at in 0..3 {
        let node = Arc::clone(world.control_plane(at));
        writers.spawn(async move {
            for number in 0_u64.. {
                match hint(&node, number).await {
                    Ok(Outcome::Applied { .. } | Outcome::Unchanged) => {}
                    // A hint that was hashed before the change and came after it.
                    Ok(Outcome::Refused(refusal)) if refusal.code == RefusalCode::StaleEpoch => {}
                    Err(ProposeError::Budget { retry_after }) => {
                        // wait: for room in the budget.
                        tokio::time::sleep(retry_after).await;
                    }
                    other => panic!("{other:?}"),
                }
                if node.published().key_epoch() == 3 {
                    break;
                }
            }
        });
    }
    for epoch in 1..=3 {
        let node = world.control_plane(epoch % 3);
        let before = node.published().applied();
        eventually("something was written", || node.published().applied() > before + 4).await;
        agreed(node, Command::RotatePrefixKey { expect: Expect::Any }).await;
    }
    writers.join_all().await;
    agree(&world).await;
    for at in 0..3 {
        let state = world.control_plane(at).published();
        assert_eq!(state.key_epoch(), 3);
        let hashes = state.hot().regions().flat_map(|(_, blocks)| blocks.entries());
        let epochs: BTreeSet<u64> = hashes.map(|block| block.hash >> 32).collect();
        assert!(epochs.is_subset(&[3].into()), "{epochs:?}");
        assert_eq!(state.hot(), world.control_plane(0).published().hot());
    }
    // After the change the index fills again.
    let node = world.control_plane(0);
    written(node, 7_000).await;
    eventually("it is published", || blocks(&node.published(), "region-a") > 0).await;
}
