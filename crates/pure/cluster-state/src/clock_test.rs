//! Tests of the cluster's clock, and of the ends of tokens by it.

use crate::test_world::{
    CLUSTER, World, join_by, node_spec, put, register, renew, setting, token_key,
};
use crate::{
    Actor, Command, Entry, Form, Item, LeaseSource, NodeId, Outcome, RefusalCode, State, TokenTerms,
};

const YEAR_MS: u64 = 365 * 24 * 3_600_000;
const VALID_MS: u64 = 600_000;

fn new_token() -> Command {
    let terms = TokenTerms {
        key: token_key(1),
        region: None,
        valid_ms: VALID_MS,
        uses: 9,
        is_operator: false,
    };
    put(Item::JoinToken("t".into(), terms))
}

fn join(name: &str) -> Command {
    join_by(node_spec(name, &name[..1]), 1)
}

/// Returns an entry of `node` with this stamp that changes nothing and is not refused.
fn stamped(world: &World, node: &str, stamp_ms: u64) -> Entry {
    let command = Command::ExpireLeases { region: node[..1].into() };
    Entry { stamp_ms, ..world.by_node(node, command) }
}

/// Lets time pass. Nodes propose an entry for the clock when it is due.
fn pass(world: &mut World, wait_ms: u64) {
    world.now_ms += wait_ms;
    let nodes = world.state.records().nodes.iter();
    let names: Vec<_> = nodes.map(|(_, node)| node.spec.name.clone()).collect();
    for name in names {
        if world.state.is_time_due(&name, world.now_ms) {
            world.apply(&stamped(world, name.as_str(), world.now_ms));
        }
    }
}

/// Checks that a token that is made now lets nodes in to the end of its life, and not after.
#[track_caller]
fn check_token(world: &mut World) {
    world.done(new_token());
    pass(world, VALID_MS - 1_000);
    world.applied("a1", join("x1"));
    pass(world, 1_000);
    assert_eq!(world.refused("a1", join("y1")), RefusalCode::TokenRefused);
}

#[test]
fn a_token_made_after_an_entry_of_another_time_ends_when_it_should() {
    for regions in [&[("a", 1)][..], &[("a", 1), ("b", 1)], &[("a", 3), ("b", 2)]] {
        for ahead_ms in [YEAR_MS, u64::MAX] {
            let mut world = World::of(regions);
            let stamp_ms = world.now_ms.saturating_add(ahead_ms);
            let outcome = world.apply(&stamped(&world, "a1", stamp_ms));
            assert_eq!(outcome, Outcome::Unchanged);
            check_token(&mut world);
        }
    }
}

#[test]
fn a_flood_of_entries_of_one_node_moves_no_clock_of_the_others() {
    let mut world = World::of(&[("a", 2), ("b", 1)]);
    for _ in 0..2_000 {
        let ahead_ms = world.state.stamp_ms() + YEAR_MS;
        world.apply(&stamped(&world, "b1", ahead_ms));
    }
    assert!(world.state.stamp_ms() <= world.now_ms + 120_000, "two minutes at most");
    check_token(&mut world);
}

#[test]
fn what_is_refused_and_what_strangers_say_moves_nothing() {
    let mut world = World::of(&[("a", 1)]);
    let token = world.by_operator(new_token());
    world.apply(&token);
    let clocks = |world: &World| (world.state.stamp_ms(), world.state.region_clock_ms(&"a".into()));
    let before = clocks(&world);
    let later_ms = world.now_ms + YEAR_MS;
    let refused = world.by_node("a1", setting("nonsense", "1"));
    let strange = world.by_node("a9", Command::ExpireLeases { region: "a".into() });
    let stale = world.by_node("a1", renew("a/r", 7));
    // Forming the same cluster again changes nothing, which is no refusal.
    let form = Command::Form(Form { cluster: CLUSTER, nodes: Vec::new() });
    let idle = Entry { stamp_ms: later_ms, ..world.by_node("a9", form) };
    assert_eq!(world.apply(&idle), Outcome::Unchanged);
    assert_eq!(clocks(&world), before);
    for entry in [refused, strange, stale] {
        let outcome = world.apply(&Entry { stamp_ms: later_ms, ..entry });
        assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        assert_eq!(clocks(&world), before);
    }
    world.applied("a1", join("x1"));
    let repeated = world.by_request(1, setting("health.transition_ms", "1"));
    world.apply(&repeated);
    let before = clocks(&world);
    world.apply(&Entry { stamp_ms: later_ms, ..repeated });
    assert_eq!(clocks(&world), before, "nor does what was carried out before");
}

#[test]
fn an_order_without_the_right_moves_nothing() {
    let mut world = World::of(&[("a", 1), ("e", 1)]);
    for node in ["a1", "e1"] {
        world.applied(node, Command::DeclareOperators { is_operator: node == "a1" });
    }
    world.applied("a1", Command::EnforceMembership);
    let clocks = |world: &World| (world.state.stamp_ms(), world.state.region_clock_ms(&"e".into()));
    let before = clocks(&world);
    let order = world.by_node("e1", setting("health.transition_ms", "1"));
    let (stamp_ms, actor) = (world.now_ms + YEAR_MS, Actor::Operator("eve".to_owned()));
    let outcome = world.apply(&Entry { stamp_ms, actor, ..order });
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert_eq!(clocks(&world), before);
}

#[test]
fn what_is_written_down_of_a_wrong_clock_is_near_the_right_time() {
    let mut world = World::of(&[("a", 2), ("b", 1)]);
    let entry = world.by_node("b1", register("b/r", LeaseSource::Config, 0));
    world.apply(&Entry { stamp_ms: u64::MAX, ..entry });
    let entry = world.by_node("b1", setting("nonsense", "1"));
    world.apply(&Entry { stamp_ms: u64::MAX, ..entry });
    for (_, record) in world.state.system_audit().iter() {
        assert!(record.stamp_ms <= world.now_ms + 120_000, "{record:?}");
    }
}

/// Returns a cluster that was formed by a node whose clock was `ahead_ms` ahead.
fn formed_ahead(ahead_ms: u64, nodes: &[&str]) -> World {
    let mut world = World::empty();
    let start_ms = world.now_ms;
    world.now_ms = start_ms.saturating_add(ahead_ms);
    let nodes = nodes.iter().map(|node| node_spec(node, "a")).collect();
    world.applied("a1", Command::Form(Form { cluster: CLUSTER, nodes }));
    assert_eq!(world.state.stamp_ms(), world.now_ms);
    world.now_ms = start_ms;
    world
}

#[test]
fn a_cluster_whose_clock_was_wrong_at_first_heals() {
    for ahead_ms in [YEAR_MS, u64::MAX] {
        for nodes in [&["a1"][..], &["a1", "a2", "a3"]] {
            let mut world = formed_ahead(ahead_ms, nodes);
            // A snapshot or a backup has the wrong time, too.
            world.state = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
            for node in nodes {
                assert!(world.state.is_time_due(&(*node).into(), world.now_ms) || *node != "a1");
                world.apply(&stamped(&world, node, world.now_ms));
            }
            assert_eq!(world.state.stamp_ms(), world.now_ms, "{ahead_ms} {nodes:?}");
            check_token(&mut world);
        }
    }
}

#[test]
fn a_token_made_while_the_clock_is_wrong_keeps_what_it_has_left() {
    let mut world = formed_ahead(YEAR_MS, &["a1", "a2", "a3"]);
    world.done(new_token());
    for node in ["a2", "a3"] {
        world.apply(&stamped(&world, node, world.now_ms));
    }
    assert_eq!(world.state.stamp_ms(), world.now_ms);
    pass(&mut world, VALID_MS - 1_000);
    world.applied("a1", join("x1"));
    pass(&mut world, 1_000);
    assert_eq!(world.refused("a1", join("y1")), RefusalCode::TokenRefused);
}

#[test]
fn a_token_lives_30_days_at_most() {
    let mut world = World::of(&[("a", 1)]);
    for valid_ms in [0, 30 * 24 * 3_600_000 + 1, u64::MAX] {
        let terms =
            TokenTerms { key: token_key(1), region: None, valid_ms, uses: 1, is_operator: false };
        let command = put(Item::JoinToken("t".into(), terms));
        assert_eq!(world.denied(command), RefusalCode::Invalid);
    }
}

#[test]
fn nodes_say_the_time_in_turns_when_nobody_else_does() {
    let mut world = World::of(&[("a", 5)]);
    world.now_ms += 60_000;
    let is_due = |world: &World, node: &str| world.state.is_time_due(&node.into(), world.now_ms);
    for node in ["a3", "a1", "a5"] {
        assert!(is_due(&world, node), "{node}");
        world.apply(&stamped(&world, node, world.now_ms));
        assert!(!is_due(&world, node), "once");
    }
    assert_eq!(world.state.stamp_ms(), world.now_ms);
    assert!(!is_due(&world, "a2") && !is_due(&world, "a4"), "three are enough");
    assert!(!is_due(&world, "z1"), "no member");
    assert_eq!(world.node_id("a1"), NodeId(1));
    assert_eq!(stamped(&world, "a1", 0).actor, Actor::Node);
}
