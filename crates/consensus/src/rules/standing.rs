//! Whether a node may say what it says, by what this node knows of the members. Pure.
//!
//! A certificate of the cluster proves a name and no more. Votes and entries count only from a node
//! that votes as far as this node knows. A member without a known vote is believed only after a long
//! silence: this node may have missed that it votes now. Whoever is no member is never believed.

use std::time::Duration;

use crate::ids::NodeId;
use crate::wire::Ballot;

/// How far ahead of a node's own term another one may be. Terms count elections; a term near the end
/// of the numbers would leave none for anybody else.
pub(crate) const TERMS_AHEAD_MAX: u64 = 1 << 20;
/// How many leases without a leader are a long silence, and how long it is at least: beyond what any
/// election takes.
const SILENT_LEASES: u32 = 3;
const SILENT_MIN: Duration = Duration::from_secs(5);

/// What a sender is, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It votes.
    Voter,
    /// It is a member, with no vote as far as this node knows.
    Member,
    /// This node is no member itself as far as it knows: it is being taken in, and knows nobody.
    Unjudged,
    /// It is no member.
    Stranger,
}

/// What a node knows when a ballot comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// Whose stream it is, which the certificate proves.
    pub(crate) sender: NodeId,
    pub(crate) standing: Standing,
    /// Whether this node follows the sender already, by that very ballot.
    pub(crate) is_followed: bool,
    /// This node's own term; `None` if its log is empty.
    pub(crate) term: Option<u64>,
    /// For how long no leader was heard.
    pub(crate) silence: Duration,
    /// How long a leader's lease is.
    pub(crate) lease: Duration,
}

impl Situation {
    /// Whether to listen to the sender of `ballot` as a leader or a candidate.
    pub(crate) fn admits(&self, ballot: Ballot) -> bool {
        let is_silent = self.silence >= SILENT_MIN.max(SILENT_LEASES * self.lease);
        let may_lead = match self.standing {
            Standing::Voter | Standing::Unjudged => true,
            // Whoever was believed once goes on: its next word ends the silence.
            Standing::Member => is_silent || self.is_followed,
            Standing::Stranger => false,
        };
        may_lead && ballot.node == self.sender && self.term.is_none_or(|own| is_near(ballot, own))
    }
}

/// Whether a term is not too far ahead of the own one.
pub(crate) fn is_near(ballot: Ballot, own_term: u64) -> bool {
    ballot.term <= own_term.saturating_add(TERMS_AHEAD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(term: u64, node: u64) -> Ballot {
        Ballot { term, node: NodeId(node), is_won: true }
    }

    fn situation(standing: Standing) -> Situation {
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
        let voter = situation(Standing::Voter);
        assert!(voter.admits(ballot(5, 2)) && voter.admits(ballot(6, 2)));
        assert!(!voter.admits(ballot(6, 9_999)));
    }

    #[test]
    fn nobody_leaps_over_terms() {
        for standing in [Standing::Voter, Standing::Unjudged] {
            let known = situation(standing);
            assert!(known.admits(ballot(5 + TERMS_AHEAD_MAX, 2)));
            assert!(!known.admits(ballot(6 + TERMS_AHEAD_MAX, 2)));
            assert!(!known.admits(ballot(u64::MAX, 2)));
        }
        let late = Situation { term: Some(u64::MAX - 1), ..situation(Standing::Voter) };
        assert!(late.admits(ballot(u64::MAX, 2)), "nothing overflows");
        let blank = Situation { term: None, ..situation(Standing::Unjudged) };
        assert!(blank.admits(ballot(TERMS_AHEAD_MAX * 2, 2)), "its cluster may be old");
    }

    #[test]
    fn a_member_without_a_known_vote_is_believed_after_a_long_silence() {
        let member = situation(Standing::Member);
        let after = |secs| Situation { silence: Duration::from_secs(secs), ..member };
        assert!(!member.admits(ballot(6, 2)) && !after(4).admits(ballot(6, 2)));
        assert!(after(5).admits(ballot(6, 2)));
        let slow = Situation { lease: Duration::from_secs(3), ..after(8) };
        assert!(!slow.admits(ballot(6, 2)));
    }

    #[test]
    fn a_member_that_was_believed_goes_on() {
        let followed = Situation { is_followed: true, ..situation(Standing::Member) };
        assert!(followed.admits(ballot(5, 2)) && !followed.admits(ballot(5, 3)));
    }

    #[test]
    fn a_stranger_is_never_believed() {
        let stranger = situation(Standing::Stranger);
        let silent = Situation { silence: Duration::MAX, is_followed: true, ..stranger };
        assert!(!silent.admits(ballot(5, 2)));
    }
}
