//! Who votes.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::RegionName;

use crate::limits::{VOTERS_MAX, VOTERS_MIN};
use crate::{Node, NodeId, NodeRole, RegionState, State};

/// Who takes part in Raft at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Who votes.
    pub voters: BTreeSet<NodeId>,
    /// Who follows without a vote.
    pub learners: BTreeSet<NodeId>,
}

/// What the leader sees of nodes. A node counts as dead once it was not heard of for the setting
/// `voters.dead_after_ms`; the leader itself lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Who lives.
    pub live: BTreeSet<NodeId>,
    /// Learners whose log is nearly the leader's, so that a vote of theirs does not hold up commits.
    pub caught_up: BTreeSet<NodeId>,
}

/// The next step. Carry it out, wait until it is committed, and ask again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum MembershipPlan {
    /// All is as it should be, or nothing can be done yet.
    Nothing,
    /// Most voters are dead: no change could be committed. People may have to decide.
    NoMajority,
    /// Let this node follow the log.
    AddLearner(NodeId),
    /// Take this node out; it has no vote.
    RemoveLearner(NodeId),
    /// Let exactly these vote: at most one more and one less than now. Who leaves becomes a
    /// learner.
    ChangeVoters(BTreeSet<NodeId>),
}

/// Says what to change about who votes, one step at a time: one voter for each region and at most
/// five, dead ones replaced by caught-up learners, nodes of removed or evacuated regions out.
///
/// Edge nodes vote only where fewer than three others can.
///
/// With fewer than three regions, nodes of one region fill the group up to three voters. A dead
/// voter that nobody can replace keeps its place as long as leaving it out would not let the rest
/// survive more. Neither the present nor the planned voters ever lack a living majority.
pub fn voters(state: &State, sight: &Sight, current: &Membership) -> MembershipPlan {
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
    sight: &'a Sight,
    current: &'a Membership,
    /// Whether no edge node votes: a voter can lead, and a leader writes what it likes. With fewer
    /// than three others they vote too, or one failure would stop all writes.
    is_strict: bool,
}

impl<'a> View<'a> {
    fn new(state: &'a State, sight: &'a Sight, current: &'a Membership) -> Self {
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
        let is_new = |id: &&NodeId| self.sight.live.contains(id) && !is_in(id);
        self.state.records().nodes.keys().find(is_new).copied()
    }

    /// The voters after the next step, if there is one.
    fn voters_to_be(&self) -> Option<BTreeSet<NodeId>> {
        let (target, now) = (self.target(), &self.current.voters);
        let entering = target.difference(now).next();
        // The dead first, so that each step leaves as many living ones as can be.
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
            voters != now && voters.len() <= VOTERS_MAX && has_majority(voters, &self.sight.live)
        };
        [with(leaving), with(None)].into_iter().find(is_step)
    }

    /// Who should vote in the end.
    fn target(&self) -> BTreeSet<NodeId> {
        let mut by_region = self.candidates();
        let regions = by_region.len();
        // First those that vote already, so that nothing moves without need.
        by_region.sort_by_key(|nodes| (!self.votes(nodes), nodes.first().copied()));
        let mut chosen: BTreeSet<NodeId> =
            by_region.iter().filter_map(|nodes| nodes.first()).copied().take(VOTERS_MAX).collect();
        if regions < VOTERS_MIN {
            let rest = by_region.iter().flat_map(|nodes| nodes.iter().skip(1));
            let mut rest: Vec<NodeId> = rest.copied().collect();
            rest.sort_by_key(|id| (!self.current.voters.contains(id), *id));
            chosen.extend(rest.into_iter().take(VOTERS_MIN.saturating_sub(regions)));
        }
        if chosen.is_empty() {
            // Nobody else may vote, e.g. while all regions are evacuated: better these than nobody.
            return self.current.voters.clone();
        }
        self.made_odd(chosen, &by_region, regions)
    }

    /// Those that may vote and live, region by region; in each, the one to prefer first.
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

    /// An even number of voters survives no more failures than one less. So a dead voter may stay
    /// as the odd one, which costs nothing and saves a change when it is back; else four become
    /// three. Two stay two: what is committed is then on two disks.
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
