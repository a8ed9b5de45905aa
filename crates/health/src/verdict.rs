//! Whether a replica is down, as far as independent signals agree.

use serde::Serialize;

/// What one kind of signal says about a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Vote {
    /// No evidence, or none that is recent. It speaks neither for nor against.
    #[default]
    Silent,
    /// It works.
    Good,
    /// It fails.
    Bad,
    /// It fails, and has done so for twice as long as it takes to say so.
    BadForLong,
}

/// What one node's signals say about a replica. Each finds faults in its own way, so that two of
/// them are hardly wrong for the same reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Votes {
    /// The check of its health endpoint.
    pub active: Vote,
    /// What requests met with.
    pub passive: Vote,
    /// Known answers, and memory left.
    pub deep: Vote,
    /// Whether its metrics can be read.
    pub scrape: Vote,
}

/// What follows from all votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against it.
    Up,
    /// This node has something against it, but there is no agreement.
    Suspect,
    /// Independent signals, or most nodes, agree that it is down.
    Down,
}

/// What the region's other nodes say about one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Witnesses {
    /// Nodes that know something.
    knowing: u32,
    /// Those of them that call it down.
    down: u32,
    /// One of these would do so alone.
    is_sure: bool,
    /// Nodes that live and have said nothing against it.
    quiet: u32,
}

/// Finds whether a replica is down, from the votes of this node and of the region's others.
///
/// One node alone needs two independent signals, since one signal may be broken itself: a check
/// that asks the wrong path, a metrics port behind a firewall. If one is all there is, nothing
/// contradicts it, and it has said so for twice its threshold, that counts as two.
///
/// With several nodes in a region most of the nodes that know something must agree; one bad link
/// makes one node wrong, not most. A node that knows nothing abstains. What this node alone sees
/// it may act on alone, by leaving the replica out for itself.
///
/// Nodes that said nothing against it may see it well or not at all. They count as seeing it well
/// where this node would go by others' word alone, and not at all where it has something against
/// the replica itself.
#[must_use]
pub fn verdict(own: Votes, others: Witnesses) -> Verdict {
    let quiet = if own.bad() == 0 { others.quiet } else { 0 };
    let knowing = u32::from(own.is_evidence()) + others.knowing + quiet;
    let is_down = if knowing > 1 {
        2 * (u32::from(own.lean_down()) + others.down) > knowing
    } else {
        own.agree_on_down() || others.is_sure
    };
    match (is_down, own.bad()) {
        (true, _) => Verdict::Down,
        (false, 0) => Verdict::Up,
        (false, _) => Verdict::Suspect,
    }
}

impl Witnesses {
    /// What nodes with these votes say.
    pub fn of(nodes: impl IntoIterator<Item = Votes>) -> Self {
        let mut witnesses = Self::default();
        for votes in nodes {
            witnesses.knowing += u32::from(votes.is_evidence());
            witnesses.down += u32::from(votes.lean_down());
            witnesses.is_sure |= votes.agree_on_down();
        }
        witnesses
    }

    /// The same, beside so many living nodes that have said nothing against it.
    #[must_use]
    pub fn beside_quiet(self, nodes: u32) -> Self {
        Self { quiet: nodes, ..self }
    }
}

impl Vote {
    pub(crate) fn is_bad(self) -> bool {
        matches!(self, Self::Bad | Self::BadForLong)
    }

    /// The same vote, as if it had come up just now.
    fn brief(self) -> Self {
        if self == Self::BadForLong { Self::Bad } else { self }
    }
}

impl Votes {
    /// The votes of a node of which only the outcome is known: that nothing speaks against the
    /// replica, or how many independent signals do.
    #[must_use]
    pub fn told(bad_signals: u8) -> Self {
        let (passive, active) = match bad_signals {
            0 => (Vote::Good, Vote::Silent),
            1 => (Vote::Bad, Vote::Silent),
            _ => (Vote::Bad, Vote::Bad),
        };
        Self { active, passive, ..Self::default() }
    }

    /// These votes without what traffic showed, none of them old: all that counts once a replica
    /// has been without traffic for so long that it is to be tried again.
    pub(crate) fn for_a_trial(self) -> Self {
        Self { passive: Vote::Silent, ..self.brief() }
    }

    /// The same votes, as if all had come up just now.
    pub(crate) fn brief(self) -> Self {
        Self {
            active: self.active.brief(),
            passive: self.passive.brief(),
            deep: self.deep.brief(),
            scrape: self.scrape.brief(),
        }
    }

    fn all(self) -> [Vote; 4] {
        [self.active, self.passive, self.deep, self.scrape]
    }

    fn bad(self) -> usize {
        self.all().into_iter().filter(|vote| vote.is_bad()).count()
    }

    fn is_contradicted(self) -> bool {
        self.all().contains(&Vote::Good)
    }

    fn is_evidence(self) -> bool {
        self.all().into_iter().any(|vote| vote != Vote::Silent)
    }

    /// What it takes if this node is the only one that knows something.
    fn agree_on_down(self) -> bool {
        let is_lasting = self.all().contains(&Vote::BadForLong);
        self.bad() >= 2 || (is_lasting && !self.is_contradicted())
    }

    /// What it takes for this node to be counted among several.
    pub(crate) fn lean_down(self) -> bool {
        self.bad() >= 2 || (self.bad() == 1 && !self.is_contradicted())
    }
}

#[cfg(test)]
mod tests {
    use super::Vote::{Bad, BadForLong, Good, Silent};
    use super::*;

    fn votes([active, passive, deep, scrape]: [Vote; 4]) -> Votes {
        Votes { active, passive, deep, scrape }
    }

    fn alone(all: [Vote; 4]) -> Verdict {
        verdict(votes(all), Witnesses::default())
    }

    const GOOD: [Vote; 4] = [Good, Good, Silent, Silent];
    const DEAD: [Vote; 4] = [Bad, Bad, Silent, Silent];
    const DOUBTFUL: [Vote; 4] = [Bad, Silent, Silent, Silent];
    const BLIND: [Vote; 4] = [Silent; 4];

    #[test]
    fn one_node_needs_two_signals_whatever_the_others_say() {
        assert_eq!(alone([Bad, Bad, Silent, Silent]), Verdict::Down);
        assert_eq!(alone([Silent, Silent, Bad, Bad]), Verdict::Down);
        assert_eq!(alone([Good, Bad, Bad, Good]), Verdict::Down);
        assert_eq!(alone([Bad, Good, Good, Good]), Verdict::Suspect);
        assert_eq!(alone([Bad, Silent, Silent, Silent]), Verdict::Suspect);
        assert_eq!(alone(GOOD), Verdict::Up);
        assert_eq!(alone(BLIND), Verdict::Up);
    }

    #[test]
    fn a_lone_signal_counts_as_two_after_long_if_nothing_contradicts_it() {
        for place in 0..4 {
            let mut all = BLIND;
            all[place] = BadForLong;
            assert_eq!(alone(all), Verdict::Down, "{all:?}");
            let mut contradicted = [Good; 4];
            contradicted[place] = BadForLong;
            assert_eq!(alone(contradicted), Verdict::Suspect);
            all[(place + 1) % 4] = Good;
            assert_eq!(alone(all), Verdict::Suspect, "{all:?}");
        }
    }

    #[test]
    fn among_several_nodes_most_must_agree() {
        let of = |own: [Vote; 4], others: &[[Vote; 4]]| {
            verdict(votes(own), Witnesses::of(others.iter().copied().map(votes)))
        };
        assert_eq!(of(DEAD, &[GOOD, GOOD]), Verdict::Suspect, "one bad link is not a death");
        assert_eq!(of(DEAD, &[DEAD, GOOD]), Verdict::Down);
        assert_eq!(of(DEAD, &[GOOD]), Verdict::Suspect, "half is not most");
        assert_eq!(of(GOOD, &[DEAD, DEAD]), Verdict::Down, "the odd one follows");
        assert_eq!(of(GOOD, &[DEAD, GOOD]), Verdict::Up);
        assert_eq!(of(DEAD, &[DEAD]), Verdict::Down);
    }

    #[test]
    fn several_nodes_with_one_signal_each_agree_on_down() {
        let doubtful = votes(DOUBTFUL);
        assert_eq!(verdict(doubtful, Witnesses::of([doubtful])), Verdict::Down);
        let contradicted = votes([Bad, Good, Silent, Silent]);
        assert_eq!(verdict(contradicted, Witnesses::of([contradicted; 2])), Verdict::Suspect);
    }

    #[test]
    fn nodes_that_know_nothing_abstain() {
        let blind = votes(BLIND);
        assert_eq!(verdict(votes(DEAD), Witnesses::of([blind; 3])), Verdict::Down);
        assert_eq!(verdict(votes(DOUBTFUL), Witnesses::of([blind; 2])), Verdict::Suspect);
        assert_eq!(verdict(blind, Witnesses::of([votes(DEAD)])), Verdict::Down);
        assert_eq!(verdict(blind, Witnesses::of([votes(DOUBTFUL)])), Verdict::Up);
    }

    #[test]
    fn nodes_that_said_nothing_hold_others_back_and_not_this_one() {
        let of = |own: [Vote; 4], told: &[u8], quiet: u32| {
            let others = told.iter().copied().map(Votes::told);
            verdict(votes(own), Witnesses::of(others).beside_quiet(quiet))
        };
        assert_eq!(of(BLIND, &[2], 0), Verdict::Down);
        assert_eq!(of(BLIND, &[2], 1), Verdict::Up, "one of two");
        assert_eq!(of(BLIND, &[1, 1], 1), Verdict::Down);
        assert_eq!(of(GOOD, &[2, 2], 1), Verdict::Up, "half is not most");
        assert_eq!(of(GOOD, &[2, 2, 1], 1), Verdict::Down);
        assert_eq!(of(DEAD, &[], 9), Verdict::Down, "nobody contradicts it");
        assert_eq!(of(DEAD, &[0], 9), Verdict::Suspect);
    }

    #[test]
    fn for_a_trial_neither_traffic_nor_length_counts() {
        let all = votes([BadForLong; 4]);
        assert_eq!(all.for_a_trial(), votes([Bad, Silent, Bad, Bad]));
        assert_eq!(all.brief(), votes([Bad; 4]));
    }
}
