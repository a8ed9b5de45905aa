//! Proof that a leader was elected. A certificate of a voter is not one: with it a node could take
//! the lead in any term, and nothing could be ordered against it.
//!
//! A node believes what it has done itself: it gave its vote, it follows already, or its leader
//! hands over. For any other claim it asks the other voters, as only a majority makes a leader.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use spillway_types::NodeId;

use super::context::Context;
use crate::wire::{Answer, Ballot, Call};

impl Context {
    /// Returns the ballot that this node follows or gave its vote.
    pub(crate) fn backed(&self) -> Option<Ballot> {
        let latest = self.guard.vote()?;
        // An answer in an election carries the votes of others, which may be lies. Only a claim that
        // was believed makes a ballot a won one here.
        if latest.is_won { Some(latest) } else { self.guard.elections.granted() }
    }

    /// Returns true if this node itself knows that `ballot` was elected.
    pub(crate) fn backs(&self, ballot: Ballot) -> bool {
        let is_it = |own: Ballot| (own.term, own.node) == (ballot.term, ballot.node);
        self.backed().is_some_and(is_it)
            || self.guard.elections.granted().is_some_and(is_it)
            || self.guard.is_handed_over(ballot, 2 * self.timing().lease())
    }

    /// Returns true if a majority of the voters follows `ballot` or gave it its vote. Asks them, for
    /// a heartbeat at most and once a heartbeat for each sender.
    pub(crate) async fn is_elected(&self, ballot: Ballot) -> bool {
        let limit = self.timing().heartbeat;
        let Some((sets, voters)) = self.guard.voters() else { return false };
        if !self.guard.elections.may_ask(ballot.node, limit) {
            return false;
        }
        let others = voters.iter().filter(|(id, _)| *id != self.node && *id != ballot.node);
        let asking = others.map(async |(id, member)| {
            let answer = self.call((*id, member), &Call::Backs, limit).await;
            let Ok(Answer::Backs(Some(backed))) = answer else { return None };
            ((backed.term, backed.node) == (ballot.term, ballot.node)).then_some(*id)
        });
        let mut backers: BTreeSet<NodeId> = join_all(asking).await.into_iter().flatten().collect();
        // A candidate votes for itself.
        backers.insert(ballot.node);
        !sets.is_empty()
            && sets.iter().all(|set| 2 * set.intersection(&backers).count() > set.len())
    }

    /// Returns the member that refuses this leader with a later ballot, once in a while. Such a
    /// member follows no leader of an earlier term, so another node has to lead in a later one.
    pub(crate) fn take_dispute(&self) -> Option<NodeId> {
        self.guard.elections.take_dispute()
    }
}
