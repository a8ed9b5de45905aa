//! Judgement of senders of votes and entries, by this node's knowledge of the members. Pure.
//!
//! A certificate of the cluster proves a name and no more. Votes and entries count only from a node
//! that votes as far as this node knows. A member without a known vote is believed only after a long
//! silence: this node may have missed that it votes now. Whoever is no member is never believed.

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
    /// This node is no member itself as far as it knows: it is being taken in, and knows nobody.
    Unjudged,
    /// The sender is no member.
    Stranger,
}

/// Knowledge of a node when a ballot comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// Node whose stream it is, as the certificate proves.
    pub(crate) sender: NodeId,
    pub(crate) standing: SenderStanding,
    /// True if this node follows the sender already, by that very ballot.
    pub(crate) is_followed: bool,
    /// This node's own term; `None` if its log is empty.
    pub(crate) term: Option<u64>,
    /// Time for which no leader was heard.
    pub(crate) silence: Duration,
    /// Lease of a leader.
    pub(crate) lease: Duration,
}

impl Situation {
    /// Returns true if this node should listen to the sender of `ballot` as a leader or a
    /// candidate.
    pub(crate) fn admits(&self, ballot: Ballot) -> bool {
        let is_silent = self.silence >= SILENT_MIN.max(SILENT_LEASES * self.lease);
        let may_lead = match self.standing {
            SenderStanding::Voter | SenderStanding::Unjudged => true,
            // A member that was believed once goes on: its next message ends the silence.
            SenderStanding::Member => is_silent || self.is_followed,
            SenderStanding::Stranger => false,
        };
        may_lead && ballot.node == self.sender && self.term.is_none_or(|own| is_near(ballot, own))
    }
}

/// Returns true if the term of `ballot` is not too far ahead of `own_term`.
pub(crate) fn is_near(ballot: Ballot, own_term: u64) -> bool {
    ballot.term <= own_term.saturating_add(TERMS_AHEAD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(term: u64, node: u64) -> Ballot {
        Ballot { term, node: NodeId(node), is_won: true }
    }

    fn situation(standing: SenderStanding) -> Situation {
        Situation {
            sender: NodeId(2),
            standing,
            is_followed: false,
            term: Some(5),
            silence: Duration::ZERO,
            lease: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_voter_speaks_for_itself_alone() {
        let voter = situation(SenderStanding::Voter);
        assert!(voter.admits(ballot(5, 2)) && voter.admits(ballot(6, 2)));
        assert!(!voter.admits(ballot(6, 9_999)));
    }

    #[test]
    fn nobody_leaps_over_terms() {
        for standing in [SenderStanding::Voter, SenderStanding::Unjudged] {
            let known = situation(standing);
            assert!(known.admits(ballot(5 + TERMS_AHEAD_MAX, 2)));
            assert!(!known.admits(ballot(6 + TERMS_AHEAD_MAX, 2)));
            assert!(!known.admits(ballot(u64::MAX, 2)));
        }
        let late = Situation { term: Some(u64::MAX - 1), ..situation(SenderStanding::Voter) };
        assert!(late.admits(ballot(u64::MAX, 2)), "nothing overflows");
        let blank = Situation { term: None, ..situation(SenderStanding::Unjudged) };
        assert!(blank.admits(ballot(TERMS_AHEAD_MAX * 2, 2)), "its cluster may be old");
    }

    #[test]
    fn a_member_without_a_known_vote_is_believed_after_a_long_silence() {
        let member = situation(SenderStanding::Member);
        let after = |secs| Situation { silence: Duration::from_secs(secs), ..member };
        assert!(!member.admits(ballot(6, 2)) && !after(4).admits(ballot(6, 2)));
        assert!(after(5).admits(ballot(6, 2)));
        let slow = Situation { lease: Duration::from_secs(3), ..after(8) };
        assert!(!slow.admits(ballot(6, 2)));
    }

    #[test]
    fn a_member_that_was_believed_goes_on() {
        let followed = Situation { is_followed: true, ..situation(SenderStanding::Member) };
        assert!(followed.admits(ballot(5, 2)) && !followed.admits(ballot(5, 3)));
    }

    #[test]
    fn a_stranger_is_never_believed() {
        let stranger = situation(SenderStanding::Stranger);
        let silent = Situation { silence: Duration::MAX, is_followed: true, ..stranger };
        assert!(!silent.admits(ballot(5, 2)));
    }
}
