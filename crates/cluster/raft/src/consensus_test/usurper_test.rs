//! Voters that claim to lead: with their certificate and key, and without an election.

use std::cell::Cell;
use std::time::{Duration, Instant};

use spillway_link::Link;

use super::liar_test::{Lie, lying};
use super::stranger_test::{candidacy, heartbeat, won};
use super::world::{LIMIT, Stopwatch, World, until};
use crate::wire::{Ballot, Call, Offer, Point, Purpose, SnapshotHead};
use crate::{Former, NodeId, Role};

const NEAR: Duration = Duration::from_millis(4);
/// Longer than three leases: the protection by the leader's messages would be over.
const ATTACK: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_millis(40);

/// Sends one round of claims to both other nodes, in the term after the one that they have.
async fn claim(world: &World, thief: &Link) {
    for to in [0, 1] {
        let term = world.log(to).status().term + 1;
        let path = (3, to);
        world.say(thief, path, (Purpose::Append, heartbeat(won(term, 3)))).await;
        // Neither won nor asked for.
        let half = Ballot { is_won: false, ..won(term, 3) };
        world.say(thief, path, (Purpose::Append, heartbeat(half))).await;
        let members = crate::raft::Members::new_with_defaults(vec![[NodeId(3)].into()], []);
        let last = Some(Point { term, index: 1_000_000 });
        let members = (&members).into();
        let head = SnapshotHead { last, members_at: None, members, bytes: 64, checksum: 0 };
        let offer = Offer { ballot: won(term, 3), head, transfer: term };
        world.say(thief, path, (Purpose::Snapshot, offer)).await;
        for is_transfer in [false, true] {
            let mut asked = candidacy(term, 3, is_transfer);
            world.say(thief, path, (Purpose::Call, Call::PreVote(asked))).await;
            world.say(thief, path, (Purpose::Call, Call::Vote(asked))).await;
            asked.ballot.is_won = true;
            world.say(thief, path, (Purpose::Call, Call::Vote(asked))).await;
        }
    }
}

/// Claims as long as that part of the attack lasts, and until so many orders were given meanwhile.
async fn orders_go_on(world: &World, thief: &Link, (from, to): (u32, u32), at_least: u64) {
    let given = Cell::new(0);
    let attack = async {
        let (begun, watch) = (Instant::now(), Stopwatch::start());
        while begun.elapsed() < ATTACK * (to - from) / 4 || given.get() < at_least {
            assert!(watch.elapsed() < 2 * ATTACK, "only {} orders", given.get());
            claim(world, thief).await;
            // wait: the pace of the attack.
            tokio::time::sleep(PERIOD).await;
        }
    };
    tokio::select! {
        () = attack => {}
        () = order(world, &given) => {}
    }
}

/// Gives one order after the other.
async fn order(world: &World, given: &Cell<u64>) {
    loop {
        world.set_somewhere(&[0, 1], 1, given.get()).await;
        given.set(given.get() + 1);
    }
}

/// The same leader in the same term, all the time, which can also end the attacker's membership.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_leads_by_no_claim_and_can_be_removed_while_it_claims() {
    let mut world = World::three(NEAR).await;
    let term = world.log(0).status().term;
    world.kill(2).await;
    let thief = world.thief(2).await;
    orders_go_on(&world, &thief, (0, 3), 10).await;
    for at in [0, 1] {
        let status = world.log(at).status();
        assert_eq!((status.term, status.leader), (term, Some(NodeId(1))), "node {at}");
    }
    let removal = async {
        let voters = [NodeId(1), NodeId(2)].into();
        world.log(0).change_voters(voters, Former::Learners, LIMIT).await.unwrap();
        world.log(0).remove_learners([NodeId(3)].into(), LIMIT).await.unwrap();
    };
    tokio::join!(orders_go_on(&world, &thief, (3, 4), 1), removal);
    let status = world.log(0).status();
    assert_eq!((status.term, status.role), (term, Role::Leader));
    assert!(!status.members.contains_key(&NodeId(3)));
}

/// The attacker also answers: each answer to the leader names a later term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_also_answers_with_later_terms_stops_no_orders() {
    let mut world = World::three(NEAR).await;
    let term = world.log(0).status().term;
    world.kill(2).await;
    let thief = world.thief(2).await;
    let _liar = lying(&thief, Lie::NextTerm(NodeId(3)));
    orders_go_on(&world, &thief, (0, 4), 10).await;
    for at in [0, 1] {
        let status = world.log(at).status();
        assert_ne!(status.leader, Some(NodeId(3)), "node {at}");
        // One handover, because a voter that answers with a later term may be stuck in it.
        assert!(status.term <= term + 2, "{} after {term}", status.term);
    }
}

/// With four of five voters honest, a majority elects whatever the fifth answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_voter_that_answers_with_later_terms_stops_no_election() {
    let mut world = World::new(5, NEAR);
    world.start_all().await;
    world.form().await;
    world.lead(0).await;
    let term = world.log(0).status().term;
    world.kill(4).await;
    let thief = world.thief(4).await;
    let _liar = lying(&thief, Lie::NextTerm(NodeId(5)));
    world.kill(0).await;
    world.set_somewhere(&[1, 2, 3], 1, 1).await;
    let leader = world.find_leader().unwrap();
    assert!(world.log(leader).status().term <= term + 8, "terms run away");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_did_not_vote_asks_the_others_who_was_elected() {
    let world = World::three(NEAR).await;
    let term = world.log(0).status().term;
    let context = &world.log(2).context;
    // The answer of a node that is busy may come late, and the question is asked again.
    let begun = Instant::now();
    while !context.is_elected(won(term, 1)).await {
        assert!(begun.elapsed() < LIMIT, "never proven");
        // wait: the least time between two questions.
        tokio::time::sleep(world.timing.heartbeat).await;
    }
    assert!(!context.is_elected(won(term, 1)).await, "asked at once again");
    // wait: as above.
    tokio::time::sleep(world.timing.heartbeat).await;
    assert!(!context.is_elected(won(term + 1, 1)).await, "a later term");
    assert!(!context.is_elected(won(term, 2)).await, "another node");
}

/// A member without a vote takes no part in elections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_vote_follows_the_next_leader() {
    let mut world = super::stranger_test::with_fourth(true).await;
    world.start(3).await;
    until("it follows", || world.log(3).status().leader == Some(NodeId(1))).await;
    world.kill(0).await;
    let leader = world.leader().await;
    until("it follows the next one", || {
        world.log(3).status().leader == Some(world.nodes[leader].id)
    })
    .await;
}
