//! Members that answer with lies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use spillway_link::{Identity, Link, Served, StreamHandler, StreamReceiver, StreamSender};

use super::stranger_test::{goes_on, with_fourth};
use super::world::{World, until};
use crate::NodeId;
use crate::wire::{Answer, Append, Ballot, Call, Opening, Point, Purpose, Took, Verdict};

const NEAR: Duration = Duration::from_millis(4);

/// Answers that a lying node gives, and how often it was asked.
pub(super) struct Liar {
    lie: Lie,
    asked: AtomicUsize,
}

#[derive(Clone, Copy)]
pub(super) enum Lie {
    /// There is a leader of a term from which hardly one is left.
    FarTerm,
    /// It leads itself, in a term soon after the one that it is asked in.
    NextTerm(NodeId),
    /// It has entries that no node has written.
    LongLog,
    /// It has lost what it had.
    NoLog,
}

const FAR: Ballot = Ballot { term: u64::MAX - 1, node: NodeId(4), is_won: true };

fn next(term: u64, node: NodeId) -> Ballot {
    Ballot { term: term + 3, node, is_won: true }
}

impl Lie {
    fn vote(self, call: &Call) -> Ballot {
        match (self, call) {
            (Self::NextTerm(node), Call::Vote(asked) | Call::PreVote(asked)) => {
                next(asked.ballot.term, node)
            }
            _ => FAR,
        }
    }

    fn answer(self, append: &Append) -> Answer {
        let term = append.ballot.term;
        let verdict = match self {
            Self::NextTerm(node) => Verdict::HigherVote(next(term, node)),
            Self::FarTerm => Verdict::HigherVote(FAR),
            Self::LongLog => Verdict::Appended(Some(Point { term, index: 1_000_000 })),
            Self::NoLog => Verdict::Conflict(Point { term, index: 0 }),
        };
        Answer::Took(Took { verdict, promise_ms: 0, held: None, round_trips: Vec::new() })
    }
}

impl StreamHandler for Liar {
    fn control(&self, _from: Identity, streams: (StreamSender, StreamReceiver)) -> Served {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let lie = self.lie;
        Box::pin(async move {
            let (mut sender, mut receiver) = streams;
            let Ok(Some(opening)) = receiver.message::<Opening>().await else { return };
            if opening.purpose == Purpose::Append {
                while let Ok(Some(append)) = receiver.message::<Append>().await {
                    drop(sender.message(&lie.answer(&append)).await);
                }
            } else {
                let Ok(Some(call)) = receiver.message::<Call>().await else { return };
                let ballot = lie.vote(&call);
                let vote = Answer::Vote { ballot, is_granted: false, last: None };
                drop(sender.message(&vote).await);
            }
            sender.finish();
        })
    }

    fn bulk(&self, _from: Identity, _receiver: StreamReceiver) -> Served {
        Box::pin(async {})
    }
}

/// A link that answers with lies.
pub(super) fn lying(link: &Link, lie: Lie) -> Arc<Liar> {
    let liar = Arc::new(Liar { lie, asked: AtomicUsize::new(0) });
    link.serve_streams(Some(liar.clone()));
    liar
}

async fn is_asked(liar: &Liar) {
    let before = liar.asked.load(Ordering::SeqCst);
    until("it is asked", || liar.asked.load(Ordering::SeqCst) > before + 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_term_in_an_answer_deposes_no_leader() {
    let mut world = with_fourth(true).await;
    let term = world.log(0).status().term;
    let thief = world.thief(3).await;
    let liar = lying(&thief, Lie::FarTerm);
    is_asked(&liar).await;
    goes_on(&world, term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_term_in_an_answer_uses_up_no_terms_in_elections() {
    let mut world = World::three(NEAR).await;
    world.kill(2).await;
    let thief = world.thief(2).await;
    let liar = lying(&thief, Lie::FarTerm);
    world.kill(0).await;
    is_asked(&liar).await;
    let term = world.log(1).status().term;
    assert!(term < 1_000, "{term}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_claims_entries_that_nobody_has_stops_no_leader() {
    let mut world = with_fourth(true).await;
    let term = world.log(0).status().term;
    let thief = world.thief(3).await;
    let liar = lying(&thief, Lie::LongLog);
    is_asked(&liar).await;
    goes_on(&world, term).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_claims_to_have_lost_entries_stops_no_leader() {
    let mut world = with_fourth(true).await;
    let term = world.log(0).status().term;
    let thief = world.thief(3).await;
    let liar = lying(&thief, Lie::NoLog);
    is_asked(&liar).await;
    goes_on(&world, term).await;
}
