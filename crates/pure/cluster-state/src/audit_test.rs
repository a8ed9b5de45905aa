//! Tests of the audit trails.

use crate::items_test::key;
use crate::test_world::{World, join_by, put, register, renew, report, setting, token_terms};
use crate::{
    Actor, Belief, Command, Expect, Hidden, Item, LeaseSource, OPERATOR_AUDIT_MAX, Outcome,
    RefusalCode, SYSTEM_AUDIT_MAX, Tenant, TokenTerms,
};

fn world() -> World {
    World::of(&[("a", 1)])
}

fn last(world: &World) -> &str {
    let (_, record) = world.state.operator_audit().iter().next_back().unwrap();
    &record.what
}

#[test]
fn it_says_who_did_what_and_what_came_of_it() {
    let mut world = world();
    world.done(setting("health.transition_ms", "7"));
    assert_eq!(world.denied(setting("nonsense", "7")), RefusalCode::Unknown);
    let records: Vec<_> = world.state.operator_audit().iter().collect();
    let (index, first) = records[0];
    assert_eq!((*index, first.stamp_ms), (2, world.now_ms));
    assert_eq!(first.actor, Actor::Operator("ada".to_owned()));
    assert_eq!(first.node.as_str(), "a1");
    assert_eq!(first.what, "put setting health.transition_ms = 7");
    assert_eq!(first.outcome, Outcome::Applied { version: 2, skipped: 0 });
    assert!(matches!(records[1].1.outcome, Outcome::Refused(_)), "attempts count");
}

/// A node that drains a replica of its own, or refuses a caller, changes no record of the cluster.
#[test]
fn orders_to_one_node_and_refused_attempts_are_in_it() {
    let mut world = world();
    let order = |refused: Option<&str>| {
        let (what, refused) = ("drain replica r of node a1", refused.map(str::to_owned));
        Command::RecordOrder { what: what.to_owned(), refused }
    };
    let digests = world.state.records().digests();
    world.done(order(None));
    assert_eq!(last(&world), "drain replica r of node a1");
    assert_eq!(world.denied(order(Some("ada has the role read"))), RefusalCode::NotPermitted);
    let records: Vec<_> = world.state.operator_audit().iter().collect();
    assert!(matches!(records[0].1.outcome, Outcome::Applied { .. }));
    let Outcome::Refused(refusal) = &records[1].1.outcome else { panic!("{records:?}") };
    assert_eq!(refusal.cause, "ada has the role read");
    assert_eq!(world.state.records().digests(), digests, "no record changes");
    // A node without the right has it in the nodes' trail.
    world.applied("a1", order(None));
    assert_eq!(world.state.operator_audit().len(), 2);
}

#[test]
fn no_secret_is_ever_in_it() {
    let mut world = world();
    world.done(put(Item::Tenant("acme".into(), Tenant::default())));
    let mut secret = key(Some("acme"));
    secret.hash = Hidden::new([0xab; 32]);
    world.done(put(Item::Key("k".into(), secret)));
    assert_eq!(last(&world), "put key k");
    let token = TokenTerms { key: Hidden::new([0xab; 32]), ..token_terms(0xab, 1) };
    world.done(put(Item::JoinToken("t".into(), token)));
    world.done(put(Item::JoinToken("t".into(), token_terms(0xab, 1))));
    let node = crate::test_world::node_spec("a2", "a");
    world.done(join_by(node, 0xab));
    assert_eq!(last(&world), "register node a2 of a at a2.example:7443 by join token t");
    let text = format!("{:?}", world.state).to_lowercase();
    assert!(!text.contains("171, 171") && !text.contains("abab"), "not in debug output either");
}

#[test]
fn what_nodes_do_all_the_time_is_left_out_unless_something_changes() {
    let mut world = world();
    let epoch = world.register("a/r", LeaseSource::Lease { length_ms: 30_000 }, 1);
    let before = world.state.system_audit().len();
    world.applied("a1", renew("a/r", epoch));
    assert_eq!(world.refused("a1", renew("a/r", 1)), RefusalCode::StaleEpoch);
    assert_eq!(world.state.system_audit().len(), before);
    let seen = |belief| report(&[], &[("a/r", epoch, (belief, 2))]);
    world.applied("a1", seen(Belief::Down));
    world.applied("a1", seen(Belief::Down));
    assert_eq!(world.state.system_audit().len(), before + 1, "once for the transition");
    // A registration without anything new.
    world.applied("a1", register("a/r", LeaseSource::Lease { length_ms: 30_000 }, 1));
    assert_eq!(world.state.operator_audit().len(), 0);
}

#[test]
fn both_trails_are_bounded_and_keep_the_newest() {
    let mut world = world();
    world.done(setting("join.token_required", "false"));
    for incarnation in 0..SYSTEM_AUDIT_MAX as u64 + 10 {
        world.register("a/r", LeaseSource::Config, incarnation);
    }
    assert_eq!(world.state.system_audit().len(), SYSTEM_AUDIT_MAX);
    assert_eq!(world.state.operator_audit().len(), 1, "nodes push out no operator");
    let (newest, _) = world.state.system_audit().iter().next_back().unwrap();
    assert_eq!(*newest, world.index);
    for _ in 0..OPERATOR_AUDIT_MAX + 10 {
        world.apply(&world.by_operator(setting("join.token_required", "false")));
    }
    assert_eq!(world.state.operator_audit().len(), OPERATOR_AUDIT_MAX);
}

#[test]
fn long_names_are_cut() {
    let mut world = world();
    let name = "ä".repeat(5_000);
    let command = Command::RevokeKey { key: name.as_str().into(), expect: Expect::Any };
    let outcome = world.apply(&world.by_operator(command));
    assert!(format!("{outcome:?}").len() < 500);
    assert!(last(&world).len() <= 256);
    spillway_codec::encode(&outcome).unwrap();
}
