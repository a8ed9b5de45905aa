//! Failure detector: a replica is down if independent signals agree on it. Only replicas of the own
//! region are judged, so a split brain leaves no two verdicts about one replica.

use serde::Serialize;
use spillway_types::DownCause;

/// Vote of one kind of signal about a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Vote {
    /// No evidence, or none that is recent: a vote neither for nor against the replica.
    #[default]
    Silent,
    /// The replica works.
    Good,
    /// The replica does not answer. All signals of this kind may have one cause: an event loop that
    /// is blocked serves neither requests nor checks nor metrics, and goes on afterwards.
    Unresponsive,
    /// The replica does not answer, and has not for twice as long as an `Unresponsive` vote takes.
    UnresponsiveForLong,
    /// The replica fails.
    Bad,
    /// The replica fails, and has done so for twice as long as a `Bad` vote takes.
    BadForLong,
}

/// Votes of one node's signals about a replica. Each kind finds faults in its own way, so two of
/// them are hardly wrong for the same reason. Silence is the exception: however many signals get no
/// answer, they count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Votes {
    /// Checks of the health endpoint.
    pub active: Vote,
    /// Results of requests.
    pub passive: Vote,
    /// Deep checks, and the memory left.
    pub deep: Vote,
    /// Scrapes of the metrics.
    pub scrape: Vote,
}

/// Conclusion from all votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No vote speaks against the replica.
    Up,
    /// This node votes against the replica, but there is no agreement.
    Suspect,
    /// Independent signals, or most nodes, agree that the replica is down.
    Down,
}

/// Votes of the region's other nodes about one replica, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReports {
    /// Nodes that have evidence.
    knowing: u32,
    /// Nodes among them that call the replica down.
    down: u32,
    /// True if one of these nodes would call it down alone.
    is_sure: bool,
    /// Live nodes that have said nothing against the replica.
    quiet: u32,
}

/// Decides if a replica is down, from the votes of this node and of the region's other nodes.
///
/// One node alone needs two independent signals, because one signal may be broken itself: a check
/// that asks the wrong path, a metrics port behind a firewall. A single signal counts as two if no
/// signal contradicts it and it has been bad for twice its threshold.
///
/// With several nodes in a region, most of the nodes that have evidence must agree: one bad link
/// makes one node wrong, not most. A node without evidence abstains. A node may act alone on faults
/// that it alone sees, by leaving the replica out for itself.
///
/// Quiet nodes may see the replica well or not at all. They count as seeing it well if this node
/// has no vote against the replica, so that it would follow other nodes' votes alone. They don't
/// count if this node itself has a vote against the replica.
#[must_use]
pub fn verdict(own: Votes, others: PeerReports) -> Verdict {
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

impl PeerReports {
    /// Sums up the votes of `nodes`, one item for each node.
    pub fn of(nodes: impl IntoIterator<Item = Votes>) -> Self {
        let mut peer_reports = Self::default();
        for votes in nodes {
            peer_reports.knowing += u32::from(votes.is_evidence());
            peer_reports.down += u32::from(votes.lean_down());
            peer_reports.is_sure |= votes.agree_on_down();
        }
        peer_reports
    }

    /// Adds the number of live nodes that have said nothing against the replica.
    #[must_use]
    pub fn beside_quiet(self, nodes: u32) -> Self {
        Self { quiet: nodes, ..self }
    }
}

impl Vote {
    /// Returns true if the vote speaks against the replica.
    pub(crate) fn is_bad(self) -> bool {
        self >= Self::Unresponsive
    }

    fn is_unresponsive(self) -> bool {
        matches!(self, Self::Unresponsive | Self::UnresponsiveForLong)
    }

    fn is_lasting(self) -> bool {
        matches!(self, Self::UnresponsiveForLong | Self::BadForLong)
    }

    /// Returns the vote as if it were new.
    fn brief(self) -> Self {
        match self {
            Self::UnresponsiveForLong => Self::Unresponsive,
            Self::BadForLong => Self::Bad,
            vote => vote,
        }
    }
}

impl Votes {
    /// Makes the votes of a node that reports only its result: `bad_signals` is the number of
    /// independent signals against the replica, 0 if nothing speaks against it.
    #[must_use]
    pub fn reported(bad_signals: u8) -> Self {
        let (passive, active) = match bad_signals {
            0 => (Vote::Good, Vote::Silent),
            1 => (Vote::Bad, Vote::Silent),
            _ => (Vote::Bad, Vote::Bad),
        };
        Self { active, passive, ..Self::default() }
    }

    /// Returns these votes as new ones and without that of traffic, for a replica that is due for a
    /// trial after a long time without traffic.
    pub(crate) fn for_a_trial(self) -> Self {
        Self { passive: Vote::Silent, ..self.brief() }
    }

    /// Returns the votes as if all were new.
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

    /// Returns the number of independent signals against the replica. All that get no answer are
    /// one signal; one that lasts without contradiction counts as two.
    #[must_use]
    pub fn signals_against(self) -> u8 {
        let lasting = self.is_lasting() && !self.is_contradicted();
        u8::try_from(self.bad()).unwrap_or(u8::MAX).max(if lasting { 2 } else { 0 })
    }

    /// Returns what these votes know of a replica that is down. Without a vote of its own against
    /// the replica, the node trusts the other nodes, which don't say how it fails.
    pub(crate) fn down_cause(self) -> DownCause {
        let is_mere_silence = self.all().into_iter().all(|it| !it.is_bad() || it.is_unresponsive());
        if is_mere_silence && self.bad() > 0 { DownCause::Silence } else { DownCause::Failure }
    }

    fn bad(self) -> usize {
        let of = |is: fn(Vote) -> bool| self.all().into_iter().filter(|vote| is(*vote)).count();
        of(|vote| vote.is_bad() && !vote.is_unresponsive()) + of(Vote::is_unresponsive).min(1)
    }

    fn is_lasting(self) -> bool {
        self.all().into_iter().any(Vote::is_lasting)
    }

    fn is_contradicted(self) -> bool {
        self.all().contains(&Vote::Good)
    }

    fn is_evidence(self) -> bool {
        self.all().into_iter().any(|vote| vote != Vote::Silent)
    }

    /// Returns true if these votes are enough for "down" when no other node has evidence.
    fn agree_on_down(self) -> bool {
        self.signals_against() >= 2
    }

    /// Returns true if these votes count as "down" when several nodes have evidence.
    pub(crate) fn lean_down(self) -> bool {
        self.bad() >= 2 || (self.bad() == 1 && !self.is_contradicted())
    }
}

#[cfg(test)]
mod tests {
    use super::Vote::{Bad, BadForLong, Good, Silent, Unresponsive, UnresponsiveForLong};
    use super::*;

    fn votes([active, passive, deep, scrape]: [Vote; 4]) -> Votes {
        Votes { active, passive, deep, scrape }
    }

    fn alone(all: [Vote; 4]) -> Verdict {
        verdict(votes(all), PeerReports::default())
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
    fn silence_is_one_signal_however_many_hear_it() {
        let silent = [Unresponsive, Unresponsive, Silent, Unresponsive];
        assert_eq!(alone(silent), Verdict::Suspect);
        assert_eq!(votes(silent).signals_against(), 1);
        let lasting = [UnresponsiveForLong, Unresponsive, Silent, Unresponsive];
        assert_eq!(alone(lasting), Verdict::Down, "nothing contradicts it for long");
        assert_eq!(votes(lasting).signals_against(), 2);
        assert_eq!(alone([UnresponsiveForLong, Good, Silent, Silent]), Verdict::Suspect);
        assert_eq!(alone([Unresponsive, Bad, Silent, Silent]), Verdict::Down, "two kinds of fault");
        let both = votes(silent);
        assert_eq!(
            verdict(both, PeerReports::of([both])),
            Verdict::Down,
            "two nodes receive nothing"
        );
    }

    #[test]
    fn a_replica_is_down_by_silence_alone_unless_a_signal_saw_it_fail() {
        let cause = |all| votes(all).down_cause();
        assert_eq!(cause([UnresponsiveForLong, Silent, Silent, Silent]), DownCause::Silence);
        assert_eq!(cause([UnresponsiveForLong, Bad, Silent, Silent]), DownCause::Failure);
        assert_eq!(cause(DEAD), DownCause::Failure);
        assert_eq!(cause(GOOD), DownCause::Failure, "other nodes don't say how it fails");
    }

    #[test]
    fn among_several_nodes_most_must_agree() {
        let of = |own: [Vote; 4], others: &[[Vote; 4]]| {
            verdict(votes(own), PeerReports::of(others.iter().copied().map(votes)))
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
        assert_eq!(verdict(doubtful, PeerReports::of([doubtful])), Verdict::Down);
        let contradicted = votes([Bad, Good, Silent, Silent]);
        assert_eq!(verdict(contradicted, PeerReports::of([contradicted; 2])), Verdict::Suspect);
    }

    #[test]
    fn nodes_that_know_nothing_abstain() {
        let blind = votes(BLIND);
        assert_eq!(verdict(votes(DEAD), PeerReports::of([blind; 3])), Verdict::Down);
        assert_eq!(verdict(votes(DOUBTFUL), PeerReports::of([blind; 2])), Verdict::Suspect);
        assert_eq!(verdict(blind, PeerReports::of([votes(DEAD)])), Verdict::Down);
        assert_eq!(verdict(blind, PeerReports::of([votes(DOUBTFUL)])), Verdict::Up);
    }

    #[test]
    fn nodes_that_said_nothing_hold_others_back_and_not_this_one() {
        let of = |own: [Vote; 4], told: &[u8], quiet: u32| {
            let others = told.iter().copied().map(Votes::reported);
            verdict(votes(own), PeerReports::of(others).beside_quiet(quiet))
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
