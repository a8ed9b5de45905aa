//! Tests of replicas and their leases.

use crate::LeaseSource::{Config, Lease};
use crate::test_world::{World, put, register, remove, renew, replica_id, replica_spec};
use crate::{
    BATCH_MAX, Belief, Command, Expect, Item, LEASE_MS_MIN, LeaseRenewal, LeaseSource, Outcome,
    RecordKey, RefusalCode, Region, ReplicaSpec, ReplicaState,
};

const LEASE: LeaseSource = Lease { length_ms: 30_000 };

fn world() -> World {
    World::of(&[("a", 2), ("b", 1)])
}

fn expire(region: &str) -> Command {
    Command::ExpireLeases { region: region.into() }
}

fn set_state(id: &str, state: ReplicaState) -> Command {
    Command::SetReplicaState { id: replica_id(id), state, expect: Expect::Any }
}

#[test]
fn every_registration_that_says_something_new_begins_an_epoch() {
    let mut world = world();
    let first = world.register("a/r", LEASE, 1);
    assert_eq!(world.register("a/r", LEASE, 1), first, "nothing new");
    let second = world.register("a/r", LEASE, 2);
    assert!(second > first, "a new start");
    let third = world.register("a/r", Config, 2);
    assert!(third > second, "another spec");
    world.applied("a1", remove(RecordKey::Replica(replica_id("a/r"))));
    assert!(world.register("a/r", Config, 2) > third, "epochs go on after a removal");
}

#[test]
fn only_the_own_region_and_operators_register_and_remove() {
    let mut world = world();
    assert_eq!(world.refused("b1", register("a/r", Config, 0)), RefusalCode::NotOwner);
    assert_eq!(world.refused("a9", register("a/r", Config, 0)), RefusalCode::NotOwner, "unknown");
    world.done(register("b/r", Config, 0));
    let key = RecordKey::Replica(replica_id("b/r"));
    assert_eq!(world.refused("a1", remove(key.clone())), RefusalCode::NotOwner);
    world.applied("b1", remove(key));
    assert_eq!(world.denied(register("c/r", Config, 0)), RefusalCode::Unknown, "no such region");
}

#[test]
fn a_replica_that_makes_no_sense_is_refused() {
    let spec = || replica_spec(Config);
    let faults = [
        ReplicaSpec { url: "ftp://h:1".to_owned(), ..spec() },
        ReplicaSpec { url: "http://user:password@h:1".to_owned(), ..spec() },
        ReplicaSpec { url: "http://h/path".to_owned(), ..spec() },
        ReplicaSpec { url: "http://".to_owned(), ..spec() },
        ReplicaSpec { models: ["a b".into()].into(), ..spec() },
        ReplicaSpec { weight: 0, ..spec() },
        ReplicaSpec { weight: 1001, ..spec() },
        ReplicaSpec { capacity: Some(0), ..spec() },
        ReplicaSpec { engine: "v\nllm".to_owned(), ..spec() },
        ReplicaSpec { source: Lease { length_ms: LEASE_MS_MIN - 1 }, ..spec() },
    ];
    for spec in faults {
        let mut world = world();
        let id = replica_id("a/r");
        let command = Command::RegisterReplica {
            id,
            spec: spec.clone(),
            incarnation: 0,
            expect: Expect::Any,
        };
        let outcome = world.apply(&world.by_operator(command));
        assert!(!format!("{outcome:?}").contains("password"));
        assert_eq!(crate::test_world::refusal(outcome).code, RefusalCode::Invalid, "{spec:?}");
    }
}

#[test]
fn a_replica_may_name_no_models() {
    let spec = ReplicaSpec { models: [].into(), ..replica_spec(Config) };
    let id = replica_id("a/r");
    let mut world = world();
    world.done(Command::RegisterReplica {
        id: id.clone(),
        spec,
        incarnation: 1,
        expect: Expect::Any,
    });
    assert!(world.state.records().replicas.get(&id).is_some_and(|it| it.spec.models.is_empty()));
}

#[test]
fn a_lease_that_is_not_renewed_ends_with_the_replica() {
    let mut world = world();
    let epoch = world.register("a/r", LEASE, 1);
    world.register("a/fixed", Config, 0);
    for _ in 0..3 {
        world.pass(20_000);
        world.applied("a1", renew("a/r", epoch));
        assert_eq!(world.apply(&world.by_node("a1", expire("a"))), Outcome::Unchanged);
    }
    assert_eq!(world.changes, [], "renewals are no news");
    world.pass(29_999);
    assert_eq!(world.apply(&world.by_node("a2", expire("a"))), Outcome::Unchanged);
    world.pass(1);
    world.applied("a2", expire("a"));
    let left: Vec<_> = world.state.records().replicas.keys().cloned().collect();
    assert_eq!(left, [replica_id("a/fixed")]);
    assert_eq!(world.changes.len(), 1);
    assert!(world.state.records().leases.is_empty());
}

#[test]
fn leases_are_their_regions_matter() {
    let mut world = world();
    let epoch = world.register("b/r", LEASE, 1);
    world.pass(3_600_000);
    assert_eq!(world.refused("a1", expire("b")), RefusalCode::NotOwner);
    assert_eq!(world.denied(expire("b")), RefusalCode::NotOwner, "an operator over node a1");
    assert_eq!(world.refused("a1", renew("b/r", epoch)), RefusalCode::NotOwner);
    // By the clock of region a, the lease in region b ended long ago.
    assert_eq!(world.apply(&world.by_node("a1", expire("a"))), Outcome::Unchanged);
    // The clock of region b stands still without entries of its own nodes.
    assert_eq!(world.apply(&world.by_node("b1", expire("b"))), Outcome::Unchanged);
}

#[test]
fn a_clock_that_jumps_ends_no_lease_that_is_renewed() {
    let mut world = world();
    let epoch = world.register("a/r", Lease { length_ms: LEASE_MS_MIN }, 1);
    for jump_ms in [0, 3_600_000, 0, -7_200_000_i64, 0, 0] {
        world.now_ms = world.now_ms.checked_add_signed(jump_ms).unwrap() + LEASE_MS_MIN / 3;
        world.apply(&world.by_node("a1", expire("a")));
        world.applied("a1", renew("a/r", epoch));
    }
    // After a jump back, leases still end.
    for _ in 0..3 {
        world.now_ms += LEASE_MS_MIN / 3;
        world.apply(&world.by_node("a1", expire("a")));
    }
    assert!(world.state.records().replicas.is_empty());
}

#[test]
fn renewals_of_other_epochs_are_left_out() {
    let mut world = world();
    let old = world.register("a/r", LEASE, 1);
    let new = world.register("a/r", LEASE, 2);
    world.register("a/fixed", Config, 0);
    assert_eq!(world.refused("a1", renew("a/r", old)), RefusalCode::StaleEpoch);
    let renewal = |name: &str, epoch| LeaseRenewal { name: name.into(), epoch };
    let leases = vec![renewal("r", old), renewal("r", new), renewal("fixed", new), renewal("x", 1)];
    let command = Command::RenewLeases { region: "a".into(), leases };
    let outcome = world.apply(&world.by_node("a1", command));
    assert_eq!(outcome, Outcome::Applied { version: world.index, skipped: 3 });
    let leases = vec![renewal("r", new); BATCH_MAX + 1];
    let command = Command::RenewLeases { region: "a".into(), leases };
    assert_eq!(world.refused("a1", command), RefusalCode::LimitReached);
}

#[test]
fn a_replica_that_becomes_part_of_the_config_has_no_lease() {
    let mut world = world();
    world.register("a/r", LEASE, 1);
    assert_eq!(world.state.records().leases.len(), 1);
    world.register("a/r", Config, 1);
    assert!(world.state.records().leases.is_empty());
}

#[test]
fn an_operators_word_outlives_registrations() {
    let mut world = world();
    world.register("a/r", LEASE, 1);
    world.done(set_state("a/r", ReplicaState::Draining));
    let weigh =
        |weight| Command::SetReplicaWeight { id: replica_id("a/r"), weight, expect: Expect::Any };
    world.done(weigh(Some(7)));
    assert_eq!(world.denied(weigh(Some(0))), RefusalCode::Invalid);
    world.register("a/r", LEASE, 2);
    let replica = world.replica("a/r");
    assert_eq!((replica.state, replica.weight()), (ReplicaState::Draining, 7));
    world.done(weigh(None));
    assert_eq!(world.replica("a/r").weight(), 1);
}

#[test]
fn a_replica_is_drained_in_steps() {
    use ReplicaState::{Active, Drained, Draining};
    let mut world = world();
    world.register("a/r", Config, 0);
    assert_eq!(world.denied(set_state("a/r", Drained)), RefusalCode::Transition);
    assert_eq!(world.refused("a1", set_state("a/r", Draining)), RefusalCode::NotPermitted);
    world.done(set_state("a/r", Draining));
    assert_eq!(world.refused("b1", set_state("a/r", Drained)), RefusalCode::NotOwner);
    world.applied("a1", set_state("a/r", Drained));
    assert_eq!(world.denied(set_state("a/r", Draining)), RefusalCode::Transition);
    assert_eq!(world.refused("a1", set_state("a/r", Active)), RefusalCode::NotPermitted);
    world.done(set_state("a/r", Active));
    let again = world.apply(&world.by_operator(set_state("a/r", Active)));
    assert_eq!(again, Outcome::Unchanged);
    assert_eq!(world.denied(set_state("a/x", Draining)), RefusalCode::Unknown);
}

#[test]
fn a_new_epoch_forgets_what_was_seen() {
    let mut world = world();
    world.register("b/r", Config, 0);
    assert_eq!(world.see("b1", &[], "b/r", (Belief::Down, 2)), Belief::Down);
    world.register("b/r", Config, 1);
    assert!(world.health("b/r").is_none());
}

#[test]
fn parts_of_a_replica_are_not_removed_alone() {
    let mut world = world();
    world.register("a/r", LEASE, 0);
    let id = replica_id("a/r");
    for key in [RecordKey::Lease(id.clone()), RecordKey::Health(id)] {
        assert_eq!(world.denied(remove(key)), RefusalCode::NotPermitted);
    }
}

#[test]
fn a_region_without_nodes_may_have_replicas_of_operators() {
    let mut world = world();
    world.done(put(Item::Region("c".into(), Region::default())));
    world.done(register("c/r", Config, 0));
    assert_eq!(world.denied(remove(RecordKey::Region("c".into()))), RefusalCode::InUse);
}
