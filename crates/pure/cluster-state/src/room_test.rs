//! Tests of the room in the state.

use std::collections::BTreeSet;

use crate::items_test::key;
use crate::test_world::{World, put, remove, replica_id, replica_spec};
use crate::{
    Command, Expect, Item, Key, LeaseSource, Outcome, RecordKey, RefusalCode, ReplicaSpec,
    STATE_BYTES_MAX, Tenant,
};

/// Returns a replica with as many models as allowed, some 60 KiB.
fn large(id: &str) -> Command {
    let models: BTreeSet<_> = (0..256).map(|n| format!("{n:-<230}").as_str().into()).collect();
    let spec = ReplicaSpec { models, ..replica_spec(LeaseSource::Config) };
    Command::RegisterReplica { id: replica_id(id), spec, incarnation: 1, expect: Expect::Any }
}

/// Registers large replicas until one is refused.
fn fill(world: &mut World, by: &str) -> u64 {
    for number in 0..1_000 {
        let command = large(&format!("{}/r{number}", &by[..1]));
        match world.apply(&world.by_node(by, command)) {
            Outcome::Applied { .. } => {}
            Outcome::Refused(refusal) => {
                assert_eq!(refusal.code, RefusalCode::StateFull);
                return world.state.records().replicas.bytes();
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the state takes everything");
}

fn tenant(name: &str) -> Command {
    put(Item::Tenant(name.into(), Tenant::default()))
}

#[test]
fn a_region_that_fills_its_share_takes_no_room_from_others() {
    let mut world = World::of(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let one = fill(&mut world, "a1");
    assert!(one <= STATE_BYTES_MAX / 8, "{one}");
    world.done(tenant("acme"));
    world.applied("b1", large("b/r"));
    world.done(large("a/by-operator"));
    for by in ["b1", "c1", "d1"] {
        fill(&mut world, by);
    }
    world.done(tenant("other"));
    world.done(large("c/by-operator"));
}

#[test]
fn the_only_region_leaves_room_for_operators() {
    let mut world = World::of(&[("a", 1)]);
    assert!(fill(&mut world, "a1") < STATE_BYTES_MAX / 2);
    world.done(tenant("acme"));
    world.done(large("a/by-operator"));
    let mut is_refused = false;
    for number in 0..100 {
        let command = large(&format!("a/o{number}"));
        is_refused |= matches!(world.apply(&world.by_operator(command)), Outcome::Refused(_));
    }
    assert!(is_refused, "operators' replicas have a limit, too");
    world.done(tenant("other"));
}

#[test]
fn many_regions_together_leave_room_for_operators() {
    let regions = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut world = World::of(&regions.map(|region| (region, 1)));
    let all = regions.map(|region| fill(&mut world, &format!("{region}1")));
    assert!(all[7] < STATE_BYTES_MAX * 7 / 16, "{all:?}");
    world.done(large("a/by-operator"));
}

#[test]
fn replicas_and_what_operators_write_take_no_room_from_each_other() {
    let mut world = World::of(&[("a", 1)]);
    fill(&mut world, "a1");
    world.done(tenant("acme"));
    let models: BTreeSet<_> = (0..256).map(|n| format!("{n:-<230}").as_str().into()).collect();
    let is_full = (0..1_000).any(|number| {
        let key = Key { models: models.clone(), ..key(Some("acme")) };
        let command = put(Item::Key(format!("k{number}").as_str().into(), key));
        let outcome = world.apply(&world.by_operator(command));
        matches!(outcome, Outcome::Refused(refusal) if refusal.code == RefusalCode::StateFull)
    });
    let beside = world.state.bytes() - world.state.records().replicas.bytes();
    assert!(is_full && beside > STATE_BYTES_MAX * 15 / 16, "{beside}");
    // A replica that was removed finds room again.
    world.applied("a1", remove(RecordKey::Replica(replica_id("a/r0"))));
    world.applied("a1", large("a/r0"));
}
