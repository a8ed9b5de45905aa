//! Requests that are repeated.

use crate::test_world::{World, put, refusal, setting};
use crate::{
    Actor, Command, Expect, Item, Outcome, REQUEST_AGE_MS, REQUESTS_MAX, RecordKey, RefusalCode,
    RequestId, Tenant,
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
    // A retry may come over another node and later.
    again.proposer.node = "b1".into();
    again.proposer.region = "b".into();
    again.stamp_ms += 5_000;
    assert_eq!(world.apply(&again), first);
    assert_eq!(world.changes, [], "watchers hear nothing");
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
    let mut world = world();
    let entry = world.by_request(1, tenant("A", Expect::Absent));
    world.apply(&entry);
    world.now_ms += REQUEST_AGE_MS;
    let mut at_the_end = entry.clone();
    at_the_end.stamp_ms = world.now_ms;
    assert!(matches!(world.apply(&at_the_end), Outcome::Applied { version: 2, .. }));
    world.now_ms += 1;
    let mut later = entry;
    later.stamp_ms = world.now_ms;
    assert!(matches!(world.apply(&later), Outcome::Conflict { .. }), "it is a new request");
}

#[test]
fn the_oldest_of_too_many_is_forgotten() {
    let mut world = world();
    let numbered = |world: &World, number: usize| {
        let mut entry = world.by_request(0, setting("health.transition_ms", "1"));
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(number as u64).to_le_bytes());
        entry.request = Some(RequestId(id));
        entry
    };
    let first = numbered(&world, 0);
    let outcome = world.apply(&first);
    for number in 1..REQUESTS_MAX {
        world.apply(&numbered(&world, number));
    }
    assert_eq!(world.apply(&first), outcome, "as many as there may be");
    let bytes = world.state.bytes();
    world.apply(&numbered(&world, REQUESTS_MAX));
    assert!(world.state.bytes() < bytes + 1000);
    assert_eq!(world.apply(&first), Outcome::Unchanged, "applied anew");
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
fn time_does_not_go_back() {
    let mut world = world();
    let start_ms = world.now_ms;
    world.now_ms += 10_000;
    world.done(put(Item::Tenant("x".into(), Tenant::default())));
    world.now_ms = start_ms - 3_600_000;
    world.done(put(Item::Tenant("y".into(), Tenant::default())));
    assert_eq!(world.state.stamp_ms(), start_ms + 10_000);
    let (_, last) = world.state.operator_audit().iter().next_back().unwrap();
    assert_eq!(last.stamp_ms, start_ms + 10_000);
}
