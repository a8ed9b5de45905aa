//! Nodes of two versions in one cluster, as a rolling upgrade has them.
//!
//! The tests invent a wire version after the present one, which is the older one here: [`State`] is
//! the state of a node of the older version, [`NewState`] that of a newer one. The newer version adds
//! one setting, and one number to the state.

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use spillway_codec::{DecodeError, Wire, decode, decode_payload, encode};

use super::snapshot::{Head, Layout, split};
use crate::records::INVENTED;
use crate::snapshot_test::full;
use crate::test_any::{entries, resolve};
use crate::test_world::{World, join_by, node_spec_of, put, remove, setting, token_terms};
use crate::{
    Command, Digest, Effect, Entry, EntryError, Item, Outcome, RecordKey, RefusalCode,
    SnapshotError, State, WIRE, admits,
};

const NEW_WIRE: u16 = WIRE + 1;

/// State of a node of the invented version.
#[derive(Clone, Debug, PartialEq)]
struct NewState {
    state: State,
    /// Number of writes of the invented setting.
    writes: u64,
}

/// Snapshot of the invented version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct NewLayout {
    older: Layout,
    writes: u64,
}

impl NewState {
    fn new(state: &State) -> Self {
        Self { state: state.clone(), writes: 0 }
    }

    fn apply(&mut self, index: u64, entry: &Entry) -> Effect {
        let effect = self.state.apply(index, entry);
        let is_new = matches!(&entry.command, Command::Put { item, .. } if item.since() > WIRE);
        if is_new && matches!(effect.outcome, Outcome::Applied { .. }) {
            self.writes += 1;
        }
        effect
    }

    /// Returns true if nodes of the older version can hold the state: no newer command took part.
    fn is_for_older(&self) -> bool {
        self.state.ledger.wire_used < NEW_WIRE
    }

    fn digest(&self) -> Digest {
        match self.is_for_older() {
            true => self.state.digest(),
            false => Digest::of(&(self.state.digest(), self.writes)).0,
        }
    }

    fn to_snapshot(&self) -> Vec<u8> {
        let head = Head { digest: self.digest(), ..self.state.to_head() };
        let older = self.state.to_layout();
        let layout = match self.is_for_older() {
            true => encode(&older),
            false => encode(&NewLayout { older, writes: self.writes }),
        };
        [encode(&head).unwrap(), layout.unwrap()].concat()
    }

    fn from_snapshot(bytes: &[u8]) -> Self {
        let (head, layout) = split(bytes).unwrap();
        let head: Head = decode(head).unwrap();
        let NewLayout { older, writes } = decode(layout).unwrap();
        let read = Self { state: older.into(), writes };
        assert_eq!(read.digest(), head.digest);
        read
    }
}

impl Wire for NewLayout {
    const KIND: u16 = Layout::KIND;
    const VERSION: u16 = Layout::VERSION + 1;
    const BYTES_MAX: usize = Layout::BYTES_MAX;

    fn decode_older(version: u16, payload: &[u8]) -> Result<Self, DecodeError> {
        assert_eq!(version, Layout::VERSION);
        Ok(Self { older: decode_payload(payload)?, writes: 0 })
    }
}

fn invented(value: u8) -> Command {
    setting(INVENTED, &value.to_string())
}

fn register(wire: u16, name: &str) -> Command {
    Command::RegisterNode { node: node_spec_of(wire, name, &name[..1]) }
}

/// Checks that nodes of both versions agree on `old`, and read what the other one writes.
#[track_caller]
fn check_agreement(old: &State, new: &NewState) {
    assert_eq!(old.digest(), new.digest());
    let (by_old, by_new) = (old.to_snapshot().unwrap(), new.to_snapshot());
    assert_eq!(by_old, by_new, "the same bytes");
    assert_eq!(State::from_snapshot(&by_new).as_ref(), Ok(old));
    assert_eq!(NewState::from_snapshot(&by_old), *new);
}

#[test]
fn what_is_newer_waits_until_every_node_is_upgraded() {
    let mut world = World::of(&[("a", 2), ("b", 1)]);
    for node in ["a1", "b1", "a2"] {
        assert_eq!(world.state.wire_oldest(), WIRE);
        let refusal = admits(&world.state, &invented(1)).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::WireVersion);
        let needed = format!("needs wire version {NEW_WIRE}");
        assert!(refusal.cause.contains(&needed), "{refusal}");
        assert_eq!(world.denied(invented(1)), RefusalCode::WireVersion);
        // All other commands go on, and each node registers its new version by itself.
        world.done(setting("health.transition_ms", &world.index.to_string()));
        world.applied(node, register(NEW_WIRE, node));
    }
    assert_eq!(world.state.wire_oldest(), NEW_WIRE);
    assert_eq!(admits(&world.state, &invented(1)), Ok(()));
    world.done(invented(1));
    assert_eq!(world.state.setting(INVENTED), Some("1"));
}

#[test]
fn a_node_that_joins_counts_too() {
    let mut world = World::of_wire(NEW_WIRE, &[("a", 1)]);
    world.done(put(Item::JoinToken("t".into(), token_terms(1, 2))));
    world.applied("a1", join_by(node_spec_of(WIRE, "b1", "b"), 1));
    assert_eq!(world.denied(invented(1)), RefusalCode::WireVersion);
    world.done(remove(RecordKey::Node(world.node_id("b1"))));
    world.done(invented(1));
    let late = join_by(node_spec_of(WIRE, "c1", "c"), 1);
    assert_eq!(world.refused("a1", late), RefusalCode::WireVersion);
    world.applied("a1", join_by(node_spec_of(NEW_WIRE, "c1", "c"), 1));
}

#[test]
fn a_node_goes_back_to_the_older_version_until_something_newer_took_part() {
    let mut world = World::of_wire(NEW_WIRE, &[("a", 2)]);
    world.applied("a2", register(WIRE, "a2"));
    world.applied("a2", register(NEW_WIRE, "a2"));
    world.done(invented(1));
    assert_eq!(world.refused("a2", register(WIRE, "a2")), RefusalCode::WireVersion);
    // The setting is removed, but the log still has the newer command.
    world.done(invented(0));
    world.done(remove(RecordKey::Setting(INVENTED.to_owned())));
    assert_eq!(world.refused("a2", register(WIRE, "a2")), RefusalCode::WireVersion);
}

#[test]
fn both_versions_have_equal_digests_and_snapshots_until_something_newer_took_part() {
    let mut world = full();
    let mut new = NewState::new(&world.state);
    check_agreement(&world.state, &new);
    let upgrades = ["a1", "a2", "b1"].map(|node| world.by_node(node, register(NEW_WIRE, node)));
    for entry in upgrades {
        world.apply(&entry);
        new.apply(world.index, &entry);
        check_agreement(&world.state, &new);
    }
    let entry = world.by_operator(invented(1));
    world.apply(&entry);
    new.apply(world.index, &entry);
    assert_eq!((new.state.setting(INVENTED), new.writes), (Some("1"), 1));
    assert_eq!(NewState::from_snapshot(&new.to_snapshot()), new);
    assert_ne!(new.digest(), world.state.digest(), "the number is part of it");
}

/// An older program that reads something newer reports this, with a remedy.
#[test]
fn the_older_version_refuses_entries_and_snapshots_with_something_newer() {
    let mut world = World::of_wire(NEW_WIRE, &[("a", 1)]);
    let mut new = NewState::new(&world.state);
    let entry = world.by_operator(invented(1));
    world.apply(&entry);
    new.apply(world.index, &entry);
    let needed = NEW_WIRE;
    let read = Entry::from_bytes(&entry.to_bytes().unwrap());
    assert_eq!(read, Err(EntryError::NewerCommand { needed }));
    let read = State::from_snapshot(&new.to_snapshot()).unwrap_err();
    assert_eq!(read, SnapshotError::Newer(EntryError::NewerCommand { needed }));
    assert!(read.to_string().contains("upgrade this node"), "{read}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn both_versions_agree_after_any_log_without_anything_newer(entries in entries(40)) {
        let mut old = full().state;
        let mut new = NewState::new(&old);
        for entry in entries {
            let (index, entry) = (old.applied() + 1, resolve(&old, entry));
            prop_assert_eq!(old.apply(index, &entry), new.apply(index, &entry));
        }
        check_agreement(&old, &new);
    }
}
