//! Tests of leases on shares of limits.

use spillway_rate_limit::{Scope, Units};

use crate::items_test::key;
use crate::test_world::{World, put, remove, setting, shares};
use crate::{
    Command, Item, Limit, LimitScope, PLACE_MS, RecordKey, RefusalCode, RegionState, State, Tenant,
};

/// Returns two nodes in `a`, one in `b`, and a limit of the key `k`.
fn world() -> World {
    let mut world = World::of(&[("a", 2), ("b", 1)]);
    world.done(put(Item::Tenant("acme".into(), Tenant::default())));
    world.done(put(Item::Key("k".into(), key(Some("acme")))));
    world.done(put(limit(1_000)));
    world
}

fn limit(tokens_per_min: u64) -> Item {
    let limit = Limit { tokens_per_min: Some(tokens_per_min), ..Limit::default() };
    Item::Limit(LimitScope::Key("k".into()), limit)
}

fn need(node: &str, serial: u64, tokens: u64) -> Command {
    shares(node, serial, &[("k", [0, tokens, 0])])
}

/// Returns floor and lease of tokens of each node.
fn tokens(state: &State) -> Vec<(u64, u64)> {
    let pool = state.shares().pool(&Scope::Key("k".to_owned())).unwrap();
    let lease = |node: &str| {
        let mut leases = pool.leases().iter().filter(|(run, _)| run.node.as_str() == node);
        leases.next().map_or(0, |(_, lease)| lease.held.0[1])
    };
    ["a1", "a2", "b1"].map(|node| (pool.floor(&node.into()).0[1], lease(node))).into()
}

#[test]
fn what_is_no_floor_is_leased_by_need() {
    let mut world = world();
    world.applied("a1", need("a1", 1, 0));
    assert_eq!(tokens(&world.state), [(25, 300), (25, 0), (50, 0)]);
    assert_eq!(world.changes, [], "watchers receive nothing of it");
    assert!(world.state.system_audit().len() <= 1, "nor does the audit trail");
    // Other nodes get a node's lease only when the node gives it back. A part stays free for the
    // node without a statement.
    world.applied("b1", need("b1", 1, 700));
    assert_eq!(tokens(&world.state), [(25, 300), (25, 0), (50, 600)]);
    let Command::LeaseShares { region, mut said } = need("a1", 2, 0) else { panic!() };
    said.lines[0].lease = Units([0, 100, 0]);
    world.applied("a1", Command::LeaseShares { region, said });
    assert_eq!(tokens(&world.state), [(25, 100), (25, 0), (50, 767)]);
}

#[test]
fn a_node_speaks_only_for_itself_and_only_forward() {
    let mut world = world();
    world.applied("a1", need("a1", 5, 10));
    assert_eq!(world.refused("a1", need("a1", 5, 10)), RefusalCode::StaleEpoch);
    assert_eq!(world.refused("a2", need("a1", 6, 10)), RefusalCode::NotOwner);
    assert_eq!(world.refused("b1", need("a1", 6, 10)), RefusalCode::NotOwner);
    let Command::LeaseShares { said, .. } = need("a1", 6, 10) else { panic!() };
    let wrong = Command::LeaseShares { region: "b".into(), said };
    assert_eq!(world.refused("a1", wrong), RefusalCode::NotOwner);
    let nameless = shares("a1", 7, &[("no name", [0, 1, 0])]);
    assert_eq!(world.refused("a1", nameless), RefusalCode::Invalid);
}

#[test]
fn a_smaller_limit_waits_for_those_who_had_more() {
    let mut world = world();
    world.applied("a1", need("a1", 1, 0));
    world.done(put(limit(100)));
    world.applied("b1", need("b1", 1, 0));
    assert_eq!(tokens(&world.state), [(25, 300), (25, 0), (50, 0)], "nobody gave anything yet");
    let Command::LeaseShares { region, mut said } = need("a1", 2, 0) else { panic!() };
    (said.lines[0].floor, said.lines[0].lease) = (Units([0, 2, 0]), Units::NONE);
    world.applied("a1", Command::LeaseShares { region, said });
    // The old floors of the other nodes still count against the new limit.
    assert_eq!(tokens(&world.state), [(3, 8), (25, 0), (50, 7)]);
}

#[test]
fn nodes_that_are_removed_have_nothing_and_removed_limits_are_forgotten_by_word() {
    let mut world = world();
    for node in ["a1", "a2", "b1"] {
        world.applied(node, need(node, 1, 400));
    }
    let evacuate = Command::SetRegionState {
        region: "b".into(),
        state: RegionState::Evacuating,
        expect: crate::Expect::Any,
    };
    world.done(evacuate);
    world.done(remove(RecordKey::Region("b".into())));
    world.applied("a2", need("a2", 2, 400));
    let [a1, a2, b1] = tokens(&world.state)[..] else { panic!() };
    assert_eq!((b1, a1.0 + a1.1 + a2.0 + a2.1), ((0, 0), 1_000));
    world.done(remove(RecordKey::Limit(LimitScope::Key("k".into()))));
    for (node, is_last) in [("a1", false), ("a2", true)] {
        let Command::LeaseShares { region, mut said } = need(node, 3, 0) else { panic!() };
        (said.lines[0].floor, said.lines[0].lease) = (Units::NONE, Units::NONE);
        world.applied(node, Command::LeaseShares { region, said });
        assert_eq!(world.state.shares().pools().is_empty(), is_last, "{node}");
    }
}

#[test]
fn the_book_says_how_each_limit_is_divided() {
    let mut world = world();
    world.done(setting(PLACE_MS, "60000"));
    let agreed_limits = world.state.agreed_limits(&"a".into());
    assert_eq!(
        (agreed_limits.members.len(), agreed_limits.siblings.len(), agreed_limits.place_ms),
        (3, 2, 60_000)
    );
    let terms = &agreed_limits.terms[&Scope::Key("k".to_owned())];
    assert_eq!(terms.whole, [None, Some(1_000), None]);
    assert_eq!(terms.floors[&spillway_types::NodeName::from("b1")], Units([0, 50, 0]));
}

#[test]
fn the_first_to_speak_leaves_the_others_their_parts() {
    let mut world = world();
    world.applied("a1", need("a1", 1, 0));
    assert_eq!(tokens(&world.state), [(25, 300), (25, 0), (50, 0)]);
    world.applied("b1", need("b1", 1, 0));
    assert_eq!(tokens(&world.state), [(25, 300), (25, 0), (50, 300)]);
    world.applied("a1", need("a1", 2, 500));
    assert_eq!(
        tokens(&world.state),
        [(25, 600), (25, 0), (50, 300)],
        "what is free is not asked for"
    );
    let agreed_limits = world.state.agreed_limits(&"a".into());
    assert!(agreed_limits.terms.values().all(|terms| terms.nodes == 3));
}

#[test]
fn requests_are_limited_by_the_second_or_by_the_minute() {
    use spillway_rate_limit::RequestWindow;
    let put_of = |per_s, per_min| {
        let limit = Limit { requests_per_s: per_s, requests_per_min: per_min, ..Limit::default() };
        put(Item::Limit(LimitScope::Key("k".into()), limit))
    };
    let mut world = world();
    let scope = Scope::Key("k".to_owned());
    for (per_s, per_min, window) in [
        (Some(5), None, RequestWindow::Second),
        (None, Some(60), RequestWindow::Minute),
        (Some(u32::MAX), None, RequestWindow::Second),
    ] {
        world.done(put_of(per_s, per_min));
        let state = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
        assert_eq!(state.digest(), world.state.digest());
        let terms = &state.agreed_limits(&"a".into()).terms[&scope];
        let whole = per_s.or(per_min).map(u64::from);
        assert_eq!((terms.requests, terms.whole), (window, [whole, None, None]));
    }
    for wrong in [put_of(Some(1), Some(60)), put_of(None, Some(1 << 31)), put_of(None, None)] {
        assert_eq!(world.denied(wrong), RefusalCode::Invalid);
    }
}

#[test]
fn a_process_takes_over_what_the_one_before_held() {
    let mut world = world();
    world.applied("a1", need("a1", 1, 900));
    world.applied("b1", need("b1", 1, 500));
    let before = tokens(&world.state);
    let Command::LeaseShares { region, mut said } = need("a1", 1, 0) else { panic!() };
    let earlier = said.run.clone();
    said.run.incarnation += 1;
    said.overdue = vec![spillway_rate_limit::Overdue { run: earlier, serial: 1, kinds: [true; 3] }];
    world.applied("a1", Command::LeaseShares { region, said });
    assert_eq!(tokens(&world.state), before, "nothing of it is free for others");
}
