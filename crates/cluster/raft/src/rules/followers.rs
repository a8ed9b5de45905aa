//! Knowledge of a leader about the others in its term. Pure: time is an argument, counted from any
//! fixed moment.
//!
//! Only answers of other nodes count here, by the time at which they were asked: knowledge that
//! needed no question shows nothing of who leads now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spillway_types::NodeId;

use crate::wire::{Ballot, Point};

/// Share of a promise that the leader does not count: clocks may run so differently.
const DRIFT_SHARE: f64 = 0.1;

/// Knowledge of a leader or a candidate about the other nodes in its term.
#[derive(Clone, Debug, Default)]
pub(crate) struct Followers {
    term: u64,
    /// True if the lead is being handed over: from then on no promise holds.
    is_given_up: bool,
    nodes: BTreeMap<NodeId, Follower>,
}

#[derive(Clone, Debug, Default)]
struct Follower {
    /// The last entry that it had on disk when it followed already.
    held: Option<Point>,
    /// Time at which the request was sent that the follower has answered last.
    asked: Option<Duration>,
    /// Time until which the follower votes for no other node.
    promised: Option<Duration>,
}

impl Followers {
    /// A follower had `last` as the last entry on disk when it gave this node its vote, or followed
    /// it. If this node's log has that entry too, no later leader can take it from the follower
    /// without this one's term being over.
    pub(crate) fn holds(&mut self, ballot: Ballot, id: NodeId, last: Point) {
        if let Some(follower) = self.follower(ballot, id) {
            follower.held = follower.held.max(Some(last));
        }
    }

    /// Notes that a follower lacks entries that it had: its earlier reports about its log count no
    /// more.
    pub(crate) fn lost(&mut self, ballot: Ballot, id: NodeId) {
        if let Some(follower) = self.follower(ballot, id) {
            follower.held = None;
        }
    }

    /// Notes that a follower has answered in this term the message sent at `sent`, with a promise
    /// of this length.
    pub(crate) fn answered(
        &mut self,
        ballot: Ballot,
        id: NodeId,
        sent: Duration,
        promise: Duration,
    ) {
        if let Some(follower) = self.follower(ballot, id) {
            follower.asked = follower.asked.max(Some(sent));
            let counted = promise.mul_f64(1.0 - DRIFT_SHARE);
            // From the sending on: the follower counts from when it came, which is later.
            follower.promised = follower.promised.max(Some(sent + counted));
        }
    }

    /// Gives up the lease before a handover: the next leader needs no waiting.
    pub(crate) fn give_up(&mut self, ballot: Ballot) {
        if self.enter(ballot) {
            self.is_given_up = true;
        }
    }

    /// The last entry that a follower had on disk in this term, as far as known.
    pub(crate) fn held(&self, ballot: Ballot, id: NodeId) -> Option<Point> {
        self.in_term(ballot)?.get(&id)?.held
    }

    /// Returns the latest time for which a majority of each set has answered messages sent then or
    /// later. `Duration::MAX` if no other node is needed; `None` if too few have answered.
    pub(crate) fn confirmed(
        &self,
        ballot: Ballot,
        me: NodeId,
        sets: &[BTreeSet<NodeId>],
    ) -> Option<Duration> {
        let nodes = self.in_term(ballot);
        majority(me, sets, |id| nodes?.get(id)?.asked)
    }

    /// Returns the time until which no majority can elect another leader, besides by the leader's
    /// own wish; `None` for not at all. A leader without a vote has no lease.
    pub(crate) fn lease_until(
        &self,
        ballot: Ballot,
        me: NodeId,
        sets: &[BTreeSet<NodeId>],
    ) -> Option<Duration> {
        let nodes = self.in_term(ballot);
        // The lease that was given up is that of the term on record, not that of another term.
        if self.is_given_up && nodes.is_some() || !sets.iter().all(|set| set.contains(&me)) {
            return None;
        }
        majority(me, sets, |id| nodes?.get(id)?.promised)
    }

    fn follower(&mut self, ballot: Ballot, id: NodeId) -> Option<&mut Follower> {
        self.enter(ballot).then(|| self.nodes.entry(id).or_default())
    }

    /// Forgets earlier terms; `false` if this one is earlier itself.
    fn enter(&mut self, ballot: Ballot) -> bool {
        if ballot.term > self.term {
            *self = Self { term: ballot.term, ..Self::default() };
        }
        ballot.term == self.term
    }

    fn in_term(&self, ballot: Ballot) -> Option<&BTreeMap<NodeId, Follower>> {
        (self.term == ballot.term).then_some(&self.nodes)
    }
}

/// Returns the greatest value that a majority of each set has at least; this node's own value has
/// no limit. `None` if too few values are known.
fn majority(
    me: NodeId,
    sets: &[BTreeSet<NodeId>],
    of: impl Fn(&NodeId) -> Option<Duration>,
) -> Option<Duration> {
    let least = |set: &BTreeSet<NodeId>| {
        let mut all: Vec<Option<Duration>> =
            set.iter().map(|id| if *id == me { Some(Duration::MAX) } else { of(id) }).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        // The greatest are first, so a majority has this value or a greater one.
        all.get(set.len() / 2).copied().flatten()
    };
    // No set has no majority.
    sets.iter().map(least).min().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn ballot(term: u64) -> Ballot {
        Ballot { term, node: ME, is_won: true }
    }

    fn set(ids: impl IntoIterator<Item = u64>) -> BTreeSet<NodeId> {
        ids.into_iter().map(NodeId).collect()
    }

    fn followers(answers: &[(u64, u64, u64)]) -> Followers {
        let mut followers = Followers::default();
        for (id, sent, promise) in answers {
            followers.answered(ballot(5), NodeId(*id), ms(*sent), ms(*promise));
        }
        followers
    }

    #[test]
    fn a_majority_counts_from_the_sending_of_what_it_has_answered() {
        for (answers, expected) in [
            (&[][..], None),
            (&[(2, 100, 0)], Some(ms(100))),
            (&[(2, 100, 0), (3, 300, 0)], Some(ms(300))),
            // Answers that come late do not turn back.
            (&[(2, 400, 0), (2, 100, 0)], Some(ms(400))),
            (&[(9, 400, 0)], None),
        ] {
            let followers = followers(answers);
            assert_eq!(followers.confirmed(ballot(5), ME, &[set(1..=3)]), expected, "{answers:?}");
        }
        let four = followers(&[(2, 100, 0), (3, 300, 0), (4, 200, 0)]);
        assert_eq!(four.confirmed(ballot(5), ME, &[set(1..=5)]), Some(ms(200)));
        assert_eq!(four.confirmed(ballot(5), ME, &[set(1..=4)]), Some(ms(200)));
        assert_eq!(four.confirmed(ballot(5), ME, &[set(2..=4)]), Some(ms(200)));
        assert_eq!(four.confirmed(ballot(5), ME, &[set([2, 4])]), Some(ms(100)));
    }

    #[test]
    fn while_voters_change_both_majorities_count() {
        let followers = followers(&[(2, 100, 100), (3, 300, 100)]);
        let sets = [set(1..=3), set([1, 2, 4])];
        assert_eq!(followers.confirmed(ballot(5), ME, &sets), Some(ms(100)));
        assert_eq!(followers.lease_until(ballot(5), ME, &sets), Some(ms(190)));
        let sets = [set(1..=3), set([1, 4, 5])];
        assert_eq!(followers.confirmed(ballot(5), ME, &sets), None);
        assert_eq!(followers.lease_until(ballot(5), ME, &sets), None);
    }

    #[test]
    fn the_lease_is_what_a_majority_has_promised_less_what_clocks_may_differ() {
        let sets = [set(1..=3)];
        let until = |answers: &[_]| followers(answers).lease_until(ballot(5), ME, &sets);
        assert_eq!(until(&[(2, 100, 1_000)]), Some(ms(1_000)));
        // The longer one counts: with this node it is a majority.
        assert_eq!(until(&[(2, 100, 300), (3, 50, 1_000)]), Some(ms(950)));
        // A later answer may promise less, but takes nothing back.
        assert_eq!(until(&[(2, 100, 1_000), (2, 200, 100)]), Some(ms(1_000)));
        // Of five, two others have to promise.
        let five = followers(&[(2, 100, 300), (3, 50, 1_000)]);
        assert_eq!(five.lease_until(ballot(5), ME, &[set(1..=5)]), Some(ms(370)));
        // No promise is no lease beyond the sending.
        assert_eq!(until(&[(2, 100, 0), (3, 100, 0)]), Some(ms(100)));
    }

    #[test]
    fn a_leader_alone_needs_nobody_and_one_without_a_vote_has_no_lease() {
        let nobody = Followers::default();
        assert_eq!(nobody.confirmed(ballot(5), ME, &[set([1])]), Some(Duration::MAX));
        assert_eq!(nobody.lease_until(ballot(5), ME, &[set([1])]), Some(Duration::MAX));
        assert_eq!(nobody.confirmed(ballot(5), ME, &[]), None);
        let followers = followers(&[(2, 100, 1_000), (3, 100, 1_000)]);
        assert_eq!(followers.lease_until(ballot(5), ME, &[set([2, 3])]), None);
        assert_eq!(followers.lease_until(ballot(5), ME, &[set(1..=3), set([2, 3])]), None);
    }

    #[test]
    fn a_leader_that_hands_over_has_no_lease_in_that_term() {
        let sets = [set(1..=3)];
        let mut followers = followers(&[(2, 100, 1_000)]);
        followers.give_up(ballot(5));
        followers.answered(ballot(5), NodeId(2), ms(500), ms(1_000));
        assert_eq!(followers.lease_until(ballot(5), ME, &sets), None);
        assert_eq!(followers.confirmed(ballot(5), ME, &sets), Some(ms(500)));
        followers.answered(ballot(6), NodeId(2), ms(900), ms(1_000));
        assert_eq!(followers.lease_until(ballot(6), ME, &sets), Some(ms(1_800)));
    }

    #[test]
    fn what_was_said_in_another_term_does_not_count() {
        let sets = [set(1..=3)];
        let mut followers = followers(&[(2, 100, 1_000)]);
        followers.holds(ballot(5), NodeId(2), Point { term: 4, index: 9 });
        assert_eq!(followers.held(ballot(5), NodeId(2)), Some(Point { term: 4, index: 9 }));
        for other in [4, 6] {
            assert_eq!(followers.confirmed(ballot(other), ME, &sets), None);
            assert_eq!(followers.lease_until(ballot(other), ME, &sets), None);
            assert_eq!(followers.held(ballot(other), NodeId(2)), None);
        }
        followers.answered(ballot(4), NodeId(3), ms(900), ms(1_000));
        assert_eq!(followers.confirmed(ballot(5), ME, &sets), Some(ms(100)));
        followers.answered(ballot(6), NodeId(3), ms(900), ms(1_000));
        assert_eq!(followers.held(ballot(5), NodeId(2)), None);
        assert_eq!(followers.confirmed(ballot(6), ME, &sets), Some(ms(900)));
    }

    #[test]
    fn of_what_a_follower_holds_the_last_counts() {
        let mut followers = Followers::default();
        for index in [3, 9, 5] {
            followers.holds(ballot(5), NodeId(2), Point { term: 4, index });
        }
        assert_eq!(followers.held(ballot(5), NodeId(2)), Some(Point { term: 4, index: 9 }));
        assert_eq!(followers.held(ballot(5), NodeId(3)), None);
    }
}
