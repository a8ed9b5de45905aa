//! Tests of repeated requests.

use crate::test_world::{World, put, refusal, register, setting};
use crate::{
    Actor, Command, Entry, Expect, Item, LeaseSource, Outcome, REQUEST_AGE_MS, REQUESTS_KEYED_MAX,
    REQUESTS_MAX, RecordKey, RefusalCode, RequestId, State, Tenant,
};

fn tenant(title: &str, expect: Expect) -> Command {
    let tenant = Tenant { title: title.to_owned(), ..Tenant::default() };
    Command::Put { item: Item::Tenant("acme".into(), tenant), expect }
}

fn world() -> World {
    World::of(&[("a", 2), ("b", 1)])
}

#[test]
fn a_repeated_request_has_the_same_outcome_and_happens_once() {
    let mut world = world();
    let first = world.apply(&world.by_request(1, tenant("A", Expect::Absent)));
    assert_eq!(first, Outcome::Applied { version: 2, skipped: 0 });
    world.done(tenant("B", Expect::Any));
    let digest = world.state.records().clone();
    let mut again = world.by_request(1, tenant("A", Expect::Absent));
    // A retry may come later and through another node.
    again.proposer.node = "b1".into();
    again.proposer.region = "b".into();
    again.stamp_ms += 5_000;
    assert_eq!(world.apply(&again), first);
    assert_eq!(world.changes, [], "watchers receive nothing");
    assert_eq!(*world.state.records(), digest);
}

#[test]
fn refusals_and_conflicts_are_repeated_too() {
    let mut world = world();
    let entry = world.by_request(1, tenant("A", Expect::Version(9)));
    let conflict = world.apply(&entry);
    assert!(matches!(conflict, Outcome::Conflict { current: None, .. }));
    world.done(tenant("B", Expect::Any));
    assert_eq!(world.apply(&entry), conflict, "the client may have acted on it");
}

#[test]
fn an_id_stands_for_one_command_of_one_actor() {
    let mut world = world();
    world.apply(&world.by_request(1, tenant("A", Expect::Any)));
    let other = world.by_request(1, tenant("B", Expect::Any));
    assert_eq!(refusal(world.apply(&other)).code, RefusalCode::RequestIdReused);
    let mut stranger = world.by_request(1, tenant("A", Expect::Any));
    stranger.actor = Actor::Operator("eve".to_owned());
    assert_eq!(refusal(world.apply(&stranger)).code, RefusalCode::RequestIdReused);
    assert_eq!(world.state.operator_audit().len(), 1, "only what was carried out");
}

#[test]
fn old_requests_are_forgotten() {
    let mut world = World::of(&[("a", 1)]);
    let entry = world.by_request(1, tenant("A", Expect::Absent));
    world.apply(&entry);
    world.now_ms += REQUEST_AGE_MS;
    let mut at_the_end = entry.clone();
    at_the_end.stamp_ms = world.now_ms;
    assert!(matches!(world.apply(&at_the_end), Outcome::Applied { version: 2, .. }));
    world.now_ms += 1;
    world.done(setting("health.transition_ms", "1"));
    let mut later = entry;
    later.stamp_ms = world.now_ms;
    assert!(matches!(world.apply(&later), Outcome::Conflict { .. }), "it is a new request");
}

/// Returns an entry whose request has the number `number`, named by an operator or not.
fn numbered(world: &World, number: usize, is_keyed: bool) -> Entry {
    let mut entry = world.by_request(0, setting("health.transition_ms", "1"));
    let mut id = [0; 16];
    id[8..].copy_from_slice(&(number as u64).to_le_bytes());
    let named = if is_keyed { RequestId::keyed } else { RequestId::unkeyed };
    entry.request = Some(named(id));
    entry
}

#[test]
fn a_name_that_an_operator_gave_is_not_pushed_out_by_writes_without_one() {
    let mut world = world();
    let named = numbered(&world, 0, true);
    let outcome = world.apply(&named);
    for number in 0..=REQUESTS_MAX {
        world.apply(&numbered(&world, number, false));
        let by_node = Entry { actor: Actor::Node, ..numbered(&world, number + 1, true) };
        world.apply(&by_node);
    }
    assert_eq!(world.apply(&named), outcome);
    let read = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
    assert_eq!(read, world.state);
    for number in 1..REQUESTS_KEYED_MAX {
        world.apply(&numbered(&world, number, true));
    }
    assert_eq!(world.apply(&named), outcome, "as many as there may be");
    world.apply(&numbered(&world, REQUESTS_KEYED_MAX, true));
    assert_eq!(world.apply(&named), Outcome::Unchanged, "applied anew");
}

#[test]
fn a_node_uses_up_no_name_that_operators_give_to_requests() {
    let mut world = world();
    let named = numbered(&world, 0, true);
    let by_node = Entry { actor: Actor::Node, ..named.clone() };
    assert_eq!(refusal(world.apply(&by_node)).code, RefusalCode::NotPermitted);
    assert!(matches!(world.apply(&named), Outcome::Applied { .. }));
}

#[test]
fn the_oldest_of_too_many_is_forgotten() {
    let mut world = world();
    let first = numbered(&world, 0, false);
    let outcome = world.apply(&first);
    for number in 1..REQUESTS_MAX {
        world.apply(&numbered(&world, number, false));
    }
    assert_eq!(world.apply(&first), outcome, "as many as there may be");
    let bytes = world.state.bytes();
    world.apply(&numbered(&world, REQUESTS_MAX, false));
    assert!(world.state.bytes() < bytes + 1000);
    assert_eq!(world.apply(&first), Outcome::Unchanged, "applied anew");
}

#[test]
fn the_words_of_the_audit_trail_are_no_fact_that_nodes_compare() {
    let of = |what: &str| {
        let mut world = world();
        let command = Command::RecordOrder { what: what.to_owned(), refused: None };
        world.done(command);
        (world.state.facts_digest(), world.state.digest())
    };
    let [(facts, all), (other_facts, other_all)] = ["drain a", "stop taking new ones"].map(of);
    assert_eq!(facts, other_facts);
    assert_ne!(all, other_all, "a snapshot has them");
    let mut world = world();
    world.done(tenant("A", Expect::Any));
    assert_ne!(world.state.facts_digest(), facts);
}

#[test]
fn an_index_is_applied_once() {
    let mut world = world();
    world.done(tenant("A", Expect::Any));
    let digest = world.state.digest();
    let again = world.state.apply(2, &world.by_operator(tenant("B", Expect::Any)));
    assert_eq!(refusal(again.outcome).code, RefusalCode::AlreadyApplied);
    assert_eq!(world.state.digest(), digest);
    let gap = world.state.apply(9, &world.by_operator(tenant("B", Expect::Any)));
    assert_eq!(gap.outcome, Outcome::Applied { version: 9, skipped: 0 });
    let version = world.state.records().version(&RecordKey::Tenant("acme".into()));
    assert_eq!(version, Some(9));
}

#[test]
fn time_does_not_go_back_behind_what_several_nodes_have_said() {
    let mut world = world();
    let start_ms = world.now_ms;
    world.now_ms += 10_000;
    world.applied("b1", register("b/r", LeaseSource::Config, 0));
    world.done(put(Item::Tenant("x".into(), Tenant::default())));
    world.now_ms = start_ms - 3_600_000;
    world.done(put(Item::Tenant("y".into(), Tenant::default())));
    assert_eq!(world.state.stamp_ms(), start_ms + 10_000);
    let (_, last) = world.state.operator_audit().iter().next_back().unwrap();
    assert_eq!(last.stamp_ms, start_ms + 10_000);
}
