//! Comparison of the states that nodes have at the same index. Pure.
//!
//! Each node reports a few digests of its state, with their indices. A node whose state differs
//! from that of most voters has to stop. If no majority has the same state, the leader's state
//! counts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spillway_types::NodeId;

use crate::wire::StateDigest;

/// Own digests that are remembered, one an entry: a node further behind is compared later.
const OWN_MAX: usize = 1_024;
/// Digests of each other node that are remembered.
const TOLD_MAX: usize = 16;
/// Nodes also report their digests at whole multiples of this, so that busy nodes report the same
/// indices.
const MARK: u64 = 64;

/// The newest digests of a node's own state.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnDigests(VecDeque<StateDigest>);

impl OwnDigests {
    /// The state of the next entry is there.
    pub(crate) fn applied(&mut self, index: u64, digest: u128) {
        if self.0.back().is_some_and(|(last, _)| *last >= index) {
            self.0.clear();
        }
        if self.0.len() == OWN_MAX {
            self.0.pop_front();
        }
        self.0.push_back((index, digest));
    }

    /// A snapshot has replaced the state.
    pub(crate) fn restored(&mut self, index: u64, digest: u128) {
        self.0.clear();
        self.0.push_back((index, digest));
    }

    /// Returns the digests to report to another node: the newest, those at the last two marks, and
    /// that at the newest index that the other node has reported, so that both have one to compare.
    pub(crate) fn to_report(&self, others: Option<u64>) -> Vec<StateDigest> {
        let Some(newest) = self.0.back() else { return Vec::new() };
        let mark = newest.0 / MARK * MARK;
        let indices = [Some(mark), mark.checked_sub(MARK), others].into_iter().flatten();
        let indices: BTreeSet<u64> = indices.filter(|index| *index < newest.0).collect();
        let at = |index| Some((index, self.at(index)?));
        indices.into_iter().filter_map(at).chain([*newest]).collect()
    }

    fn at(&self, index: u64) -> Option<u128> {
        let first = self.0.front()?.0;
        let (found, digest) = self.0.get(usize::try_from(index.checked_sub(first)?).ok()?)?;
        (*found == index).then_some(*digest)
    }
}

/// Digests that other nodes have reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherDigests(BTreeMap<NodeId, VecDeque<StateDigest>>);

/// Voters of a cluster, as a node knows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Electorate<'v> {
    pub(crate) me: NodeId,
    pub(crate) voters: &'v BTreeSet<NodeId>,
    pub(crate) leader: Option<NodeId>,
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// No reported digest differs.
    Same,
    /// The state of this node differs from the cluster's.
    Apart {
        /// Index of the states that were compared.
        index: u64,
    },
    /// The states of these nodes differ from this node's, which is no reason to stop here.
    Others(BTreeSet<NodeId>),
}

impl OtherDigests {
    /// Notes digests that a node has reported.
    pub(crate) fn receive(&mut self, own: &OwnDigests, node: NodeId, digests: &[StateDigest]) {
        let known = self.0.entry(node).or_default();
        for (index, digest) in digests.iter().take(TOLD_MAX) {
            known.retain(|(known, _)| known != index);
            known.push_back((*index, *digest));
        }
        let too_many = known.len().saturating_sub(TOLD_MAX);
        known.drain(..too_many);
        // A node that is right again, since it took a snapshot over, is not judged by what it was.
        let right = known.iter().filter(|(at, digest)| own.at(*at) == Some(*digest));
        if let Some(right) = right.map(|(at, _)| *at).max() {
            known.retain(|(at, _)| *at >= right);
        }
    }

    /// Returns the newest index for which a node has reported the digest.
    pub(crate) fn newest(&self, node: NodeId) -> Option<u64> {
        self.0.get(&node)?.iter().map(|(index, _)| *index).max()
    }

    /// Forgets nodes that are no members.
    pub(crate) fn keep(&mut self, members: &BTreeSet<NodeId>) {
        self.0.retain(|node, _| members.contains(node));
    }

    /// Compares the reports of the nodes with this node's own states.
    pub(crate) fn judge(&self, own: &OwnDigests, of: Electorate<'_>) -> Agreement {
        let indices: BTreeSet<u64> = self.0.values().flatten().map(|(index, _)| *index).collect();
        let mut others = BTreeSet::new();
        for index in indices.into_iter().rev() {
            let Some(ours) = own.at(index) else { continue };
            let at = |digests: &VecDeque<StateDigest>| {
                digests.iter().find(|(at, _)| *at == index).map(|(_, digest)| *digest)
            };
            let told: BTreeMap<NodeId, u128> =
                self.0.iter().filter_map(|(id, digests)| Some((*id, at(digests)?))).collect();
            if is_apart(ours, &told, of) {
                return Agreement::Apart { index };
            }
            let differ = told.iter().filter(|(_, theirs)| **theirs != ours);
            others.extend(differ.map(|(id, _)| *id));
        }
        if others.is_empty() { Agreement::Same } else { Agreement::Others(others) }
    }
}

/// Returns true if the state `ours` is not the cluster's, as the states of other nodes at the same
/// index show.
fn is_apart(ours: u128, told: &BTreeMap<NodeId, u128>, of: Electorate<'_>) -> bool {
    let mut sizes: BTreeMap<u128, usize> = BTreeMap::new();
    let votes = told.iter().filter(|(id, _)| of.voters.contains(id) && **id != of.me);
    let mut known = 0;
    for digest in votes.map(|(_, digest)| *digest).chain(of.voters.contains(&of.me).then_some(ours))
    {
        *sizes.entry(digest).or_default() += 1;
        known += 1;
    }
    let majority = of.voters.len() / 2 + 1;
    let (largest, size) = sizes.iter().max_by_key(|(_, size)| **size).unwrap_or((&ours, &0));
    if *size >= majority {
        return *largest != ours;
    }
    // The voters that are not known at this index could make a majority of one state.
    let is_open = size + (of.voters.len() - known) >= majority;
    let leaders = of.leader.filter(|leader| *leader != of.me).and_then(|leader| told.get(&leader));
    !is_open && leaders.is_some_and(|theirs| *theirs != ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> BTreeSet<NodeId> {
        ids.iter().map(|id| NodeId(*id)).collect()
    }

    /// Judges node 1 of `voters`, whose state has the digest 5 at each index to 100.
    fn judged(voters: &[u64], leader: u64, told: &[(u64, u64, u128)]) -> Agreement {
        let mut own = OwnDigests::default();
        (0..=100).for_each(|index| own.applied(index, 5));
        let mut others = OtherDigests::default();
        for (id, index, digest) in told {
            others.receive(&own, NodeId(*id), &[(*index, *digest)]);
        }
        let leader = Some(NodeId(leader));
        others.judge(&own, Electorate { me: NodeId(1), voters: &ids(voters), leader })
    }

    #[test]
    fn equal_states_agree_and_what_is_not_known_here_says_nothing() {
        assert_eq!(judged(&[1, 2, 3], 2, &[]), Agreement::Same);
        assert_eq!(judged(&[1, 2, 3], 2, &[(2, 90, 5), (3, 100, 5)]), Agreement::Same);
        assert_eq!(judged(&[1, 2, 3], 2, &[(2, 101, 6), (3, 101, 6)]), Agreement::Same);
    }

    #[test]
    fn who_differs_from_most_voters_stops_also_as_leader_or_without_a_vote() {
        let told = [(2, 90, 6), (3, 90, 6)];
        for leader in [1, 2] {
            assert_eq!(judged(&[1, 2, 3], leader, &told), Agreement::Apart { index: 90 });
        }
        assert_eq!(judged(&[2, 3], 2, &told), Agreement::Apart { index: 90 });
        assert_eq!(judged(&[1, 2, 3, 4, 5], 2, &told), Agreement::Others(ids(&[2, 3])));
    }

    #[test]
    fn one_that_differs_from_most_does_not_stop_the_others_even_if_it_leads() {
        let told = [(2, 90, 6), (3, 90, 5)];
        assert_eq!(judged(&[1, 2, 3], 2, &told), Agreement::Others(ids(&[2])));
        // The third voter is not known: it could have either state.
        assert_eq!(judged(&[1, 2, 3], 2, &told[..1]), Agreement::Others(ids(&[2])));
        let stranger = [(9, 90, 6)];
        assert_eq!(judged(&[1, 2, 3], 2, &stranger), Agreement::Others(ids(&[9])));
    }

    #[test]
    fn without_a_majority_the_leaders_state_counts() {
        let told = [(2, 90, 6), (3, 90, 7)];
        assert_eq!(judged(&[1, 2, 3], 2, &told), Agreement::Apart { index: 90 });
        assert_eq!(judged(&[1, 2, 3], 1, &told), Agreement::Others(ids(&[2, 3])));
        assert_eq!(judged(&[1, 2], 2, &told[..1]), Agreement::Apart { index: 90 });
        assert_eq!(judged(&[1, 2], 1, &told[..1]), Agreement::Others(ids(&[2])));
    }

    #[test]
    fn a_node_that_is_right_again_is_not_judged_by_what_it_was() {
        assert_eq!(judged(&[1, 2, 3], 1, &[(2, 80, 6), (2, 95, 5)]), Agreement::Same);
        let told = [(2, 80, 5), (2, 95, 6)];
        assert_eq!(judged(&[1, 2, 3], 1, &told), Agreement::Others(ids(&[2])));
    }

    #[test]
    fn what_is_told_and_remembered_has_a_limit_and_common_marks() {
        let mut own = OwnDigests::default();
        (0..5_000).for_each(|index| own.applied(index, u128::from(index)));
        assert_eq!(own.0.len(), OWN_MAX);
        let told = |others| -> Vec<u64> {
            own.to_report(others).into_iter().map(|(index, _)| index).collect()
        };
        assert_eq!(told(None), [4_928, 4_992, 4_999]);
        assert_eq!(told(Some(4_950)), [4_928, 4_950, 4_992, 4_999]);
        assert_eq!(told(Some(7)), told(Some(9_000)), "what is not known is not told");
        own.restored(9_000, 1);
        assert_eq!(own.to_report(None), [(9_000, 1)]);
        own.applied(9_001, 2);
        assert_eq!(own.to_report(Some(9_000)), [(9_000, 1), (9_001, 2)]);
        let mut others = OtherDigests::default();
        for index in 0..100 {
            others.receive(&own, NodeId(2), &[(index, 3)]);
        }
        assert!(others.0[&NodeId(2)].len() <= TOLD_MAX);
        assert_eq!(others.newest(NodeId(2)), Some(99));
        others.keep(&ids(&[1]));
        assert!(others.0.is_empty());
    }
}
