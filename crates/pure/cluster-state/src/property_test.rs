//! Properties of the state that hold for every log.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::items_test::key;
use crate::test_any::{entries, resolve};
use crate::test_world::{World, put, token_terms};
use crate::{
    Actor, Change, ChangeKind, Command, Effect, Entry, Expect, Item, JoinToken, LeaseSource,
    NodeId, Outcome, Record, RecordKey, ReplicaId, State, Tenant, TokenTerms, dry_run,
};

/// Returns a state with some records of every kind, so that the commands of a log find records.
fn world() -> World {
    let mut world = World::of(&[("a", 2), ("b", 1), ("c", 1)]);
    world.done(put(Item::Tenant("x".into(), Tenant::default())));
    world.done(put(Item::Key("x".into(), key(Some("x")))));
    world.register("a/r", LeaseSource::Lease { length_ms: 20_000 }, 1);
    let token = TokenTerms { valid_ms: 3_600_000, ..token_terms(3, 9) };
    world.done(put(Item::JoinToken("t".into(), token)));
    world
}

/// First index of a log, after the entries of [`world`].
const FIRST: u64 = 10;

/// Returns the log of these entries: indices with gaps, and present epochs filled in.
fn log(entries: Vec<Entry>) -> Vec<(u64, Entry)> {
    let mut state = world().state;
    let mut log = Vec::new();
    for (number, entry) in entries.into_iter().enumerate() {
        let index = FIRST + number as u64 + number as u64 / 7;
        let entry = resolve(&state, entry);
        state.apply(index, &entry);
        log.push((index, entry));
    }
    log
}

fn visible(state: &State) -> BTreeMap<RecordKey, Record> {
    let keys = state.records().keys();
    let is_quiet = |key: &RecordKey| matches!(key, RecordKey::Lease(_) | RecordKey::TokenOrigin(_));
    let seen = keys.filter(|key| !is_quiet(key));
    seen.map(|key| (key.clone(), state.record(&key).unwrap())).collect()
}

/// Returns records without values that change silently: versions of health, and ends of join
/// tokens, which follow the cluster's clock when it goes back.
fn values(records: &BTreeMap<RecordKey, Record>) -> BTreeMap<RecordKey, String> {
    let value = |record: &Record| match record {
        Record::Health(row) => {
            let mut health = row.value().clone();
            health.observers.values_mut().for_each(|said| said.at_ms = 0);
            format!("{health:?}")
        }
        Record::JoinToken(row) => {
            let token = JoinToken { expires_ms: 0, ..row.value().clone() };
            format!("{} {token:?}", row.version())
        }
        other => format!("{other:?}"),
    };
    records.iter().map(|(key, record)| (key.clone(), value(record))).collect()
}

fn changes_between(
    before: &BTreeMap<RecordKey, String>,
    after: &BTreeMap<RecordKey, String>,
) -> BTreeMap<RecordKey, (bool, bool)> {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let differs = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    differs.map(|key| (key.clone(), (before.contains_key(key), after.contains_key(key)))).collect()
}

fn epochs(state: &State) -> BTreeMap<ReplicaId, u64> {
    let replicas = state.records().replicas.iter();
    replicas.map(|(id, replica)| (id.clone(), replica.epoch)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_same_log_makes_the_same_state_over_a_snapshot_too(
        entries in entries(80),
        cut in any::<prop::sample::Index>(),
    ) {
        let log = log(entries);
        let (mut one, mut two) = (world().state, world().state);
        let cut = cut.index(log.len());
        for (number, (index, entry)) in log.iter().enumerate() {
            let read = Entry::from_bytes(&entry.to_bytes().unwrap()).unwrap();
            if number == cut {
                two = State::from_snapshot(&two.to_snapshot().unwrap()).unwrap();
            }
            prop_assert_eq!(one.apply(*index, entry), two.apply(*index, &read));
            prop_assert_eq!(one.digest(), two.digest());
        }
        prop_assert_eq!(&one, &two);
        prop_assert_eq!(one.to_snapshot().unwrap(), two.to_snapshot().unwrap());
    }

    #[test]
    fn another_log_makes_another_digest(entries in entries(40)) {
        let mut state = world().state;
        let mut digests = BTreeSet::from([state.digest()]);
        let log = log(entries);
        for (index, entry) in &log {
            state.apply(*index, entry);
            digests.insert(state.digest());
        }
        prop_assert_eq!(digests.len(), log.len() + 1);
    }

    #[test]
    fn what_is_told_to_watchers_is_what_changed(entries in entries(80)) {
        let mut state = world().state;
        for (index, entry) in log(entries) {
            let before = visible(&state);
            let Effect { outcome, changes } = state.apply(index, &entry);
            let after = visible(&state);
            let told: BTreeSet<_> = changes.iter().map(|change| change.key.clone()).collect();
            let differs = changes_between(&values(&before), &values(&after));
            prop_assert_eq!(&told, &differs.keys().cloned().collect());
            prop_assert_eq!(told.len(), changes.len(), "each once: {:?}", changes);
            for Change { key, kind } in &changes {
                let expected = match differs[key] {
                    (false, true) => ChangeKind::Created,
                    (true, true) => ChangeKind::Updated,
                    _ => ChangeKind::Removed,
                };
                prop_assert_eq!(*kind, expected);
                if *kind != ChangeKind::Removed {
                    prop_assert_eq!(state.records().version(key), Some(index));
                }
            }
            let is_applied = matches!(outcome, Outcome::Applied { .. });
            if outcome == Outcome::Unchanged {
                prop_assert_eq!(values(&before), values(&after));
            } else if !is_applied {
                prop_assert_eq!(before, after, "{:?}", outcome);
            }
            if let Outcome::Applied { version, .. } = outcome {
                prop_assert!(version <= index);
            }
            spillway_codec::encode(&outcome).unwrap();
        }
    }

    #[test]
    fn a_dry_run_tells_what_happens_then(entries in entries(60)) {
        let mut state = world().state;
        for mut entry in entries {
            entry.request = None;
            let entry = resolve(&state, entry);
            let before = state.digest();
            let told = dry_run(&state, &entry);
            prop_assert_eq!(state.digest(), before);
            let Effect { outcome, changes } = state.apply(state.applied() + 1, &entry);
            match told {
                Ok(diffs) => {
                    let told: BTreeSet<_> = diffs.iter().map(|diff| diff.key.clone()).collect();
                    let done: BTreeSet<_> = changes.into_iter().map(|change| change.key).collect();
                    prop_assert_eq!(told, done);
                    for diff in diffs {
                        prop_assert_eq!(diff.after, state.record(&diff.key));
                    }
                    let is_right = matches!(outcome, Outcome::Applied { .. } | Outcome::Unchanged);
                    prop_assert!(is_right, "{:?}", outcome);
                }
                Err(fault) => prop_assert_eq!(Outcome::from(fault), outcome),
            }
        }
    }

    #[test]
    fn a_conflict_is_told_exactly_when_versions_differ(entries in entries(60)) {
        let mut state = world().state;
        for (index, mut entry) in log(entries) {
            entry.request = None;
            if let Command::Put { item, expect } = &entry.command {
                let current = state.records().version(&item.key());
                let fits = match expect {
                    Expect::Any => true,
                    Expect::Absent => current.is_none(),
                    Expect::Version(version) => current == Some(*version),
                };
                let outcome = state.apply(index, &entry).outcome;
                let is_conflict = matches!(outcome, Outcome::Conflict { .. });
                if fits {
                    prop_assert!(!is_conflict);
                } else if let Outcome::Conflict { current: told, .. } = outcome {
                    prop_assert_eq!(told, current);
                } else {
                    prop_assert!(matches!(outcome, Outcome::Refused(_)), "{:?}", outcome);
                }
            } else {
                state.apply(index, &entry);
            }
        }
    }

    #[test]
    fn a_request_happens_once_however_often_it_comes(entries in entries(60)) {
        let mut state = world().state;
        for (index, mut entry) in log(entries) {
            let name: u8 = (index % 127) as u8;
            entry.request = Some(crate::RequestId::unkeyed([name & 0x7f; 16]));
            let first = state.apply(10 * index, &entry).outcome;
            let records = state.records().clone();
            let audited = state.operator_audit().len();
            let Effect { outcome, changes } = state.apply(10 * index + 1, &entry);
            if entry.command.is_routine() {
                continue;
            }
            prop_assert_eq!(outcome, first);
            prop_assert_eq!(changes, vec![]);
            prop_assert_eq!(&records, state.records());
            prop_assert_eq!(audited, state.operator_audit().len());
        }
    }

    #[test]
    fn ids_and_epochs_are_never_given_twice(entries in entries(120)) {
        let mut state = world().state;
        let mut known: BTreeSet<NodeId> = state.records().nodes.keys().copied().collect();
        let mut highest = BTreeMap::<ReplicaId, u64>::new();
        for (index, entry) in log(entries) {
            let before: BTreeMap<NodeId, _> =
                state.records().nodes.iter().map(|(id, node)| (*id, node.spec.disk)).collect();
            state.apply(index, &entry);
            for (id, node) in state.records().nodes.iter() {
                match before.get(id) {
                    Some(disk) => prop_assert_eq!(*disk, node.spec.disk, "one id, one disk"),
                    None => prop_assert!(known.insert(*id), "{} came back", id),
                }
            }
            let names: BTreeSet<_> =
                state.records().nodes.iter().map(|(_, node)| node.spec.name.clone()).collect();
            prop_assert_eq!(names.len(), state.records().nodes.len(), "names are unique");
            for (id, epoch) in epochs(&state) {
                let last = highest.insert(id, epoch).unwrap_or(0);
                prop_assert!(epoch >= last);
            }
        }
    }

    #[test]
    fn health_and_leases_change_by_their_own_region_alone(entries in entries(120)) {
        let mut state = world().state;
        for (index, entry) in log(entries) {
            let before = state.records().clone();
            let is_admitted = state.check_proposer(&entry).is_ok();
            state.apply(index, &entry);
            let region = &entry.proposer.region;
            for (id, health) in state.records().health.iter() {
                if before.health.get(id) != Some(health) {
                    prop_assert_eq!(&id.region, region);
                    let is_report = matches!(entry.command, Command::ReportHealth { .. });
                    prop_assert!(is_report);
                }
                prop_assert_eq!(Some(health.epoch), epochs(&state).get(id).copied());
            }
            for (id, lease) in state.records().leases.iter() {
                if before.leases.get(id) != Some(lease) && entry.actor == Actor::Node {
                    prop_assert_eq!(&id.region, region);
                }
                prop_assert_eq!(Some(lease.epoch), epochs(&state).get(id).copied());
            }
            if let Command::ExpireLeases { region } = &entry.command {
                let now_ms = state.region_clock_ms(region).unwrap_or(0);
                for (id, lease) in before.leases.iter() {
                    let is_over = is_admitted
                        && id.region == *region
                        && *region == entry.proposer.region
                        && entry.request.is_none()
                        && lease.ends_ms <= now_ms;
                    let is_gone = !state.records().replicas.keys().any(|known| known == id);
                    prop_assert!(!is_gone || id.region == *region, "another region's");
                    prop_assert!(!is_gone || lease.ends_ms <= now_ms, "before its time");
                    // Reports of nodes that are no longer members are ignored.
                    let is_heard = state.node(&entry.proposer.node).is_some();
                    prop_assert!(!is_over || is_gone || !is_heard, "{} stayed", id);
                }
            }
        }
    }

    #[test]
    fn a_belief_does_not_change_twice_within_its_time(entries in entries(120)) {
        let mut state = world().state;
        for (index, entry) in log(entries) {
            let before = state.records().health.clone();
            state.apply(index, &entry);
            let transition_ms: u64 =
                state.setting("health.transition_ms").unwrap().parse().unwrap();
            for (id, health) in state.records().health.iter() {
                let Some(old) = before.get(id).filter(|old| old.epoch == health.epoch) else {
                    continue;
                };
                if let (true, Some(last), Some(now)) =
                    (old.belief != health.belief, old.changed_ms, health.changed_ms)
                {
                    prop_assert!(now >= last + transition_ms, "{} after {}", now, last);
                }
            }
        }
    }
}

/// Tables are refused new records at their limit, not before.
#[test]
fn tables_fill_up_to_their_limit() {
    use crate::{RefusalCode, Route};
    let mut world = world();
    let route = |n: usize| put(Item::Route(format!("r{n}").into(), Route::default()));
    for n in 0..crate::limits::ROUTES_MAX {
        world.done(route(n));
    }
    assert_eq!(world.denied(route(999)), RefusalCode::LimitReached);
    world.apply(&world.by_operator(route(0)));
    world.done(crate::test_world::remove(RecordKey::Route("r1".into())));
    world.done(route(999));
    // Records that other commands create count too.
    for n in world.state.records().regions.len()..crate::limits::REGIONS_MAX {
        world.done(put(Item::Region(format!("x{n}").into(), crate::Region::default())));
    }
    let node = crate::test_world::node_spec("z1", "z");
    assert_eq!(world.denied(Command::RegisterNode { node }), RefusalCode::LimitReached);
    assert!(world.state.node(&"z1".into()).is_none());
}

/// Commands that add records are refused when the state is full; removals and renewals are not.
#[test]
fn a_full_state_takes_no_more_and_can_be_emptied() {
    use crate::test_world::setting;
    use crate::{Model, RefusalCode};
    let mut world = world();
    let fallbacks: Vec<_> =
        (0..8).map(|n| format!("{n}{}", "x".repeat(254)).as_str().into()).collect();
    let model = Model { fallbacks, ..Model::default() };
    let large = |n: usize| {
        let models = (0..180).map(|m| format!("{m:0>255}").as_str().into()).collect();
        let role = crate::KeyRole::Read;
        let key = crate::Key { role, models, ..key(None) };
        put(Item::Key(format!("k{n}").as_str().into(), key))
    };
    world.done(put(Item::Model("m".into(), model)));
    let filled = (0..2_000).find(|n| {
        let outcome = world.apply(&world.by_operator(large(*n)));
        !matches!(outcome, Outcome::Applied { .. })
    });
    assert!(filled.is_some_and(|n| n > 50), "{filled:?}");
    assert_eq!(world.denied(setting("health.transition_ms", "1")), RefusalCode::StateFull);
    assert!(world.state.bytes() < crate::STATE_BYTES_MAX + 2 * crate::ENTRY_BYTES_MAX as u64);
    world.done(crate::test_world::remove(RecordKey::Key("k1".into())));
    world.done(crate::test_world::remove(RecordKey::Key("k2".into())));
    world.done(setting("health.transition_ms", "1"));
    assert!(State::from_snapshot(&world.state.to_snapshot().unwrap()).is_ok());
}

proptest! {
    /// Leases on a limit never add up to more than the limit.
    #[test]
    fn no_more_of_a_limit_is_given_than_there_is(entries in entries(120)) {
        let mut state = world().state;
        for (index, entry) in log(entries) {
            let before = state.shares().clone();
            state.apply(index, &entry);
            for (scope, pool) in state.shares().pools() {
                let (taken, whole) = (pool.taken(), pool.whole());
                let before = before.pool(scope).map(|pool| pool.taken()).unwrap_or_default();
                for kind in spillway_rate_limit::LimitKind::ALL {
                    prop_assert!(taken[kind] <= whole[kind].max(before[kind]), "{scope} {kind}");
                }
            }
        }
    }
}

/// Logs must reach the cases that the properties above are about.
#[test]
fn any_log_reaches_every_command_and_most_refusals() {
    use std::mem::{Discriminant, discriminant};

    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let mut applied = Vec::<Discriminant<Command>>::new();
    let mut codes = BTreeSet::new();
    for _ in 0..90 {
        let entries = entries(80).new_tree(&mut runner).unwrap().current();
        let mut state = world().state;
        for (index, entry) in log(entries) {
            match state.apply(index, &entry).outcome {
                Outcome::Applied { .. } => applied.push(discriminant(&entry.command)),
                Outcome::Refused(refusal) => drop(codes.insert(refusal.code)),
                Outcome::Unchanged | Outcome::Conflict { .. } => {}
            }
        }
    }
    for (name, command) in crate::golden_test::commands() {
        let is_formation = matches!(command, Command::Form(_));
        let is_reached = applied.contains(&discriminant(&command));
        assert!(is_reached || is_formation, "{name} was never carried out");
    }
    assert!(codes.len() >= 11, "{codes:?}");
}
