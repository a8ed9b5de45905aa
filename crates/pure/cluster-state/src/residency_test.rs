//! Tests of residency: rules of routes and tenants, and countries of regions.

use crate::golden_test::{resident_route, resident_tenant};
use crate::snapshot_test::full;
use crate::test_world::{World, put};
use crate::{
    ChangeKind, Command, Entry, Expect, Item, Outcome, Record, RecordKey, RefusalCode, Region,
    ResidencyRule, Route, State, Tenant, dry_run,
};

fn world() -> World {
    World::of(&[("a", 2), ("b", 1)])
}

fn put_tenant(residency: ResidencyRule) -> Command {
    put(Item::Tenant("acme".into(), Tenant { residency, ..Tenant::default() }))
}

fn in_regions(names: &[String]) -> ResidencyRule {
    let regions = names.iter().map(|name| name.as_str().into()).collect();
    ResidencyRule { regions, ..ResidencyRule::default() }
}

fn declare(region: &str, country: &str) -> Command {
    Command::DeclareCountry { region: region.into(), country: country.parse().unwrap() }
}

fn country(world: &World, region: &str) -> String {
    world.state.records().regions.get(&region.into()).unwrap().country.clone()
}

/// Returns the state after a snapshot was written and read.
fn over_a_snapshot(state: &State) -> State {
    State::from_snapshot(&state.to_snapshot().unwrap()).unwrap()
}

#[test]
fn a_record_says_where_requests_may_be_served_and_watchers_see_each_change() {
    let mut world = world();
    let key = RecordKey::Tenant("acme".into());
    world.done(put(Item::Tenant("acme".into(), Tenant::default())));
    let rule = resident_tenant().residency;
    let second = world.done(put_tenant(rule.clone()));
    assert_eq!(world.changes.len(), 1, "{:?}", world.changes);
    assert_eq!((&world.changes[0].key, world.changes[0].kind), (&key, ChangeKind::Updated));
    assert_eq!(world.state.records().version(&key), Some(second));
    let again = world.apply(&world.by_operator(put_tenant(rule)));
    assert_eq!(again, Outcome::Unchanged);
    let stale = put_tenant(ResidencyRule::default());
    let Command::Put { item, .. } = stale else { panic!() };
    let late = Command::Put { item: item.clone(), expect: Expect::Version(second - 1) };
    assert!(matches!(world.apply(&world.by_operator(late)), Outcome::Conflict { .. }));
    let found = world.state.records().tenants.get(&"acme".into()).unwrap();
    assert_eq!(found.residency, resident_tenant().residency);
    world.done(Command::Put { item, expect: Expect::Version(second) });
    let found = world.state.records().tenants.get(&"acme".into()).unwrap();
    assert!(found.residency.is_anywhere());
}

#[test]
fn a_dry_run_shows_it() {
    let world = full();
    let entry = world.by_operator(put(Item::Route("eu".into(), Route::default())));
    let diff = dry_run(&world.state, &entry).unwrap();
    let (Some(Record::Route(before)), Some(Record::Route(after))) =
        (&diff[0].before, &diff[0].after)
    else {
        panic!("{diff:?}");
    };
    assert_eq!(before.value().residency, resident_route().residency);
    assert!(after.value().residency.is_anywhere());
}

#[test]
fn names_are_looked_at_and_counted() {
    let mut world = world();
    let names = |count: usize| (0..count).map(|n| format!("r{n}")).collect::<Vec<_>>();
    assert_eq!(world.denied(put_tenant(in_regions(&["a b".to_owned()]))), RefusalCode::Invalid);
    assert_eq!(world.denied(put_tenant(in_regions(&names(65)))), RefusalCode::LimitReached);
    let letters = || (b'A'..=b'Z').map(char::from);
    let codes = letters().flat_map(|one| letters().map(move |other| format!("{one}{other}")));
    let countries = codes.map(|code| code.parse().unwrap()).take(257).collect();
    let rule = ResidencyRule { countries, ..ResidencyRule::default() };
    assert_eq!(world.denied(put_tenant(rule.clone())), RefusalCode::LimitReached);
    let route = Route { residency: rule, ..Route::default() };
    assert_eq!(world.denied(put(Item::Route("r".into(), route))), RefusalCode::LimitReached);
    world.done(put_tenant(in_regions(&names(64))));
}

#[test]
fn an_entry_carries_it() {
    let world = world();
    for item in [
        Item::Route("r".into(), resident_route()),
        Item::Tenant("acme".into(), resident_tenant()),
        Item::Route("r".into(), Route::default()),
    ] {
        let entry = world.by_operator(put(item));
        assert_eq!(Entry::from_bytes(&entry.to_bytes().unwrap()), Ok(entry));
    }
}

/// States that differ only in a residency rule have different digests, and snapshots keep the rule.
#[test]
fn it_is_part_of_digest_bytes_and_snapshot() {
    let with = |rule: ResidencyRule| {
        let mut world = world();
        world.done(put_tenant(rule));
        world.state
    };
    let (none, one) = (with(ResidencyRule::default()), with(in_regions(&["a".to_owned()])));
    let other = with(in_regions(&["b".to_owned()]));
    assert!(none.digest() != one.digest() && one.digest() != other.digest());
    assert!(one.bytes() > none.bytes());
    for state in [none, one, other] {
        let read = over_a_snapshot(&state);
        assert_eq!((read.digest(), read.bytes(), &read), (state.digest(), state.bytes(), &state));
    }
}

#[test]
fn a_node_says_in_which_country_its_region_is_where_nobody_else_has() {
    let mut world = world();
    world.applied("a1", declare("a", "DE"));
    assert_eq!((country(&world, "a"), country(&world, "b")), ("DE".to_owned(), String::new()));
    assert_eq!(world.apply(&world.by_node("a2", declare("a", "DE"))), Outcome::Unchanged);
    assert_eq!(world.refused("a2", declare("a", "FR")), RefusalCode::Transition);
    assert_eq!(world.refused("b1", declare("a", "DE")), RefusalCode::NotOwner);
    assert_eq!(world.refused("a1", declare("b", "DE")), RefusalCode::NotOwner);
    assert_eq!(country(&world, "a"), "DE");
    // An operator's country stays: no declaration replaces it.
    let region = Region { country: "FR".to_owned(), price_ms: 7, ..Region::default() };
    world.done(put(Item::Region("a".into(), region)));
    assert_eq!(world.refused("a1", declare("a", "DE")), RefusalCode::Transition);
    assert_eq!(world.apply(&world.by_node("a1", declare("a", "FR"))), Outcome::Unchanged);
    let region = Region { price_ms: 7, ..Region::default() };
    world.done(put(Item::Region("a".into(), region)));
    world.applied("a1", declare("a", "DE"));
    let found = world.state.records().regions.get(&"a".into()).unwrap();
    assert_eq!((found.country.as_str(), found.price_ms), ("DE", 7), "the rest stays");
}
