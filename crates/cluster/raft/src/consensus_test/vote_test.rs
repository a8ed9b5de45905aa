//! Votes, asked for one by one.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use spillway_link::Link;

use super::world::{LIMIT, Stopwatch, World, until};
use crate::NodeId;
use crate::wire::DiskCount;
use crate::wire::{Answer, Ballot, Call, CallError, Candidacy, Point, Purpose, Report};

const NEAR: Duration = Duration::from_millis(4);

/// Asks node 3, as a candidate whose log is longer than any.
async fn ask(world: &Asked, term: u64, candidate: u64, is_question: bool) -> Answer {
    let candidacy = Candidacy {
        ballot: Ballot { term, node: NodeId(candidate), is_won: false },
        last: Some(Point { term, index: 1_000 }),
        is_transfer: false,
    };
    let call = if is_question { Call::PreVote(candidacy) } else { Call::Vote(candidacy) };
    if candidate == 1 {
        return world.say(&world.thief, (1, 2), (Purpose::Call, call)).await.unwrap();
    }
    let member = world.nodes[2].member();
    world.log(1).context.call((NodeId(3), &member), &call, LIMIT).await.unwrap()
}

/// Nodes 2 and 3 without a leader, and a link that speaks for node 1.
struct Asked {
    world: World,
    thief: Arc<Link>,
}

impl Deref for Asked {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Asked {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

fn is_granted(answer: &Answer) -> bool {
    match answer {
        Answer::Vote { is_granted, .. } => *is_granted,
        other => panic!("{other:?}"),
    }
}

async fn leaderless() -> Asked {
    let mut world = World::three(NEAR).await;
    world.kill(0).await;
    world.kill(2).await;
    world.kill(1).await;
    world.start(1).await;
    world.start(2).await;
    until("they are connected", || {
        world.nodes[1].up().link.peers().iter().all(|peer| peer.is_connected())
    })
    .await;
    let thief = world.thief(0).await;
    // A node that has started votes for no candidate that has not reported what it knows of the
    // node's disk.
    let count = DiskCount { process: 1, began: 1_000, serial: 1_000, cleared: 0 };
    let report = Report { count, digests: Vec::new(), ahead: None, is_double: false };
    let said = world.say(&thief, (1, 2), (Purpose::Call, Call::Compare(report))).await;
    assert!(matches!(said, Some(Answer::Compared(_))), "{said:?}");
    Asked { world, thief }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_gives_no_vote_within_a_lease_then_one_a_term_and_keeps_it() {
    let mut world = leaderless().await;
    assert_eq!(ask(&world, 50, 2, true).await, Answer::Refused(CallError::NotNow));
    assert_eq!(ask(&world, 50, 2, false).await, Answer::Refused(CallError::NotNow));
    let begun = Stopwatch::start();
    while let Answer::Refused(refusal) = ask(&world, 50, 2, true).await {
        assert_eq!(refusal, CallError::NotNow);
        assert!(begun.elapsed() < 2 * world.timing.lease());
    }
    // A question changes nothing, whatever is asked.
    let term = world.log(2).status().term;
    assert!(is_granted(&ask(&world, 70, 2, true).await));
    until("it has answered", || world.log(2).status().term < 50).await;
    assert!(term < 50 && is_granted(&ask(&world, 60, 1, true).await));
    // A vote does, and is given once a term.
    assert!(is_granted(&ask(&world, 80, 1, false).await));
    until("it is on its disk", || world.log(2).status().term == 80).await;
    let asked = Ballot { term: 80, node: NodeId(1), is_won: false };
    assert!(!world.log(2).context.follows_now(NodeId(1), asked), "a candidate leads nobody");
    assert!(!is_granted(&ask(&world, 80, 2, false).await));
    assert!(is_granted(&ask(&world, 80, 1, false).await));
    // It is still given after a restart, to the same one.
    world.kill(2).await;
    world.start(2).await;
    until("they are connected", || {
        [1, 2]
            .iter()
            .all(|at| world.nodes[*at].up().link.peers().iter().all(|peer| peer.is_connected()))
    })
    .await;
    while let Answer::Refused(_) = ask(&world, 80, 2, false).await {}
    let again = ask(&world, 80, 2, false).await;
    let Answer::Vote { is_granted: false, ballot, .. } = again else { panic!("{again:?}") };
    assert!(ballot.term > 80 || ballot.node == NodeId(1), "{ballot:?}");
}
