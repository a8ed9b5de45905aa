//! Tests of the memory of removed nodes, and of the origins of join tokens.

use crate::members_test::{by_operator_at, enforced, joining, joining_as, token_item};
use crate::test_world::{World, node_spec, put, refusal, remove};
use crate::{
    ApplyError, Command, CommandError, DiskId, Expect, Fingerprint, Item, NodeSpec, Outcome,
    RecordKey, RefusalCode, RegionState, dry_run,
};

/// Returns a node's command to join with this disk and certificate.
fn joining_with(name: &str, disk: u8, certificate: u8, token: Option<&str>) -> Command {
    let (disk, fingerprint) = (DiskId::from_bytes([disk; 16]), Fingerprint([certificate; 32]));
    joining_as(NodeSpec { disk, fingerprint, ..node_spec(name, &name[..1]) }, token)
}

#[track_caller]
fn turned_away(world: &mut World, command: Command) -> CommandError {
    let refusal = refusal(world.apply(&world.by_node("a1", command)));
    assert_eq!(refusal.code, RefusalCode::TokenRefused);
    assert!(refusal.cause.contains("was removed"), "{refusal}");
    refusal
}

#[test]
fn a_removed_node_is_known_by_its_name_or_by_its_certificate() {
    let mut world = enforced();
    world.done(put(token_item("before", false)));
    world.applied("a1", joining_with("x1", 0x61, 1, Some("before")));
    world.done(remove(RecordKey::Node(world.node_id("x1"))));
    turned_away(&mut world, joining_with("x1", 0x62, 2, Some("before")));
    turned_away(&mut world, joining_with("x2", 0x62, 1, Some("before")));
    world.applied("a1", joining_with("x2", 0x62, 2, Some("before")));
}

#[test]
fn a_token_has_to_be_later_than_all_removals_that_match() {
    for first in ["x1", "y1"] {
        let mut world = enforced();
        world.done(put(token_item("before", false)));
        world.applied("a1", joining_with("x1", 0x61, 1, Some("before")));
        world.applied("a1", joining_with("y1", 0x62, 2, Some("before")));
        world.done(remove(RecordKey::Node(world.node_id(first))));
        world.done(put(token_item("between", false)));
        let second = if first == "x1" { "y1" } else { "x1" };
        world.done(remove(RecordKey::Node(world.node_id(second))));
        turned_away(&mut world, joining_with("x1", 0x63, 2, Some("between")));
        world.done(put(token_item("after", false)));
        world.applied("a1", joining_with("x1", 0x63, 2, Some("after")));
    }
}

#[test]
fn an_operator_takes_a_removed_node_in_without_a_token() {
    let mut world = enforced();
    world.done(remove(RecordKey::Node(world.node_id("e1"))));
    world.done(joining("e1", 0x71, None));
    assert!(!world.state.is_removed(&"e1".into()) && !world.state.may_order(&"e1".into()));
}

#[test]
fn a_region_with_all_nodes_that_give_orders_is_not_removed() {
    let mut world = World::of(&[("a", 1), ("b", 1)]);
    for node in ["a1", "b1"] {
        world.applied(node, Command::DeclareOperators { is_operator: node == "a1" });
    }
    world.applied("a1", Command::EnforceMembership);
    let (region, state) = ("a".into(), RegionState::Evacuating);
    world.done(Command::SetRegionState { region, state, expect: Expect::Any });
    let region = || remove(RecordKey::Region("a".into()));
    let refused = refusal(world.apply(&world.by_operator(region())));
    assert!(refused.cause.contains("operators' orders"), "{refused}");
    let node = world.node_id("b1");
    world.done(Command::SetNodeOperators { node, is_operator: true, expect: Expect::Any });
    world.done(region());
    assert!(world.state.may_order(&"b1".into()) && world.state.is_removed(&"a1".into()));
}

#[test]
fn the_last_node_to_speak_leaves_somebody_to_give_orders() {
    let mut world = World::of(&[("a", 1), ("b", 1)]);
    world.applied("a1", Command::DeclareOperators { is_operator: false });
    world.applied("a1", Command::EnforceMembership);
    world.applied("b1", Command::DeclareOperators { is_operator: false });
    assert!(["a1", "b1"].into_iter().all(|node| world.state.may_order(&node.into())));
}

#[test]
fn a_token_that_is_written_anew_grants_no_more_than_it_says() {
    let mut world = enforced();
    world.done(put(token_item("t", true)));
    world.done(put(token_item("t", false)));
    world.applied("a1", joining("c1", 0x61, Some("t")));
    assert!(!world.state.may_order(&"c1".into()));
}

#[test]
fn where_a_token_comes_from_is_forgotten_with_it() {
    let mut world = enforced();
    let Item::JoinToken(id, mut terms) = token_item("bound", true) else { unreachable!() };
    terms.region = Some("b".into());
    world.done(put(Item::JoinToken(id, terms)));
    world.done(put(token_item("free", true)));
    assert_eq!(world.state.records().token_origins.len(), 2);
    world.done(remove(RecordKey::JoinToken("free".into())));
    assert_eq!(world.state.records().token_origins.len(), 1);
    let (region, state) = ("b".into(), RegionState::Evacuating);
    world.done(Command::SetRegionState { region, state, expect: Expect::Any });
    world.done(remove(RecordKey::Region("b".into())));
    assert!(world.state.records().token_origins.is_empty());
}

#[test]
fn rights_and_origins_are_not_removed_by_themselves() {
    let mut world = enforced();
    world.done(put(token_item("t", false)));
    let right = RecordKey::NodeRight(world.node_id("a1"));
    for key in [right, RecordKey::TokenOrigin("t".into())] {
        assert_eq!(world.denied(remove(key)), RefusalCode::NotPermitted);
    }
    assert!(world.state.may_order(&"a1".into()));
    assert_eq!(world.state.records().token_origins.len(), 1);
}

#[test]
fn an_order_without_the_right_is_not_even_tried_out() {
    let mut world = enforced();
    let order = remove(RecordKey::Node(world.node_id("b1")));
    assert!(dry_run(&world.state, &by_operator_at(&world, "a1", order.clone())).is_ok());
    for node in ["e1", "x1"] {
        let refused = dry_run(&world.state, &by_operator_at(&world, node, order.clone()));
        let Err(ApplyError::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal.code, RefusalCode::NotPermitted);
    }
    let outcome = world.apply(&world.by_operator(order));
    assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
}
