//! Choice of voters.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::RegionName;

use crate::limits::{VOTERS_MAX, VOTERS_MIN};
use crate::{Node, NodeId, NodeRole, RegionState, State};

/// Members of the Raft group at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Nodes with a vote.
    pub voters: BTreeSet<NodeId>,
    /// Nodes that follow the log without a vote.
    pub learners: BTreeSet<NodeId>,
}

/// The leader's view of nodes. A node counts as dead if it was silent for the time in the setting
/// `voters.dead_after_ms`; the leader itself lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterFacts {
    /// Nodes that live.
    pub live: BTreeSet<NodeId>,
    /// Learners whose log is nearly the leader's, so that their vote would not delay commits.
    pub caught_up: BTreeSet<NodeId>,
}

/// Next change of the members. Carry it out, wait until it is committed, and ask again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum MembershipPlan {
    /// The members are right, or no change is possible yet.
    Nothing,
    /// Most voters are dead: no change could be committed. Operators may have to decide.
    NoMajority,
    /// Add this node as a learner.
    AddLearner(NodeId),
    /// Remove this learner.
    RemoveLearner(NodeId),
    /// Give the vote to exactly these nodes: at most one more and one less than now. A voter that
    /// is left out becomes a learner.
    ChangeVoters(BTreeSet<NodeId>),
}

/// Returns the next change of the members: one voter for each region and at most five, dead voters
/// replaced by caught-up learners, no voters in removed or evacuated regions.
///
/// Edge nodes vote only where fewer than three others can.
///
/// With fewer than three regions, nodes of one region fill the group up to three voters. A dead
/// voter without a replacement keeps its place unless the rest would survive more failures without
/// it. Neither the present nor the planned voters ever lack a living majority.
pub fn voters(state: &State, sight: &VoterFacts, current: &Membership) -> MembershipPlan {
    if !has_majority(&current.voters, &sight.live) {
        return MembershipPlan::NoMajority;
    }
    let view = View::new(state, sight, current);
    view.learner_to_remove()
        .map(MembershipPlan::RemoveLearner)
        .or_else(|| view.learner_to_add().map(MembershipPlan::AddLearner))
        .or_else(|| view.voters_to_be().map(MembershipPlan::ChangeVoters))
        .unwrap_or(MembershipPlan::Nothing)
}

fn has_majority(voters: &BTreeSet<NodeId>, live: &BTreeSet<NodeId>) -> bool {
    2 * voters.intersection(live).count() > voters.len()
}

struct View<'a> {
    state: &'a State,
    sight: &'a VoterFacts,
    current: &'a Membership,
    /// True if no edge node votes. A voter can become leader, and a leader can write anything, so
    /// edge nodes are not trusted with a vote. With fewer than three other nodes they vote too, or
    /// one failure would stop all writes.
    is_strict: bool,
}

impl<'a> View<'a> {
    fn new(state: &'a State, sight: &'a VoterFacts, current: &'a Membership) -> Self {
        // Counted as if edge nodes had no vote: that decides whether they need one.
        let view = Self { state, sight, current, is_strict: true };
        let nodes = state.records().nodes.iter();
        let trusted = nodes.filter(|(id, node)| view.may_vote(**id, node)).count();
        Self { is_strict: trusted >= VOTERS_MIN, ..view }
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.state.records().nodes.get(&id)
    }

    fn learner_to_remove(&self) -> Option<NodeId> {
        self.current.learners.iter().copied().find(|id| self.node(*id).is_none())
    }

    fn learner_to_add(&self) -> Option<NodeId> {
        let Membership { voters, learners } = self.current;
        let is_in = |id: &NodeId| voters.contains(id) || learners.contains(id);
        // A silent node could not follow the log.
        let is_new = |id: &&NodeId| self.sight.live.contains(id) && !is_in(id);
        self.state.records().nodes.keys().find(is_new).copied()
    }

    /// Returns the voters after the next step; None if there is no step that helps and is safe.
    fn voters_to_be(&self) -> Option<BTreeSet<NodeId>> {
        let (target, now) = (self.target(), &self.current.voters);
        // All nodes that begin a cluster together vote at first, which may be more than allowed. No
        // other node enters until enough have left.
        let entering = target.difference(now).next().filter(|_| now.len() <= VOTERS_MAX);
        // Dead voters leave first, so that each step keeps as many living voters as possible.
        let is_dead = |id: &&NodeId| !self.sight.live.contains(id);
        let leaving: Vec<&NodeId> = now.difference(&target).collect();
        let leaving = leaving.iter().copied().find(is_dead).or_else(|| leaving.first().copied());
        let with = |leaving: Option<&NodeId>| {
            let mut voters = now.clone();
            leaving.map(|id| voters.remove(id));
            voters.extend(entering);
            voters
        };
        let is_step = |voters: &BTreeSet<NodeId>| {
            let is_few = voters.len() <= VOTERS_MAX || voters.len() < now.len();
            voters != now && is_few && has_majority(voters, &self.sight.live)
        };
        // Where the exchange would leave no living majority, the new voter enters first.
        [with(leaving), with(None)].into_iter().find(is_step)
    }

    /// Returns the voters to reach after all steps.
    fn target(&self) -> BTreeSet<NodeId> {
        let mut by_region = self.candidates();
        let regions = by_region.len();
        // Regions with a voter come first, so that no vote moves without need.
        by_region.sort_by_key(|nodes| (!self.votes(nodes), nodes.first().copied()));
        let mut chosen: BTreeSet<NodeId> =
            by_region.iter().filter_map(|nodes| nodes.first()).copied().take(VOTERS_MAX).collect();
        // One voter for each region would be too few: more nodes of a region vote.
        if regions < VOTERS_MIN {
            let rest = by_region.iter().flat_map(|nodes| nodes.iter().skip(1));
            let mut rest: Vec<NodeId> = rest.copied().collect();
            rest.sort_by_key(|id| (!self.current.voters.contains(id), *id));
            chosen.extend(rest.into_iter().take(VOTERS_MIN.saturating_sub(regions)));
        }
        if chosen.is_empty() {
            // No node may vote, e.g. while all regions are evacuated: the present voters stay.
            return self.current.voters.clone();
        }
        self.made_odd(chosen, &by_region, regions)
    }

    /// Returns the living nodes that may vote, one list for each region, best choice first.
    fn candidates(&self) -> Vec<Vec<NodeId>> {
        let is_ready = |id: &NodeId| {
            self.current.voters.contains(id)
                || (self.current.learners.contains(id) && self.sight.caught_up.contains(id))
        };
        let mut by_region: BTreeMap<&RegionName, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in self.state.records().nodes.iter() {
            if self.sight.live.contains(id) && is_ready(id) && self.may_vote(*id, node) {
                by_region.entry(&node.spec.region).or_default().push(*id);
            }
        }
        let mut by_region: Vec<Vec<NodeId>> = by_region.into_values().collect();
        // A present voter first, so that no vote moves without need; then by id, equally on every
        // leader.
        let order = |id: &NodeId| (!self.current.voters.contains(id), *id);
        by_region.iter_mut().for_each(|nodes| nodes.sort_by_key(order));
        by_region
    }

    fn may_vote(&self, id: NodeId, node: &Node) -> bool {
        let region = self.state.records().regions.get(&node.spec.region);
        node.role == NodeRole::Any
            && (!self.is_strict || !self.state.is_edge(id))
            && region.is_some_and(|region| region.state != RegionState::Evacuating)
    }

    fn votes(&self, nodes: &[NodeId]) -> bool {
        nodes.first().is_some_and(|id| self.current.voters.contains(id))
    }

    /// Makes the number of voters odd where possible, since an even number survives no more
    /// failures than one less. A dead voter may stay as the odd one, which costs nothing and saves
    /// a change when it is back; else four become three. Two stay two: committed entries are then
    /// on two disks.
    fn made_odd(
        &self,
        mut chosen: BTreeSet<NodeId>,
        by_region: &[Vec<NodeId>],
        regions: usize,
    ) -> BTreeSet<NodeId> {
        if !chosen.len().is_multiple_of(2) {
            return chosen;
        }
        let taken: BTreeSet<_> =
            chosen.iter().filter_map(|id| self.node(*id)).map(|node| &node.spec.region).collect();
        let may_stay = |id: &&NodeId| {
            let node = self.node(**id).filter(|node| self.may_vote(**id, node));
            let is_needed =
                |node: &Node| regions < VOTERS_MIN || !taken.contains(&node.spec.region);
            !self.sight.live.contains(id) && node.is_some_and(is_needed)
        };
        if let Some(dead) = self.current.voters.iter().find(may_stay) {
            chosen.insert(*dead);
        } else if chosen.len() > VOTERS_MIN
            && let Some(last) = by_region.iter().filter_map(|nodes| nodes.first()).next_back()
        {
            chosen.remove(last);
        }
        chosen
    }
}
