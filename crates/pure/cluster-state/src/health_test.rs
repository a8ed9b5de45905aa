//! Tests of the rules for the health of replicas.

use crate::Belief::{Down, Up};
use crate::test_world::{World, replica_id, report, setting};
use crate::{Change, ChangeKind, LeaseSource, Outcome, RecordKey, RefusalCode};

fn world(nodes: usize) -> World {
    let mut world = World::of(&[("a", nodes), ("b", 1)]);
    world.register("a/r", LeaseSource::Config, 0);
    world
}

const ALL: [&str; 3] = ["a1", "a2", "a3"];

#[test]
fn most_of_the_living_nodes_must_say_so() {
    let mut world = world(3);
    assert_eq!(world.see("a1", &ALL, "a/r", (Down, 4)), Up, "one of three");
    assert_eq!(world.see("a2", &ALL, "a/r", (Down, 1)), Down, "two of three");
    let health = RecordKey::Health(replica_id("a/r"));
    assert_eq!(world.changes, [Change { key: health, kind: ChangeKind::Updated }]);
}

#[test]
fn half_is_not_most() {
    let mut world = world(2);
    let all = ["a1", "a2"];
    assert_eq!(world.see("a1", &all, "a/r", (Down, 4)), Up);
    assert_eq!(world.see("a2", &all, "a/r", (Up, 1)), Up);
    assert_eq!(world.see("a2", &all, "a/r", (Down, 1)), Down);
}

#[test]
fn dead_nodes_have_no_say() {
    let mut world = world(3);
    assert_eq!(world.see("a1", &["a1", "a2"], "a/r", (Down, 1)), Up);
    assert_eq!(world.see("a2", &["a1", "a2"], "a/r", (Down, 1)), Down);
}

#[test]
fn a_node_alone_needs_two_signals() {
    let mut world = world(1);
    assert_eq!(world.see("a1", &[], "a/r", (Down, 1)), Up);
    assert_eq!(world.see("a1", &[], "a/r", (Down, 2)), Down);
    world.pass(5_000);
    assert_eq!(world.see("a1", &[], "a/r", (Down, 1)), Down, "one signal less is no recovery");
    assert_eq!(world.see("a1", &[], "a/r", (Up, 0)), Up);
}

#[test]
fn who_spoke_lately_lives_whoever_does_not_hear_it() {
    let mut world = world(2);
    assert_eq!(world.see("a2", &[], "a/r", (Up, 1)), Up);
    assert_eq!(world.see("a1", &[], "a/r", (Down, 4)), Up, "a1 does not receive a2, but it spoke");
    world.pass(60_001);
    assert_eq!(world.see("a1", &[], "a/r", (Down, 4)), Down, "what a2 said is too old");
}

#[test]
fn names_that_are_no_nodes_of_the_region_do_not_count() {
    let mut world = world(3);
    let crowd = ["a1", "a2", "b1", "x1", "x2", "x3"];
    assert_eq!(world.see("a1", &crowd, "a/r", (Down, 1)), Up);
    assert_eq!(world.see("a2", &crowd, "a/r", (Down, 1)), Down, "two of two");
}

#[test]
fn a_replicas_health_is_its_own_regions_matter() {
    let mut world = world(1);
    let epoch = world.replica("a/r").epoch;
    let command = report(&[], &[("a/r", epoch, (Down, 9))]);
    assert_eq!(world.refused("b1", command.clone()), RefusalCode::NotOwner);
    // A node of another region can't pass for one of this region: region and name both count.
    let mut forged = world.by_node("b1", command);
    forged.proposer.region = "a".into();
    let outcome = world.apply(&forged);
    assert_eq!(crate::test_world::refusal(outcome).code, RefusalCode::NotOwner);
    assert!(world.health("a/r").is_none());
}

#[test]
fn a_belief_stays_for_a_while() {
    let mut world = world(1);
    assert_eq!(world.see("a1", &[], "a/r", (Down, 2)), Down, "the first change is free");
    world.pass(4_999);
    assert_eq!(world.see("a1", &[], "a/r", (Up, 0)), Down, "too soon");
    world.pass(1);
    assert_eq!(world.see("a1", &[], "a/r", (Up, 0)), Up);
    world.done(setting("health.transition_ms", "0"));
    assert_eq!(world.see("a1", &[], "a/r", (Down, 2)), Down);
    assert_eq!(world.see("a1", &[], "a/r", (Up, 0)), Up);
}

#[test]
fn what_was_seen_of_an_earlier_epoch_is_left_out() {
    let mut world = world(1);
    let old = world.replica("a/r").epoch;
    let new = world.register("a/r", LeaseSource::Config, 1);
    let seen = |epoch| ("a/r", epoch, (Down, 2));
    assert_eq!(world.refused("a1", report(&[], &[seen(old)])), RefusalCode::StaleEpoch);
    assert_eq!(world.refused("a1", report(&[], &[seen(new + 1)])), RefusalCode::StaleEpoch);
    let command = report(&[], &[seen(old), seen(new), ("a/x", 1, (Down, 2))]);
    let outcome = world.apply(&world.by_node("a1", command));
    assert_eq!(outcome, Outcome::Applied { version: world.index, skipped: 2 });
    assert_eq!(world.health("a/r").unwrap().belief, Down);
}

#[test]
fn saying_the_same_again_is_no_news() {
    let mut world = world(2);
    world.see("a1", &["a2"], "a/r", (Down, 1));
    let key = RecordKey::Health(replica_id("a/r"));
    assert_eq!(world.changes, [Change { key: key.clone(), kind: ChangeKind::Created }]);
    world.see("a1", &["a2"], "a/r", (Down, 1));
    assert_eq!(world.changes, []);
    world.see("a1", &["a2"], "a/r", (Down, 3));
    assert_eq!(world.changes, [Change { key, kind: ChangeKind::Updated }]);
}

#[test]
fn what_a_removed_node_said_is_forgotten() {
    let mut world = world(3);
    world.see("a1", &ALL, "a/r", (Down, 2));
    world.done(crate::test_world::remove(RecordKey::Node(world.node_id("a1"))));
    assert_eq!(world.see("a2", &["a3"], "a/r", (Down, 2)), Up, "one of two that are left");
    assert_eq!(world.health("a/r").unwrap().observers.len(), 1);
}
