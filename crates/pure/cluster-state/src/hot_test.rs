//! Tests of hot blocks and of the key for hashing prompts.

use proptest::prelude::*;

use crate::golden_test::commands;
use crate::snapshot_test::full;
use crate::test_world::{World, hot, remove, setting};
use crate::{
    Actor, Command, Entry, EntryError, Expect, HOT_BATCH_MAX, HotBlock, HotDelta, KEY_EPOCH,
    Outcome, Proposer, RecordKey, RefusalCode, RegionState, State, dry_run,
};

fn world() -> World {
    World::of(&[("a", 2), ("b", 1)])
}

fn rotate() -> Command {
    Command::RotatePrefixKey { expect: Expect::Any }
}

/// Returns the number of hot blocks in a region.
fn blocks(state: &State, region: &str) -> usize {
    state.hot().region(&region.into()).map_or(0, |blocks| blocks.entries().len())
}

#[test]
fn a_region_says_what_is_hot_there_and_nobody_else_does() {
    let mut world = world();
    world.applied("a2", hot("a", 0, &[1, 2]));
    assert_eq!((blocks(&world.state, "a"), blocks(&world.state, "b")), (2, 0));
    assert_eq!(world.changes, [], "watchers receive nothing of it");
    assert_eq!(world.refused("a1", hot("b", 0, &[1])), RefusalCode::NotOwner);
    assert_eq!(world.refused("a1", hot("nowhere", 0, &[1])), RefusalCode::NotOwner);
    assert_eq!(world.refused("z9", hot("a", 0, &[1])), RefusalCode::NotOwner);
    let delta = HotDelta { enter: Vec::new(), leave: vec![1, 2] };
    world.applied("a1", Command::HotBlocks { region: "a".into(), key_epoch: 0, delta });
    assert_eq!(blocks(&world.state, "a"), 0);
    let nothing = world.apply(&world.by_node("a1", hot("a", 0, &[])));
    assert_eq!(nothing, Outcome::Unchanged);
    assert_eq!(world.state.system_audit().len(), 1, "the formation alone is written down");
}

#[test]
fn too_many_at_once_are_refused() {
    let mut world = world();
    let many: Vec<u64> = (1..=HOT_BATCH_MAX as u64 + 1).collect();
    assert_eq!(world.refused("a1", hot("a", 0, &many)), RefusalCode::LimitReached);
    let delta = HotDelta { enter: Vec::new(), leave: many };
    let leave = Command::HotBlocks { region: "a".into(), key_epoch: 0, delta };
    assert_eq!(world.refused("a1", leave), RefusalCode::LimitReached);
}

#[test]
fn the_largest_delta_fits_into_an_entry() {
    let block = HotBlock { hash: u64::MAX, parent: u64::MAX, depth: u16::MAX, heat: u8::MAX };
    let delta =
        HotDelta { enter: vec![block; HOT_BATCH_MAX], leave: vec![u64::MAX; HOT_BATCH_MAX] };
    let name = "n".repeat(64);
    let region = name.as_str().into();
    let entry = Entry {
        stamp_ms: u64::MAX,
        proposer: Proposer { node: name.as_str().into(), region },
        request: None,
        actor: Actor::Node,
        command: Command::HotBlocks { region: name.as_str().into(), key_epoch: u64::MAX, delta },
    };
    let bytes = entry.to_bytes().unwrap();
    assert_eq!(Entry::from_bytes(&bytes), Ok(entry));
}

#[test]
fn another_key_makes_everything_cold() {
    let mut world = world();
    for (by, region) in [("a1", "a"), ("b1", "b")] {
        world.applied(by, hot(region, 0, &[1, 2]));
    }
    let old = world.state.digest();
    let diff = dry_run(&world.state, &world.by_operator(rotate())).unwrap();
    assert_eq!(diff.len(), 1);
    assert_eq!(diff[0].key, RecordKey::Setting(KEY_EPOCH.to_owned()));
    assert_eq!((blocks(&world.state, "a"), world.state.digest()), (2, old), "a dry run");
    world.done(rotate());
    assert_eq!((world.state.key_epoch(), world.state.setting(KEY_EPOCH)), (1, Some("1")));
    assert!(world.state.hot().is_empty());
    assert_eq!(world.refused("a1", hot("a", 0, &[1])), RefusalCode::StaleEpoch);
    assert_eq!(world.refused("a1", hot("a", 2, &[1])), RefusalCode::StaleEpoch);
    world.applied("a1", hot("a", 1, &[1]));
    // The trie is emptied by every command that changes the setting, and only if the number
    // changes.
    world.done(setting("health.transition_ms", "7"));
    let same = world.apply(&world.by_operator(setting(KEY_EPOCH, "1")));
    assert_eq!((same, blocks(&world.state, "a")), (Outcome::Unchanged, 1));
    world.done(setting(KEY_EPOCH, "5"));
    assert!(world.state.hot().is_empty());
    world.applied("a1", hot("a", 5, &[1]));
    world.done(remove(RecordKey::Setting(KEY_EPOCH.to_owned())));
    assert_eq!((world.state.key_epoch(), world.state.hot().is_empty()), (0, true));
    world.applied("a1", hot("a", 0, &[1]));
}

#[test]
fn a_key_is_rotated_by_operators_once_for_each_request() {
    let mut world = world();
    assert_eq!(world.refused("a1", rotate()), RefusalCode::NotPermitted);
    let first = world.apply(&world.by_request(1, rotate()));
    assert_eq!(world.apply(&world.by_request(1, rotate())), first);
    assert_eq!(world.state.key_epoch(), 1);
    let version = world.state.records().version(&RecordKey::Setting(KEY_EPOCH.to_owned()));
    let expect = Expect::Version(version.unwrap());
    world.done(Command::RotatePrefixKey { expect });
    let late = world.apply(&world.by_operator(Command::RotatePrefixKey { expect }));
    assert!(matches!(late, Outcome::Conflict { .. }), "{late:?}");
    let (_, last) = world.state.operator_audit().iter().next_back().unwrap();
    assert_eq!(last.what, "rotate the key of prompts");
    world.done(setting(KEY_EPOCH, &u32::MAX.to_string()));
    assert_eq!(world.denied(rotate()), RefusalCode::Invalid, "there is no next one");
    assert_eq!(world.denied(setting(KEY_EPOCH, "-1")), RefusalCode::Invalid);
}

#[test]
fn a_clock_that_is_set_back_makes_nothing_colder() {
    let mut world = world();
    world.applied("a1", hot("a", 0, &[1]));
    world.now_ms -= 3_600_000;
    world.applied("a1", hot("a", 0, &[2]));
    let blocks = world.state.hot().region(&"a".into()).unwrap();
    let stamp_s = |hash| blocks.find(hash).unwrap().stamp_s;
    assert_eq!(stamp_s(2), stamp_s(1), "told at the state's own time");
}

#[test]
fn what_was_hot_in_a_region_goes_with_it() {
    let mut world = world();
    world.applied("a1", hot("a", 0, &[1, 2]));
    world.applied("b1", hot("b", 0, &[1]));
    let state = RegionState::Evacuating;
    world.done(Command::SetRegionState { region: "b".into(), state, expect: Expect::Any });
    assert_eq!(blocks(&world.state, "b"), 1, "its caches are as warm as before");
    world.done(remove(RecordKey::Region("b".into())));
    assert_eq!((blocks(&world.state, "a"), blocks(&world.state, "b")), (2, 0));
}

#[test]
fn hot_blocks_are_part_of_digest_and_snapshot() {
    let mut world = full();
    let before = world.state.clone();
    world.applied("a1", hot("a", 0, &[77]));
    let read = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
    assert_eq!(blocks(&read, "a"), blocks(&before, "a") + 1);
    assert_eq!((read.hot(), read.digest()), (world.state.hot(), world.state.digest()));
    // Another trie with all else equal has another digest.
    let (mut one, mut two) = (before.clone(), before);
    one.apply(world.index, &world.by_node("a1", hot("a", 0, &[77])));
    two.apply(world.index, &world.by_node("a1", hot("a", 0, &[78])));
    assert_eq!(one.records(), two.records());
    assert_ne!(one.digest(), two.digest());
}

#[test]
fn hints_never_fill_the_state_up() {
    let mut world = world();
    let bytes = world.state.bytes();
    for batch in 0..20_u64 {
        let hashes: Vec<u64> = (1..=1_000).map(|n| batch * 1_000 + n).collect();
        world.apply(&world.by_node("a1", hot("a", 0, &hashes)));
    }
    assert!(blocks(&world.state, "a") > 1_000);
    assert_eq!(world.state.bytes(), bytes);
}

proptest! {
    /// Every input of a log or a link is refused or carried out.
    #[test]
    fn any_bytes_as_a_command_never_panic(
        which in 0_usize..1_000,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        at in any::<prop::sample::Index>(),
    ) {
        let mut world = full();
        let hot = |(name, _): &(&str, Command)| *name == "hot_blocks";
        let (_, command) = commands().into_iter().find(hot).unwrap();
        prop_assert!(command.is_hint(), "{}", command);
        let mut payload = Vec::new();
        spillway_codec::write_payload(&command, &mut payload).unwrap();
        // The variant's number stays in most cases, so that most inputs are read as hot blocks.
        let from = if which.is_multiple_of(4) { 0 } else { at.index(payload.len()).max(1) };
        payload.truncate(from);
        payload.extend(&bytes);
        let Ok(command) = spillway_codec::decode_payload::<Command>(&payload) else {
            return Ok(());
        };
        let entry = world.by_node("a1", command);
        match Entry::from_bytes(&entry.to_bytes().unwrap()) {
            Ok(read) => prop_assert_eq!(read, entry.clone()),
            Err(EntryError::NewerCommand { .. } | EntryError::Decode(_)) => {}
        }
        let outcome = world.apply(&entry);
        spillway_codec::encode(&outcome).unwrap();
        let read = State::from_snapshot(&world.state.to_snapshot().unwrap()).unwrap();
        prop_assert_eq!(read.digest(), world.state.digest());
    }

    /// A hostile or broken node of the region may send blocks with any numbers.
    #[test]
    fn any_blocks_leave_a_state_that_snapshots_carry(
        deltas in prop::collection::vec((prop::collection::vec((any::<u64>(), any::<u64>(),
            any::<u16>(), any::<u8>()), 0..40), prop::collection::vec(any::<u64>(), 0..10)), 1..8),
        stamps in prop::collection::vec(any::<u64>(), 8),
    ) {
        let (mut one, mut two) = (world(), world());
        for ((blocks, leave), stamp_ms) in deltas.into_iter().zip(stamps) {
            let block = |(hash, parent, depth, heat)| HotBlock { hash, parent, depth, heat };
            let delta = HotDelta { enter: blocks.into_iter().map(block).collect(), leave };
            let command = Command::HotBlocks { region: "a".into(), key_epoch: 0, delta };
            (one.now_ms, two.now_ms) = (stamp_ms, stamp_ms);
            let entry = one.by_node("a1", command);
            prop_assert_eq!(one.apply(&entry), two.apply(&entry));
            two.state = State::from_snapshot(&two.state.to_snapshot().unwrap()).unwrap();
            prop_assert_eq!(one.state.digest(), two.state.digest());
        }
        prop_assert_eq!(one.state, two.state);
    }
}
