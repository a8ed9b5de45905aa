//! Tests of nodes: forming a cluster, joining, identity.

use crate::test_world::{
    CLUSTER, World, join_by, join_to, node_spec, put, refusal, remove, setting, token_terms,
};
use crate::{
    ClusterId, Command, DiskId, Expect, Fingerprint, Form, Item, NodeId, NodeRole, NodeSpec,
    Outcome, RecordKey, RefusalCode, Region, RegionState, TokenSignature, TokenTerms,
};

fn join(node: NodeSpec) -> Command {
    Command::RegisterNode { node }
}

fn token(uses: u32) -> TokenTerms {
    token_terms(1, uses)
}

#[test]
fn nothing_happens_before_the_cluster_is_formed() {
    let mut world = World::empty();
    assert_eq!(world.refused("a1", join(node_spec("a1", "a"))), RefusalCode::NotFormed);
    assert_eq!(world.denied(setting("join.token_required", "false")), RefusalCode::NotFormed);
    assert_eq!(world.state.cluster(), None);
}

#[test]
fn a_cluster_is_formed_once() {
    let mut world = World::of(&[("a", 1), ("b", 2)]);
    assert_eq!(world.state.cluster(), Some(CLUSTER));
    assert_eq!([1, 2, 3].map(NodeId), ["a1", "b1", "b2"].map(|name| world.node_id(name)));
    assert_eq!(world.state.records().regions.len(), 2);
    let again = |cluster| Command::Form(Form { cluster, nodes: vec![node_spec("c1", "c")] });
    let outcome = world.apply(&world.by_node("c1", again(CLUSTER)));
    assert_eq!(outcome, Outcome::Unchanged);
    assert_eq!(
        world.refused("c1", again(ClusterId::from_bytes([8; 16]))),
        RefusalCode::OtherCluster
    );
    assert_eq!(world.state.records().nodes.len(), 3);
}

#[test]
fn seeds_are_numbered_by_name() {
    let mut world = World::empty();
    let nodes = ["b1", "a1", "c1"].map(|name| node_spec(name, &name[..1])).to_vec();
    world.applied("a1", Command::Form(Form { cluster: CLUSTER, nodes }));
    assert_eq!([1, 2, 3].map(NodeId), ["a1", "b1", "c1"].map(|name| world.node_id(name)));
}

#[test]
fn ids_are_numbers_written_alike() {
    let id = ClusterId::from(0xab_u128);
    assert_eq!(id.to_string(), format!("{:032x}", 0xab_u128));
    assert_eq!(u128::from(id), 0xab);
}

#[test]
fn a_cluster_of_doubtful_nodes_is_not_formed() {
    let twice = vec![node_spec("a1", "a"), node_spec("a1", "b")];
    let same_disk =
        vec![node_spec("a1", "a"), NodeSpec { name: "a2".into(), ..node_spec("a1", "a") }];
    let nameless = vec![node_spec("a1", "")];
    for nodes in [twice, same_disk, nameless, Vec::new()] {
        let mut world = World::empty();
        let form = Command::Form(Form { cluster: CLUSTER, nodes });
        assert_eq!(world.refused("a1", form), RefusalCode::Invalid);
        assert_eq!(world.state.cluster(), None);
    }
}

#[test]
fn a_node_joins_by_token_as_often_as_the_token_says() {
    let mut world = World::of(&[("a", 1)]);
    world.done(put(Item::JoinToken("t".into(), token(1))));
    world.applied("a1", join_by(node_spec("b1", "b"), 1));
    assert_eq!(world.node_id("b1"), NodeId(2));
    assert!(world.state.records().regions.get(&"b".into()).is_some(), "with its region");
    let refused = world.refused("a1", join_by(node_spec("b2", "b"), 1));
    assert_eq!(refused, RefusalCode::TokenRefused);
    // A member needs no token to change its address, and uses none.
    let moved = NodeSpec { address: "10.0.0.9:7443".to_owned(), ..node_spec("b1", "b") };
    world.applied("b1", join(moved));
    assert_eq!(world.node_id("b1"), NodeId(2));
}

#[test]
fn a_token_that_does_not_fit_lets_nobody_in() {
    let mut world = World::of(&[("a", 1)]);
    let b1 = || node_spec("b1", "b");
    assert_eq!(world.refused("a1", join(b1())), RefusalCode::TokenRefused, "none");
    assert_eq!(world.refused("a1", join_by(b1(), 1)), RefusalCode::TokenRefused, "unknown");
    world.done(put(Item::JoinToken("t".into(), token(5))));
    assert_eq!(world.refused("a1", join_by(b1(), 2)), RefusalCode::TokenRefused, "wrong secret");
    let bound = TokenTerms { region: Some("c".into()), ..token(5) };
    world.done(put(Item::JoinToken("t".into(), bound)));
    assert_eq!(world.refused("a1", join_by(b1(), 1)), RefusalCode::TokenRefused, "other region");
    world.done(put(Item::JoinToken("t".into(), token(5))));
    world.now_ms += 60_000;
    assert_eq!(world.refused("a1", join_by(b1(), 1)), RefusalCode::TokenRefused, "expired");
    world.done(setting("join.token_required", "true"));
    world.now_ms -= 1000;
    assert_eq!(world.refused("a1", join_by(b1(), 1)), RefusalCode::TokenRefused, "time goes on");
    assert_eq!(world.state.records().nodes.len(), 1);
}

#[test]
fn a_signature_of_the_log_lets_no_other_node_in_and_none_twice() {
    let mut world = World::of(&[("a", 1)]);
    world.done(put(Item::JoinToken("t".into(), token(9))));
    let b1 = node_spec("b1", "b");
    let logged = join_by(b1.clone(), 1);
    world.applied("a1", logged.clone());
    let Command::JoinNode { token: signature, .. } = logged.clone() else { panic!("{logged:?}") };
    let is_refused = |world: &mut World, node: NodeSpec, signature: &TokenSignature| {
        let command = Command::JoinNode { node, token: signature.clone() };
        assert_eq!(world.refused("a1", command.clone()), RefusalCode::TokenRefused, "{command}");
        assert_eq!(world.denied(command), RefusalCode::TokenRefused, "nor for an operator");
    };
    for other in [node_spec("b2", "b"), node_spec("c1", "c")] {
        is_refused(&mut world, other.clone(), &signature);
        // The signature does not let in a node that copies everything but name and disk.
        let NodeSpec { name, disk, .. } = other;
        is_refused(&mut world, NodeSpec { name, disk, ..b1.clone() }, &signature);
    }
    // The signature does not count for another token of the same operator.
    let mut same = signature;
    same.id = "u".into();
    world.done(put(Item::JoinToken("u".into(), token(9))));
    is_refused(&mut world, node_spec("b2", "b"), &same);
    let uses =
        |world: &World| world.state.records().join_tokens.get(&"t".into()).unwrap().uses_left;
    assert_eq!(uses(&world), 8);
    // The same signature for the same node is accepted again: no record changes and no use is
    // counted.
    assert_eq!(world.apply(&world.by_node("a1", logged.clone())), Outcome::Unchanged);
    assert_eq!((uses(&world), world.state.records().nodes.len()), (8, 2));
    // The signature does not bring the removed node back.
    world.done(remove(RecordKey::Node(NodeId(2))));
    assert_eq!(world.refused("a1", logged), RefusalCode::RetiredDisk);
}

#[test]
fn a_signature_for_another_cluster_or_of_changed_terms_lets_nobody_in() {
    let mut world = World::of(&[("a", 1)]);
    world.done(put(Item::JoinToken("t".into(), token(9))));
    let b1 = node_spec("b1", "b");
    let foreign = join_to(ClusterId::from_bytes([8; 16]), b1.clone(), 1);
    assert_eq!(world.refused("a1", foreign.clone()), RefusalCode::TokenRefused);
    let good = join_by(b1.clone(), 1);
    let Command::JoinNode { token: signature, .. } = good.clone() else { panic!("{good:?}") };
    for node in [
        NodeSpec { address: "10.0.0.9:7443".to_owned(), ..b1.clone() },
        NodeSpec { region: "c".into(), ..b1.clone() },
        NodeSpec { fingerprint: Fingerprint([8; 32]), ..b1.clone() },
        NodeSpec { wire_oldest: 0, ..b1 },
    ] {
        let command = Command::JoinNode { node, token: signature.clone() };
        assert_eq!(world.refused("a1", command), RefusalCode::TokenRefused);
    }
    assert_eq!(world.state.records().nodes.len(), 1);
    // A signature for the old cluster ends when the cluster is recreated, and one for the new
    // cluster begins to count.
    let (from, to) = (CLUSTER, ClusterId::from_bytes([8; 16]));
    world.applied("a1", Command::ReplaceCluster { from, to });
    assert_eq!(world.refused("a1", good), RefusalCode::TokenRefused);
    world.applied("a1", foreign);
}

#[test]
fn an_operator_adds_nodes_without_token_and_so_does_the_setting() {
    let mut world = World::of(&[("a", 1)]);
    world.done(join(node_spec("b1", "b")));
    world.done(setting("join.token_required", "false"));
    world.applied("a1", join(node_spec("c1", "c")));
}

#[test]
fn a_wiped_disk_is_another_node_and_needs_an_operator() {
    let mut world = World::of(&[("a", 1), ("b", 1)]);
    world.done(setting("join.token_required", "false"));
    let wiped = NodeSpec { disk: DiskId::from_bytes([0xee; 16]), ..node_spec("b1", "b") };
    let outcome = world.apply(&world.by_node("b1", join(wiped.clone())));
    let refused = refusal(outcome);
    assert_eq!(refused.code, RefusalCode::WipedDisk);
    assert!(refused.remedy.contains("remove node 2"), "{refused}");
    assert_eq!(world.denied(join(wiped.clone())), RefusalCode::WipedDisk, "not even an operator");
    world.done(remove(RecordKey::Node(NodeId(2))));
    world.applied("a1", join(wiped));
    assert_eq!(world.node_id("b1"), NodeId(3), "ids are not given twice");
    // The old disk still has the old node's votes on it.
    let old = NodeSpec { name: "b2".into(), ..node_spec("b1", "b") };
    assert_eq!(world.refused("a1", join(old)), RefusalCode::RetiredDisk);
}

#[test]
fn a_copied_disk_is_not_a_second_node() {
    let mut world = World::of(&[("a", 1)]);
    let copied = NodeSpec { name: "a2".into(), ..node_spec("a1", "a") };
    assert_eq!(world.denied(join(copied)), RefusalCode::RetiredDisk);
}

#[test]
fn a_node_does_not_change_its_region() {
    let mut world = World::of(&[("a", 1), ("b", 1)]);
    let moved = NodeSpec { region: "c".into(), ..node_spec("b1", "b") };
    assert_eq!(world.refused("b1", join(moved)), RefusalCode::InUse);
}

#[test]
fn a_node_that_cannot_read_the_log_does_not_join() {
    let mut world = World::of(&[("a", 1)]);
    let old = NodeSpec { wire_oldest: 0, wire_newest: 0, ..node_spec("b1", "b") };
    assert_eq!(world.denied(join(old)), RefusalCode::WireVersion);
    let odd = NodeSpec { wire_oldest: 3, wire_newest: 2, ..node_spec("b1", "b") };
    assert_eq!(world.denied(join(odd)), RefusalCode::Invalid);
}

#[test]
fn the_last_node_stays() {
    let mut world = World::of(&[("a", 2)]);
    world.done(remove(RecordKey::Node(NodeId(1))));
    assert_eq!(world.denied(remove(RecordKey::Node(NodeId(2)))), RefusalCode::InUse);
    assert_eq!(world.denied(remove(RecordKey::Node(NodeId(1)))), RefusalCode::Unknown);
}

#[test]
fn an_evacuated_region_goes_with_all_that_is_in_it() {
    let mut world = World::of(&[("a", 1), ("b", 2)]);
    world.register("b/r", crate::LeaseSource::Lease { length_ms: 30_000 }, 1);
    let bound = TokenTerms { region: Some("b".into()), ..token(5) };
    world.done(put(Item::JoinToken("t".into(), bound)));
    let key = || RecordKey::Region("b".into());
    assert_eq!(world.denied(remove(key())), RefusalCode::InUse);
    let (region, state) = ("b".into(), RegionState::Evacuating);
    world.done(Command::SetRegionState { region, state, expect: Expect::Any });
    world.done(remove(key()));
    let records = world.state.records();
    assert_eq!((records.nodes.len(), records.regions.len()), (1, 1));
    assert!(records.replicas.is_empty() && records.leases.is_empty());
    assert!(records.join_tokens.is_empty());
    assert_eq!(world.state.region_clock_ms(&"b".into()), None);
    assert_eq!(world.changes.len(), 5, "{:?}", world.changes);
}

#[test]
fn the_last_region_with_nodes_stays() {
    let mut world = World::of(&[("a", 2)]);
    let (region, state) = ("a".into(), RegionState::Evacuating);
    world.done(Command::SetRegionState { region, state, expect: Expect::Any });
    assert_eq!(world.denied(remove(RecordKey::Region("a".into()))), RefusalCode::InUse);
    world.done(put(Item::Region("c".into(), Region::default())));
    world.done(remove(RecordKey::Region("c".into())));
}

#[test]
fn regions_and_roles_are_set_by_operators_alone() {
    let mut world = World::of(&[("a", 1)]);
    let weigh = |weight_permille| Command::SetRegionWeight {
        region: "a".into(),
        weight_permille,
        expect: Expect::Any,
    };
    assert_eq!(world.refused("a1", weigh(5)), RefusalCode::NotPermitted);
    world.done(weigh(500));
    assert_eq!(world.denied(weigh(10_001)), RefusalCode::Invalid);
    let role = Command::SetNodeRole {
        node: NodeId(1),
        role: NodeRole::Learner,
        expect: Expect::Version(1),
    };
    assert_eq!(world.refused("a1", role.clone()), RefusalCode::NotPermitted);
    world.done(role);
    assert_eq!(world.state.records().nodes.get(&NodeId(1)).unwrap().role, NodeRole::Learner);
    assert_eq!(world.state.records().regions.get(&"a".into()).unwrap().weight_permille, 500);
}

#[test]
fn a_cluster_made_anew_has_another_id() {
    let mut world = World::of(&[("a", 1), ("b", 2)]);
    let replace = |from| Command::ReplaceCluster { from, to: ClusterId::from_bytes([9; 16]) };
    assert_eq!(
        world.refused("a1", replace(ClusterId::from_bytes([1; 16]))),
        RefusalCode::OtherCluster
    );
    assert_eq!(world.refused("z1", replace(CLUSTER)), RefusalCode::NotPermitted, "not of it");
    assert_eq!(world.state.records().nodes.len(), 3);
    world.applied("b1", replace(CLUSTER));
    assert_eq!(world.state.cluster(), Some(ClusterId::from_bytes([9; 16])));
    let nodes = world.state.records().nodes.iter();
    let names: Vec<_> = nodes.map(|(_, node)| node.spec.name.as_str()).collect();
    assert_eq!(names, ["b1"], "the others join anew");
    assert_eq!(world.refused("b1", replace(CLUSTER)), RefusalCode::OtherCluster, "once");
}

#[test]
fn nodes_of_a_cluster_made_anew_join_under_their_old_names_with_other_disks() {
    let mut world = World::of(&[("a", 1), ("b", 1)]);
    let (from, to) = (CLUSTER, ClusterId::from_bytes([9; 16]));
    world.applied("a1", Command::ReplaceCluster { from, to });
    let old = || node_spec("b1", "b");
    assert!(
        world.state.is_retired(old().disk)
            && !world.state.is_retired(DiskId::from_bytes([0xee; 16]))
    );
    world.done(put(Item::JoinToken("t".into(), token(2))));
    assert_eq!(world.refused("a1", join_by(old(), 1)), RefusalCode::RetiredDisk);
    let wiped = NodeSpec { disk: DiskId::from_bytes([0xee; 16]), ..old() };
    assert_eq!(world.refused("a1", join(wiped.clone())), RefusalCode::TokenRefused);
    world.applied("a1", join_to(to, wiped, 1));
    assert_eq!(world.node_id("b1"), NodeId(3), "ids are not given twice");
}
