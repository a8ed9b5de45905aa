//! Tests of snapshots and digests.

use crate::golden_test::{items, resident_route, resident_tenant};
use crate::items_test::key;
use crate::test_world::{
    World, hot, node_spec_of, put, register, remove, setting, shares, token_terms,
};
use crate::{
    ApplyError, ChangeDiff, Command, Expect, Item, LeaseSource, Record, RecordKey, RefusalCode,
    RevokedCertificate, SnapshotError, State, Tenant, WIRE, dry_run,
};

/// Returns a state with records in every table.
pub(crate) fn full() -> World {
    full_of(WIRE)
}

/// Returns that state, with nodes of the wire version `wire`.
pub(crate) fn full_of(wire: u16) -> World {
    let mut world = with_records(wire);
    world.applied("a1", hot("a", 0, &[3, 5, 8]));
    world.applied("b1", hot("b", 0, &[5]));
    world.applied("a1", shares("a1", 1, &[("k", [0, 0, 0])]));
    world.applied("b1", shares("b1", 1, &[("k", [0, 5, 0])]));
    world.done(put(Item::Route("eu".into(), resident_route())));
    world.done(put(Item::Tenant("acme".into(), resident_tenant())));
    for node in ["a1", "a2", "b1"] {
        world.applied(node, Command::DeclareOperators { is_operator: node != "b1" });
    }
    world.applied("a1", Command::EnforceMembership);
    world.done(Command::RegisterNode { node: node_spec_of(wire, "d1", "d") });
    world.done(remove(RecordKey::Node(world.node_id("d1"))));
    let (_, token) = items().into_iter().find(|(name, _)| *name == "put_join_token").unwrap();
    world.done(put(token));
    let revoked = RevokedCertificate { reason: "stolen".to_owned() };
    world.done(put(Item::RevokedCertificate("5c1d".into(), revoked)));
    world
}

/// Returns a state with replicas and records of operators.
fn with_records(wire: u16) -> World {
    use crate::{Arm, Belief, Limit, LimitScope, Model, Region, Route, Split};
    let mut world = World::of_wire(wire, &[("a", 2), ("b", 1)]);
    world.register("a/r", LeaseSource::Lease { length_ms: 30_000 }, 5);
    world.see("a1", &["a2"], "a/r", (Belief::Down, 1));
    world.see("a2", &["a1"], "a/r", (Belief::Down, 2));
    let region = Region {
        country: "DE".to_owned(),
        rtt_hints_ms: [("a".into(), 80)].into(),
        ..Region::default()
    };
    let alias = Model { alias_of: Some("m".into()), fallbacks: vec!["n".into()], price: None };
    let route = Route { path_prefix: Some("/v1".to_owned()), ..Route::default() };
    let (name, model) = ("all".into(), "m".into());
    let arms = vec![Arm { name, model, version: Some("2".into()), weight_permille: 1000 }];
    let limit = Limit { tokens_per_min: Some(9), ..Limit::default() };
    let items = [
        Item::Region("b".into(), region),
        Item::Model("big".into(), alias),
        Item::Route("r".into(), route),
        Item::Split("s".into(), Split { arms, ..Split::default() }),
        Item::Tenant("acme".into(), Tenant::default()),
        Item::Key("k".into(), key(Some("acme"))),
        Item::Limit(LimitScope::Key("k".into()), limit),
        Item::JoinToken("t".into(), token_terms(3, 1)),
        Item::Setting("health.transition_ms".to_owned(), "7".to_owned()),
    ];
    for (number, item) in items.into_iter().enumerate() {
        world.apply(&world.by_request(number as u8, put(item)));
    }
    world.done(Command::RegisterNode { node: node_spec_of(wire, "c1", "c") });
    world.done(remove(RecordKey::Node(world.node_id("c1"))));
    world
}

#[test]
fn a_snapshot_is_the_state() {
    let world = full();
    let snapshot = world.state.to_snapshot().unwrap();
    let read = State::from_snapshot(&snapshot).unwrap();
    assert_eq!(read, world.state);
    assert_eq!(read.digest(), world.state.digest());
    assert_eq!(read.bytes(), world.state.bytes());
    assert_eq!(read.to_snapshot().unwrap(), snapshot, "byte for byte");
    assert!(world.state.records().digests().iter().all(|it| *it != crate::Digest::default()));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let snapshot = full().state.to_snapshot().unwrap();
    for bit in (0..snapshot.len() * 8).step_by(3) {
        let mut wrong = snapshot.to_vec();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(State::from_snapshot(&wrong).is_err(), "bit {bit}");
    }
    for bytes in 0..snapshot.len() {
        assert!(State::from_snapshot(&snapshot[..bytes]).is_err(), "{bytes} bytes");
    }
}

#[test]
fn a_snapshot_of_something_else_is_told_by_its_digest() {
    let one = full().state;
    let mut two = full();
    two.done(setting("health.transition_ms", "8"));
    let (one, two) = (one.to_snapshot().unwrap(), two.state.to_snapshot().unwrap());
    // The first frame defines the second one: 14 bytes of header, 1 of version, and a digest. Both
    // are intact frames here.
    let head = one.windows(2).skip(1).position(|bytes| bytes == b"SW").unwrap() + 1;
    let other = two.windows(2).skip(1).position(|bytes| bytes == b"SW").unwrap() + 1;
    let mixed = [&one[..head], &two[other..]].concat();
    let error = State::from_snapshot(&mixed).unwrap_err();
    assert!(matches!(error, SnapshotError::Digest { .. }), "{error}");
}

#[test]
fn a_dry_run_shows_what_would_change_and_changes_nothing() {
    let world = full();
    let digest = world.state.digest();
    let tenant = Tenant { title: "Acme".to_owned(), is_suspended: true, ..Tenant::default() };
    let entry = world.by_operator(put(Item::Tenant("acme".into(), tenant.clone())));
    let diff = dry_run(&world.state, &entry).unwrap();
    let [
        ChangeDiff {
            key,
            before: Some(Record::Tenant(before)),
            after: Some(Record::Tenant(after)),
        },
    ] = &diff[..]
    else {
        panic!("{diff:?}");
    };
    assert_eq!(*key, RecordKey::Tenant("acme".into()));
    assert_eq!((before.value(), after.value()), (&resident_tenant(), &tenant));
    assert_eq!(after.version(), world.index + 1);
    assert_eq!(world.state.digest(), digest);
    let entry = world.by_operator(remove(RecordKey::Key("k".into())));
    let diff = dry_run(&world.state, &entry).unwrap();
    assert_eq!(diff.len(), 2, "the key and its limit: {diff:?}");
    assert!(diff.iter().all(|change| change.before.is_some() && change.after.is_none()));
    assert!(!serde_json::to_string(&diff).unwrap().contains("2,2,2"), "no hash is shown");
}

#[test]
fn a_dry_run_fails_as_the_command_would() {
    let world = full();
    let entry = world.by_node("b1", register("a/r", LeaseSource::Config, 0));
    let Err(ApplyError::Refused(refusal)) = dry_run(&world.state, &entry) else { panic!() };
    assert_eq!(refusal.code, RefusalCode::NotOwner);
    let command =
        Command::Remove { key: RecordKey::Tenant("acme".into()), expect: Expect::Version(1) };
    let fault = dry_run(&world.state, &world.by_operator(command)).unwrap_err();
    assert!(matches!(fault, ApplyError::Conflict { current: Some(_), .. }), "{fault}");
    let unchanged = world.by_operator(setting("health.transition_ms", "7"));
    assert_eq!(dry_run(&world.state, &unchanged), Ok(Vec::new()));
}
