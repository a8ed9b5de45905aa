//! Rights of a node that has a certificate of the cluster, but no membership or no vote.

use std::time::Duration;

use bytes::Bytes;
use spillway_link::Identity;

use super::register::Change;
use super::world::{LIMIT, World, until};
use crate::rules::standing::BallotClaim;
use crate::wire::{
    Answer, Append, Ballot, Call, CallError, Candidacy, News, Offer, Parcel, Point, Purpose,
    SnapshotHead,
};
use crate::{NodeId, Role, Urgency, WireVersion};

const NEAR: Duration = Duration::from_millis(4);

/// Creates three voters and a fourth certificate, which belongs to a learner or to no member.
pub(super) async fn with_fourth(is_member: bool) -> World {
    let mut world = World::new(4, NEAR);
    for at in 0..3 {
        world.start(at).await;
    }
    let seeds = world.seeds()[..3].to_vec();
    let forming = (0..3).map(|at| world.log(at).form(&seeds));
    for formed in futures_util::future::join_all(forming).await {
        formed.unwrap();
    }
    world.lead(0).await;
    if is_member {
        world.start(3).await;
        let member = world.nodes[3].member();
        world.log(0).add_learner(NodeId(4), member, LIMIT).await.unwrap();
        until("all know it", || {
            (0..3).all(|at| world.log(at).status().members.contains_key(&NodeId(4)))
        })
        .await;
        world.kill(3).await;
    }
    world
}

pub(super) fn won(term: u64, node: u64) -> Ballot {
    Ballot { term, node: NodeId(node), is_won: true }
}

pub(super) fn heartbeat(ballot: Ballot) -> Append {
    let (version, entries, news) = (WireVersion::NEWEST, Vec::new(), News::default());
    Append { version, ballot, previous: None, committed: None, entries, news }
}

pub(super) fn candidacy(term: u64, node: u64, is_transfer: bool) -> Candidacy {
    let ballot = Ballot { term, node: NodeId(node), is_won: false };
    Candidacy { ballot, last: Some(Point { term, index: 1_000_000 }), is_transfer }
}

/// The leader leads as before, in the same term, and commits.
pub(super) async fn goes_on(world: &World, term: u64) {
    for at in 0..3 {
        let status = world.log(at).status();
        assert_eq!((status.term, status.leader), (term, Some(NodeId(1))), "node {at}");
    }
    world.set(0, 1, 1).await.unwrap();
    assert_eq!(world.log(0).status().role, Role::Leader);
}

/// Sends all requests that the fourth certificate can make to all nodes, under each node number
/// that it may choose.
async fn attack(world: &mut World) {
    let term = world.log(0).status().term;
    let thief = world.thief(3).await;
    let is_refused = |answer: &Option<Answer>| {
        matches!(answer, None | Some(Answer::Refused(CallError::NotYou | CallError::NotNow)))
    };
    for (to, from) in [0, 1, 2].into_iter().flat_map(|to| [4, 1, 2, 9_999].map(|from| (to, from))) {
        let path = (from, to);
        for node in [from, 4, 9_999] {
            for ahead in [1, 5_000, u64::MAX - term] {
                let ballot = won(term + ahead, node);
                let answer = world.say(&thief, path, (Purpose::Append, heartbeat(ballot))).await;
                assert!(is_refused(&answer), "append as {node} by {from}: {answer:?}");
                for is_transfer in [false, true] {
                    let candidacy = candidacy(term + ahead, node, is_transfer);
                    for call in [Call::Vote(candidacy), Call::PreVote(candidacy)] {
                        let answer = world.say(&thief, path, (Purpose::Call, call)).await;
                        assert!(is_refused(&answer), "vote for {node} by {from}: {answer:?}");
                    }
                }
            }
            let head = SnapshotHead {
                last: Some(Point { term: term + 1, index: 1_000_000 }),
                members_at: None,
                members: (&openraft_members()).into(),
                bytes: 64,
                checksum: 0,
            };
            let offer = Offer { ballot: won(term + 1, node), head, transfer: 1 };
            let answer = world.say(&thief, path, (Purpose::Snapshot, offer)).await;
            assert!(is_refused(&answer), "snapshot of {node} by {from}: {answer:?}");
        }
        let from_leader = Call::Transfer { from: won(term, 1), to: NodeId(2), last: None };
        let answer = world.say(&thief, path, (Purpose::Call, from_leader)).await;
        assert!(is_refused(&answer), "transfer by {from}: {answer:?}");
    }
    goes_on(world, term).await;
}

fn openraft_members() -> crate::raft::Members {
    crate::raft::Members::new_with_defaults(vec![[NodeId(4)].into()], [NodeId(4)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_without_membership_moves_nothing() {
    let mut world = with_fourth(false).await;
    attack(&mut world).await;
    let (_, thief) = (world.log(0).status(), world.thief(3).await);
    for call in [
        Call::Propose { command: Bytes::from_static(b"x"), limit_ms: 1_000 },
        Call::ReadIndex,
        Call::Speaks(2),
    ] {
        for from in [1, 4, 9_999] {
            let answer = world.say(&thief, (from, 0), (Purpose::Call, call.clone())).await;
            assert_eq!(answer, Some(Answer::Refused(CallError::NotYou)), "{call:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_vote_neither_leads_nor_stands_for_election() {
    let mut world = with_fourth(true).await;
    attack(&mut world).await;
}

/// A voter may start an election, within the rules: it skips no terms, does not speak for the
/// leader, and gets no votes while other voters have promised the leader not to elect another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_skips_no_lease_and_no_terms() {
    let mut world = World::three(NEAR).await;
    let term = world.log(0).status().term;
    world.kill(2).await;
    let thief = world.thief(2).await;
    for to in [0, 1] {
        for ahead in [1, crate::rules::standing::TERMS_AHEAD_MAX + 1, u64::MAX - term] {
            for node in [3, 2, 9_999] {
                let call = Call::Vote(candidacy(term + ahead, node, true));
                let answer = world.say(&thief, (3, to), (Purpose::Call, call)).await;
                let is_granted = matches!(answer, Some(Answer::Vote { is_granted: true, .. }));
                assert!(!is_granted, "{node}: {answer:?}");
            }
        }
        let far = heartbeat(won(u64::MAX, 3));
        assert_eq!(world.say(&thief, (3, to), (Purpose::Append, far)).await, None);
        let hand_over = Call::Transfer { from: won(term, 1), to: NodeId(3), last: None };
        let answer = world.say(&thief, (3, to), (Purpose::Call, hand_over)).await;
        assert_eq!(answer, Some(Answer::Refused(CallError::NotNow)));
    }
    for at in 0..2 {
        let status = world.log(at).status();
        assert_eq!((status.term, status.leader), (term, Some(NodeId(1))), "node {at}");
    }
    world.set(0, 1, 1).await.unwrap();
}

/// Only a leader that has lost its majority learns of a later term from an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_a_majority_is_deposed_by_no_answer() {
    let world = with_fourth(true).await;
    let term = world.log(0).status().term;
    let (leader, follower) = (&world.log(0).context, &world.log(1).context);
    for (id, later) in [(2, term + 1), (4, term + 1), (2, u64::MAX), (9_999, term + 1)] {
        until("it has a majority", || !leader.believes(NodeId(id), won(later, id))).await;
    }
    assert!(follower.believes(NodeId(3), won(term + 1, 3)));
    assert!(!follower.believes(NodeId(3), won(u64::MAX, 3)), "too far ahead");
    assert!(!follower.believes(NodeId(4), won(term + 1, 4)), "no vote");
    assert!(!follower.believes(NodeId(9_999), won(term + 1, 9_999)), "no member");
}

/// A member may have lost an election. It then follows no leader of an earlier term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_refuses_its_leader_has_it_hand_over_once_in_a_while() {
    let world = World::three(NEAR).await;
    let context = &world.log(0).context;
    let term = world.log(0).status().term;
    until("it has a majority", || !context.believes(NodeId(2), won(term + 1, 2))).await;
    until("the third node leads", || world.log(2).status().role == Role::Leader).await;
    world.lead(0).await;
    let term = world.log(0).status().term;
    until("it has a majority", || !context.believes(NodeId(2), won(term + 1, 2))).await;
    until("it is looked at", || context.take_dispute().is_none()).await;
    world.set(0, 1, 1).await.unwrap();
    assert_eq!(world.log(0).status().term, term);
}

/// A leader receives from no other leader, so silence means nothing to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_with_a_majority_listens_to_no_member_without_a_vote() {
    let world = with_fourth(true).await;
    let from = Identity::new("test", "r", "n4").unwrap();
    let later = won(world.log(0).status().term + 1, 4);
    let silence = Some(Duration::from_secs(3_600));
    let admits = |at: usize| {
        let seen = world.log(at).context.situation(NodeId(4), &from, later, silence).unwrap();
        seen.admits(BallotClaim::Leader, later)
    };
    assert!(!admits(0) && admits(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_node_that_a_leader_named_a_moment_ago_is_wanted() {
    let world = World::three(NEAR).await;
    let context = &world.log(1).context;
    let term = world.log(1).status().term;
    context.want(won(term, 1), NodeId(3));
    assert!(!context.is_wanted(&candidacy(term + 1, 2, true)).await, "another one");
    assert!(!context.is_wanted(&candidacy(term, 3, true)).await, "the same term");
    context.want(won(term, 1), NodeId(3));
    assert!(context.is_wanted(&candidacy(term + 1, 3, true)).await);
    // wait: the leader's announcement expires by the clock.
    tokio::time::sleep(2 * world.timing.lease()).await;
    assert!(!context.is_wanted(&candidacy(term + 1, 3, true)).await, "long ago");
}

/// The state machine knows of a removal before the members of the log change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_voter_has_no_say_while_it_still_is_a_member() {
    let mut world = World::three(NEAR).await;
    let term = world.log(0).status().term;
    world.kill(2).await;
    let removal = Change::Remove("n3".to_owned());
    world.log(0).propose(&removal, Urgency::Operator, LIMIT).await.unwrap();
    world.agree().await;
    let thief = world.thief(2).await;
    for to in [0, 1] {
        for call in [
            Call::Propose { command: Bytes::from_static(b"x"), limit_ms: 1_000 },
            Call::ReadIndex,
            Call::Speaks(2),
        ] {
            let answer = world.say(&thief, (3, to), (Purpose::Call, call.clone())).await;
            assert_eq!(answer, Some(Answer::Refused(CallError::NotYou)), "{call:?}");
        }
        // Nor does it lead, which nothing but its removal keeps a voter from.
        let later = won(term + 1, 3);
        assert_eq!(world.say(&thief, (3, to), (Purpose::Append, heartbeat(later))).await, None);
    }
    let status = world.log(0).status();
    assert_eq!((status.term, status.leader), (term, Some(NodeId(1))));
}

/// Bytes that were not offered so are not waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_as_long_as_it_was_offered() {
    let mut world = World::three(NEAR).await;
    let term = world.log(1).status().term;
    // Its followers believe it at once.
    world.kill(0).await;
    let thief = world.thief(0).await;
    let name = "n2".into();
    let (mut sender, mut receiver) = thief.open_control(&name).unwrap();
    sender.message(&world.opening(1, 1, Purpose::Snapshot)).await.unwrap();
    let head = SnapshotHead {
        last: Some(Point { term, index: 1_000_000 }),
        members_at: None,
        members: (&openraft_members()).into(),
        bytes: 64,
        checksum: 0,
    };
    sender.message(&Offer { ballot: won(term, 1), head, transfer: 7 }).await.unwrap();
    assert_eq!(receiver.message().await.unwrap(), Some(Answer::Ready));
    let mut bulk = thief.open_bulk(&name).unwrap();
    bulk.message(&Parcel { transfer: 7, bytes: u64::MAX }).await.unwrap();
    let answer = tokio::time::timeout(LIMIT, receiver.message::<Answer>()).await;
    assert_eq!(answer.unwrap().unwrap(), Some(Answer::Refused(CallError::Damaged)));
}

/// A node that lags behind may know a leader only as a member without a vote. It follows that
/// leader after a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_a_change_of_voters_follows_the_new_leader() {
    let mut world = World::three(NEAR).await;
    world.add();
    world.start(3).await;
    let member = world.nodes[3].member();
    world.log(0).add_learner(NodeId(4), member, LIMIT).await.unwrap();
    until("all know the new member", || {
        (0..3).all(|at| world.log(at).status().members.contains_key(&NodeId(4)))
    })
    .await;
    world.isolate(2, true);
    let voters = [NodeId(1), NodeId(2), NodeId(4)].into();
    world.log(0).change_voters(voters, crate::Former::Learners, LIMIT).await.unwrap();
    world.log(0).transfer_leader(NodeId(4), LIMIT).await.unwrap();
    world.set_somewhere(&[3], 7, 7).await;
    world.isolate(2, false);
    until("it has been silent for long", || {
        world.log(2).status().age.is_none_or(|age| age > Duration::from_secs(5))
            || world.get_stale(2, 7) == Some(7)
    })
    .await;
    until("it has what it missed", || world.get_stale(2, 7) == Some(7)).await;
}
