//! Tests of the choice of voters, step by step.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::test_world::{World, node_spec, remove};
use crate::{
    Command, Expect, Membership, MembershipPlan, NodeId, NodeRole, RecordKey, RegionState,
    VOTERS_MAX, VoterFacts, voters,
};

/// A cluster that carries out every planned step.
struct Group {
    world: World,
    sight: VoterFacts,
    membership: Membership,
}

impl Group {
    /// Returns a group whose nodes all live and have caught up; those in `voting` vote.
    fn new(regions: &[(&str, usize)], voting: &[&str]) -> Self {
        let world = World::of(regions);
        let live: BTreeSet<NodeId> = world.state.records().nodes.keys().copied().collect();
        let voters = voting.iter().map(|name| world.node_id(name)).collect();
        let membership = Membership { voters, learners: BTreeSet::new() };
        Self { world, sight: VoterFacts { caught_up: live.clone(), live }, membership }
    }

    fn plan(&self) -> MembershipPlan {
        voters(&self.world.state, &self.sight, &self.membership)
    }

    fn dies(&mut self, name: &str) {
        let id = self.world.node_id(name);
        self.sight.live.remove(&id);
        self.sight.caught_up.remove(&id);
    }

    fn comes_back(&mut self, name: &str) {
        let id = self.world.node_id(name);
        self.sight.live.insert(id);
        self.sight.caught_up.insert(id);
    }

    fn set(&mut self, region: &str, state: RegionState) {
        let region = region.into();
        self.world.done(Command::SetRegionState { region, state, expect: Expect::Any });
    }

    /// Carries out steps until there is none, and returns how many changed the voters.
    fn settle(&mut self) -> usize {
        let mut changes = 0;
        for _ in 0..100 {
            match self.plan() {
                MembershipPlan::Nothing | MembershipPlan::NoMajority => return changes,
                MembershipPlan::AddLearner(id) => {
                    assert!(!self.membership.voters.contains(&id));
                    assert!(self.membership.learners.insert(id));
                }
                MembershipPlan::RemoveLearner(id) => {
                    assert!(self.membership.learners.remove(&id));
                }
                MembershipPlan::ChangeVoters(next) => {
                    self.check(&next);
                    changes += 1;
                    let left: Vec<_> = self.membership.voters.difference(&next).copied().collect();
                    self.membership.learners.extend(left);
                    self.membership.learners.retain(|id| !next.contains(id));
                    self.membership.voters = next;
                }
            }
        }
        panic!("it never ends: {:?}", self.membership);
    }

    /// Checks the conditions on every step: living majorities, at most one voter in and one out.
    fn check(&self, next: &BTreeSet<NodeId>) {
        let now = &self.membership.voters;
        for group in [now, next] {
            let alive = group.intersection(&self.sight.live).count();
            assert!(2 * alive > group.len(), "no living majority in {group:?}");
        }
        assert!(next.difference(now).count() <= 1 && now.difference(next).count() <= 1);
        assert_ne!(next, now);
        assert!(next.len() <= VOTERS_MAX.max(now.len()));
        for entering in next.difference(now) {
            assert!(self.sight.live.contains(entering) && self.sight.caught_up.contains(entering));
            assert!(self.membership.learners.contains(entering));
        }
    }

    fn names(&self) -> String {
        let name = |id: &NodeId| {
            let node = self.world.state.records().nodes.get(id);
            node.map_or_else(|| "?".to_owned(), |node| node.spec.name.to_string())
        };
        let mut names: Vec<_> = self.membership.voters.iter().map(name).collect();
        names.sort();
        names.join(" ")
    }
}

#[test]
fn each_region_gets_one_voter() {
    let mut group = Group::new(&[("a", 2), ("b", 2), ("c", 2)], &["a1"]);
    group.settle();
    assert_eq!(group.names(), "a1 b1 c1");
    assert_eq!(group.membership.learners.len(), 3);
    assert_eq!(group.plan(), MembershipPlan::Nothing);
}

#[test]
fn there_are_five_at_most_and_an_odd_number() {
    let regions = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1), ("g", 1)];
    for (count, voters) in [(3, 3), (4, 3), (5, 5), (6, 5), (7, 5)] {
        let mut group = Group::new(&regions[..count], &["a1"]);
        group.settle();
        assert_eq!(group.membership.voters.len(), voters, "{count} regions");
    }
}

#[test]
fn a_cluster_that_more_began_than_may_vote_shrinks_to_five() {
    let regions = [("a", 1), ("b", 2), ("c", 1), ("d", 1), ("e", 1), ("f", 1), ("g", 1)];
    let names = ["a1", "b1", "b2", "c1", "d1", "e1", "f1"];
    let mut group = Group::new(&regions, &names);
    // A dead voter gives up its seat first.
    group.dies("c1");
    group.settle();
    assert_eq!(group.membership.voters.len(), VOTERS_MAX, "{}", group.names());
    assert!(!group.names().contains("c1") && !group.names().contains("b2"), "{}", group.names());
    assert_eq!(group.plan(), MembershipPlan::Nothing);
}

#[test]
fn few_regions_share_three_voters() {
    let mut group = Group::new(&[("a", 4)], &["a1"]);
    group.settle();
    assert_eq!(group.names(), "a1 a2 a3");
    let mut group = Group::new(&[("a", 1), ("b", 3)], &["a1"]);
    group.settle();
    assert_eq!(group.names(), "a1 b1 b2");
    let mut group = Group::new(&[("a", 1), ("b", 1)], &["a1"]);
    group.settle();
    assert_eq!(group.names(), "a1 b1", "two disks are more than one");
}

#[test]
fn a_third_region_takes_over_the_seat_of_a_second_node() {
    let mut group = Group::new(&[("a", 2), ("b", 1)], &["a1", "a2", "b1"]);
    group.world.done(Command::RegisterNode { node: node_spec("c1", "c") });
    group.comes_back("c1");
    assert_eq!(group.settle(), 1, "in one step");
    assert_eq!(group.names(), "a1 b1 c1");
}

#[test]
fn a_learner_that_lags_does_not_vote() {
    let mut group = Group::new(&[("a", 1), ("b", 1), ("c", 1)], &["a1"]);
    let lagging = group.world.node_id("c1");
    group.sight.caught_up.remove(&lagging);
    group.settle();
    assert_eq!(group.names(), "a1 b1");
    assert!(group.membership.learners.contains(&lagging));
    group.comes_back("c1");
    group.settle();
    assert_eq!(group.names(), "a1 b1 c1");
}

#[test]
fn a_dead_voter_is_replaced_by_its_neighbour_in_one_step() {
    let mut group = Group::new(&[("a", 2), ("b", 2), ("c", 2)], &["a1", "b1", "c1"]);
    group.settle();
    group.dies("b1");
    assert_eq!(group.settle(), 1);
    assert_eq!(group.names(), "a1 b2 c1");
    group.comes_back("b1");
    assert_eq!(group.settle(), 0, "who took over stays");
}

#[test]
fn a_dead_voter_that_nobody_replaces_keeps_its_place() {
    let mut group = Group::new(&[("a", 1), ("b", 1), ("c", 1)], &["a1", "b1", "c1"]);
    group.dies("c1");
    assert_eq!(group.settle(), 0);
    let five = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1)];
    let mut group = Group::new(&five, &["a1", "b1", "c1", "d1", "e1"]);
    group.dies("e1");
    assert_eq!(group.settle(), 0, "four of five survive as much as three of three");
    group.dies("d1");
    assert_eq!(group.settle(), 2, "three of three survive one more");
    assert_eq!(group.names(), "a1 b1 c1");
    group.comes_back("d1");
    group.comes_back("e1");
    group.settle();
    assert_eq!(group.names(), "a1 b1 c1 d1 e1");
}

#[test]
fn without_a_living_majority_nothing_is_planned() {
    let mut group = Group::new(&[("a", 2), ("b", 2), ("c", 2)], &["a1", "b1", "c1"]);
    group.dies("a1");
    group.dies("b1");
    assert_eq!(group.plan(), MembershipPlan::NoMajority);
    let nobody = Membership::default();
    let plan = voters(&group.world.state, &group.sight, &nobody);
    assert_eq!(plan, MembershipPlan::NoMajority);
}

#[test]
fn a_removed_node_leaves() {
    let mut group = Group::new(&[("a", 2), ("b", 1), ("c", 1)], &["a1", "b1", "c1"]);
    group.settle();
    let id = group.world.node_id("a1");
    group.world.done(remove(RecordKey::Node(id)));
    group.settle();
    assert_eq!(group.names(), "a2 b1 c1");
    assert!(!group.membership.learners.contains(&id));
}

#[test]
fn a_region_is_evacuated_and_removed_while_the_rest_goes_on() {
    let mut group = Group::new(&[("a", 2), ("b", 1), ("c", 1)], &["a1", "b1", "c1"]);
    group.settle();
    group.set("c", RegionState::Evacuating);
    group.settle();
    assert_eq!(group.names(), "a1 a2 b1");
    group.world.done(remove(RecordKey::Region("c".into())));
    group.settle();
    assert_eq!(group.membership.learners.len(), 0);
    group.set("a", RegionState::Evacuating);
    group.set("b", RegionState::Evacuating);
    assert_eq!(group.settle(), 0, "somebody has to");
}

#[test]
fn the_dead_leave_before_the_evacuated() {
    let mut group = Group::new(&[("a", 1), ("b", 1), ("c", 1)], &["a1", "b1", "c1"]);
    group.dies("b1");
    group.set("c", RegionState::Evacuating);
    // If the evacuated voter left first, a1 and a dead node would be left for a moment.
    assert_eq!(group.settle(), 2);
    assert_eq!(group.names(), "a1");
    group.comes_back("b1");
    group.settle();
    assert_eq!(group.names(), "a1 b1");
}

#[test]
fn three_become_five_and_three_again() {
    let regions = [("a", 1), ("b", 1), ("c", 1)];
    let mut group = Group::new(&regions, &["a1", "b1", "c1"]);
    for (name, region) in [("d1", "d"), ("e1", "e")] {
        group.world.done(Command::RegisterNode { node: node_spec(name, region) });
        group.comes_back(name);
    }
    assert_eq!(group.settle(), 2);
    assert_eq!(group.membership.voters.len(), 5);
    group.set("d", RegionState::Evacuating);
    group.set("e", RegionState::Evacuating);
    assert_eq!(group.settle(), 2);
    assert_eq!(group.names(), "a1 b1 c1");
}

#[test]
fn a_node_that_is_to_be_a_learner_does_not_vote() {
    let mut group = Group::new(&[("a", 2), ("b", 1), ("c", 1)], &["a1", "b1", "c1"]);
    let (node, role) = (group.world.node_id("a1"), NodeRole::Learner);
    group.world.done(Command::SetNodeRole { node, role, expect: Expect::Any });
    group.settle();
    assert_eq!(group.names(), "a2 b1 c1");
}

/// An event in the cluster between two plans.
#[derive(Clone, Debug)]
enum Event {
    Dies(usize),
    ComesBack(usize),
    Lags(usize),
    Leaves(usize),
    Role(usize, NodeRole),
    Region(usize, RegionState),
}

const REGIONS: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

fn event() -> impl Strategy<Value = Event> {
    let states = [RegionState::Active, RegionState::Draining, RegionState::Evacuating];
    let roles = [NodeRole::Any, NodeRole::Learner];
    let node = || any::<usize>();
    prop_oneof![
        3 => node().prop_map(Event::Dies),
        3 => node().prop_map(Event::ComesBack),
        1 => node().prop_map(Event::Lags),
        1 => node().prop_map(Event::Leaves),
        1 => (node(), prop::sample::select(roles.to_vec())).prop_map(|(n, role)| Event::Role(n, role)),
        2 => (node(), prop::sample::select(states.to_vec()))
            .prop_map(|(n, state)| Event::Region(n, state)),
    ]
}

impl Group {
    fn live_through(&mut self, event: &Event) {
        let nodes: Vec<NodeId> = self.world.state.records().nodes.keys().copied().collect();
        let node = |n: usize| nodes[n % nodes.len()];
        match *event {
            Event::Dies(n) => {
                self.sight.live.remove(&node(n));
                self.sight.caught_up.remove(&node(n));
            }
            Event::ComesBack(n) => {
                self.sight.live.insert(node(n));
                self.sight.caught_up.insert(node(n));
            }
            Event::Lags(n) => {
                self.sight.caught_up.remove(&node(n));
            }
            Event::Leaves(n) => {
                let command = remove(RecordKey::Node(node(n)));
                self.world.apply(&self.world.by_operator(command));
            }
            Event::Role(n, role) => {
                let command = Command::SetNodeRole { node: node(n), role, expect: Expect::Any };
                self.world.apply(&self.world.by_operator(command));
            }
            Event::Region(n, state) => {
                let region = REGIONS[n % REGIONS.len()].into();
                let command = Command::SetRegionState { region, state, expect: Expect::Any };
                self.world.apply(&self.world.by_operator(command));
            }
        }
    }

    /// Returns how many more failures the voters survive if removed nodes leave now.
    fn tolerance(&self) -> usize {
        let nodes = &self.world.state.records().nodes;
        let stays = |id: &&NodeId| self.sight.live.contains(id) && nodes.get(id).is_some();
        let alive = self.membership.voters.iter().filter(stays).count();
        (alive * 2).saturating_sub(self.membership.voters.len() + 1) / 2
    }

    /// Returns the number of living nodes that may vote in each region.
    fn able(&self) -> BTreeMap<String, usize> {
        let records = self.world.state.records();
        let mut able = BTreeMap::new();
        for (id, node) in records.nodes.iter() {
            let state = records.regions.get(&node.spec.region).unwrap().state;
            if self.sight.live.contains(id)
                && self.sight.caught_up.contains(id)
                && node.role == NodeRole::Any
                && state != RegionState::Evacuating
            {
                *able.entry(node.spec.region.to_string()).or_default() += 1;
            }
        }
        able
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_happens_each_step_is_safe_and_it_ends(
        sizes in prop::collection::vec(1_usize..4, 1..7),
        events in prop::collection::vec((event(), any::<bool>()), 0..40),
    ) {
        let regions: Vec<_> = REGIONS.iter().copied().zip(sizes).collect();
        let mut group = Group::new(&regions, &["a1"]);
        group.settle();
        for (event, settles) in events {
            group.live_through(&event);
            if settles {
                group.settle();
            }
        }
        let before = group.tolerance();
        let is_stuck = group.plan() == MembershipPlan::NoMajority;
        group.settle();
        if is_stuck {
            return Ok(());
        }
        // The number of voters is the one that the rule asks for with the living nodes that may
        // vote.
        let able = group.able();
        let of_rule = match (able.len(), able.values().sum::<usize>()) {
            (0, _) => return Ok(()),
            (1 | 2, nodes) => nodes.min(3),
            (regions, _) => if regions < 5 { 3 } else { 5 },
        };
        let alive = group.membership.voters.intersection(&group.sight.live).count();
        prop_assert!(alive >= of_rule, "{} vote of {:?}", alive, able);
        prop_assert!(group.membership.voters.len() <= VOTERS_MAX);
        let is_evacuated = group.world.state.records().regions.iter()
            .any(|(_, region)| region.state == RegionState::Evacuating);
        let is_limited = group.world.state.records().nodes.iter()
            .any(|(_, node)| node.role == NodeRole::Learner);
        if !is_evacuated && !is_limited {
            prop_assert!(group.tolerance() >= before.min(2), "worse than it was");
        }
        prop_assert_eq!(group.settle(), 0);
    }
}
