//! Judgement of senders of votes and entries, by this node's knowledge of the members. Pure.
//!
//! A certificate of the cluster proves a name and no more. Votes and entries count only from a node
//! that votes as far as this node knows. A member without a known vote is believed only after a long
//! silence: this node may have missed that it votes now. A node that is no member is never believed.
//! A voter that claims to lead needs a proof of its election, or a long silence of all leaders.

use std::time::Duration;

use spillway_types::NodeId;

use crate::wire::Ballot;

/// Greatest lead of another term over a node's own. Terms count elections; a term near the end of
/// the numbers would leave none for other nodes.
pub(crate) const TERMS_AHEAD_MAX: u64 = 1 << 20;
/// Leases without a leader that count as a long silence, and its least length: beyond what any
/// election takes.
const SILENT_LEASES: u32 = 3;
const SILENT_MIN: Duration = Duration::from_secs(5);

/// Standing of a sender, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SenderStanding {
    /// The sender votes.
    Voter,
    /// The sender is a member, with no vote as far as this node knows.
    Member,
    /// This node is no member itself as far as it knows: it is being added, and knows no other
    /// node.
    Unjudged,
    /// The sender is no member.
    Stranger,
}

/// Claim that comes with a ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BallotClaim {
    /// The sender is a candidate in an election.
    Candidate,
    /// The sender has won an election, and sends entries or a snapshot.
    Leader,
}

/// Knowledge of a node when a ballot comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// Node whose stream it is, as the certificate proves.
    pub(crate) sender: NodeId,
    pub(crate) standing: SenderStanding,
    /// True if the ballot is proven: this node follows it already, gave it its vote, or its leader
    /// hands over to the sender; or a majority of the voters backs it.
    pub(crate) is_proven: bool,
    /// This node's own term; `None` if its log is empty.
    pub(crate) term: Option<u64>,
    /// Time since the last message of a leader.
    pub(crate) silence: Duration,
    /// Lease of a leader.
    pub(crate) lease: Duration,
}

impl Situation {
    /// Returns true if this node should listen to the sender of `ballot`.
    pub(crate) fn admits(&self, claim: BallotClaim, ballot: Ballot) -> bool {
        let is_silent = self.silence >= SILENT_MIN.max(SILENT_LEASES * self.lease);
        let may = match (self.standing, claim) {
            (SenderStanding::Stranger, _) => false,
            // A member that was believed once goes on: its next message ends the silence.
            (SenderStanding::Member, _) => is_silent || self.is_proven,
            (_, BallotClaim::Candidate) => true,
            (SenderStanding::Voter, BallotClaim::Leader) => {
                is_silent || self.is_proven || self.is_outdated(ballot)
            }
            // This node knows no voters, so nothing can be proven to it.
            (SenderStanding::Unjudged, BallotClaim::Leader) => {
                let is_lost = self.term.is_none() || self.silence >= self.lease;
                is_lost || self.is_proven || self.is_outdated(ballot)
            }
        };
        may && self.is_well_formed(claim, ballot)
    }

    /// Returns true if the ballot fits the sender and its claim, and is not too far ahead. Without
    /// that no proof counts.
    pub(crate) fn is_well_formed(&self, claim: BallotClaim, ballot: Ballot) -> bool {
        // A candidate that asks with a won ballot would lead with the first vote, and entries with
        // a ballot that is not won would depose a leader for nothing.
        let fits = ballot.is_won == (claim == BallotClaim::Leader);
        fits && ballot.node == self.sender && self.term.is_none_or(|own| is_near(ballot, own))
    }

    /// Returns true if the ballot changes nothing here: the sender learns of the later term.
    fn is_outdated(&self, ballot: Ballot) -> bool {
        self.term.is_some_and(|own| ballot.term < own)
    }
}

/// Returns true if the term of `ballot` is not too far ahead of `own_term`.
pub(crate) fn is_near(ballot: Ballot, own_term: u64) -> bool {
    ballot.term <= own_term.saturating_add(TERMS_AHEAD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(term: u64, node: u64) -> Ballot {
        Ballot { term, node: NodeId(node), is_won: false }
    }

    fn leader(term: u64, node: u64) -> Ballot {
        Ballot { is_won: true, ..candidate(term, node) }
    }

    fn situation(standing: SenderStanding) -> Situation {
        Situation {
            sender: NodeId(2),
            standing,
            is_proven: false,
            term: Some(5),
            silence: Duration::ZERO,
            lease: Duration::from_secs(1),
        }
    }

    fn stands(situation: Situation, ballot: Ballot) -> bool {
        situation.admits(BallotClaim::Candidate, ballot)
    }

    fn leads(situation: Situation, ballot: Ballot) -> bool {
        situation.admits(BallotClaim::Leader, ballot)
    }

    #[test]
    fn a_voter_stands_for_itself_alone() {
        let voter = situation(SenderStanding::Voter);
        assert!(stands(voter, candidate(5, 2)) && stands(voter, candidate(6, 2)));
        assert!(!stands(voter, candidate(6, 9_999)));
    }

    #[test]
    fn a_voter_leads_by_an_election_that_is_proven_or_after_a_long_silence() {
        let voter = situation(SenderStanding::Voter);
        assert!(!leads(voter, leader(6, 2)) && !leads(voter, leader(5, 2)));
        assert!(leads(Situation { is_proven: true, ..voter }, leader(6, 2)));
        assert!(!leads(Situation { is_proven: true, ..voter }, leader(6, 3)));
        let after = |secs| Situation { silence: Duration::from_secs(secs), ..voter };
        assert!(!leads(after(4), leader(6, 2)) && leads(after(5), leader(6, 2)));
    }

    /// openraft refuses it. The refusal informs a leader that was cut off of the later term.
    #[test]
    fn a_leader_of_an_earlier_term_gets_an_answer() {
        assert!(leads(situation(SenderStanding::Voter), leader(4, 2)));
        assert!(leads(situation(SenderStanding::Unjudged), leader(4, 2)));
        assert!(!leads(situation(SenderStanding::Member), leader(4, 2)));
    }

    #[test]
    fn a_ballot_fits_its_claim() {
        let voter = Situation { is_proven: true, ..situation(SenderStanding::Voter) };
        assert!(!stands(voter, leader(6, 2)) && !leads(voter, candidate(6, 2)));
    }

    #[test]
    fn a_node_that_knows_no_voters_changes_its_leader_after_a_lease() {
        let unjudged = situation(SenderStanding::Unjudged);
        assert!(!leads(unjudged, leader(6, 2)));
        assert!(leads(Situation { silence: unjudged.lease, ..unjudged }, leader(6, 2)));
        assert!(leads(Situation { term: None, ..unjudged }, leader(6, 2)));
    }

    #[test]
    fn a_voter_leaps_over_no_terms() {
        for standing in [SenderStanding::Voter, SenderStanding::Unjudged] {
            let known = situation(standing);
            assert!(stands(known, candidate(5 + TERMS_AHEAD_MAX, 2)));
            assert!(!stands(known, candidate(6 + TERMS_AHEAD_MAX, 2)));
            assert!(!stands(known, candidate(u64::MAX, 2)));
            let proven = Situation { is_proven: true, ..known };
            assert!(!leads(proven, leader(6 + TERMS_AHEAD_MAX, 2)));
        }
        let late = Situation { term: Some(u64::MAX - 1), ..situation(SenderStanding::Voter) };
        assert!(stands(late, candidate(u64::MAX, 2)), "nothing overflows");
        let blank = Situation { term: None, ..situation(SenderStanding::Unjudged) };
        assert!(stands(blank, candidate(TERMS_AHEAD_MAX * 2, 2)), "its cluster may be old");
    }

    #[test]
    fn a_member_without_a_known_vote_is_believed_after_a_long_silence() {
        let member = situation(SenderStanding::Member);
        let after = |secs| Situation { silence: Duration::from_secs(secs), ..member };
        assert!(!leads(member, leader(6, 2)) && !leads(after(4), leader(6, 2)));
        assert!(leads(after(5), leader(6, 2)));
        let slow = Situation { lease: Duration::from_secs(3), ..after(8) };
        assert!(!leads(slow, leader(6, 2)));
    }

    #[test]
    fn a_member_that_was_believed_goes_on() {
        let followed = Situation { is_proven: true, ..situation(SenderStanding::Member) };
        assert!(leads(followed, leader(5, 2)) && !leads(followed, leader(5, 3)));
    }

    #[test]
    fn a_stranger_is_never_believed() {
        let stranger = situation(SenderStanding::Stranger);
        let silent = Situation { silence: Duration::MAX, is_proven: true, ..stranger };
        assert!(!leads(silent, leader(5, 2)) && !stands(silent, candidate(5, 2)));
    }
}
