//! Prints the costs of a state of 10,000 records, without and with a full hot trie: applying,
//! digest, clone, snapshot.
//!
//! `cargo run --release -p spillway-cluster-state --example size`

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use spillway_cluster_state::{
    Actor, ClusterId, Command, DiskId, Entry, Expect, Fingerprint, Form, HOT_BATCH_MAX, Hidden,
    HotBlock, HotDelta, HotTrie, Item, Key, KeyRole, LeaseSource, NodeSpec, Outcome, Proposer,
    ReplicaId, ReplicaSpec, State, Tenant, WIRE, dry_run,
};

const RECORDS: usize = 10_000;
const REPEATS: u32 = 20;
const REGIONS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn main() -> io::Result<()> {
    let mut state = State::new();
    let mut index = 0;
    let mut out = io::stdout().lock();
    let started = now();
    for command in commands() {
        index += 1;
        let effect = state.apply(index, &entry(command));
        assert!(!effect.changes.is_empty(), "{:?}", effect.outcome);
    }
    let each_us = (now() - started).as_secs_f64() * 1e6 / index as f64;
    let records = state.records().keys().count();
    writeln!(out, "{records} records, {} bytes", state.records().bytes())?;
    writeln!(out, "apply            {each_us:9.1} us")?;
    costs(&mut out, &state)?;
    let started = now();
    let mut entries = 0;
    for (region, command) in hot_commands() {
        index += 1;
        entries += 1;
        let proposer = Proposer { node: region.into(), region: region.into() };
        let entry = Entry { actor: Actor::Node, proposer, ..entry(command) };
        let effect = state.apply(index, &entry);
        assert!(matches!(effect.outcome, Outcome::Applied { .. }), "{:?}", effect.outcome);
    }
    let each_us = (now() - started).as_secs_f64() * 1e6 / f64::from(entries);
    let size = state.hot().stats();
    writeln!(
        out,
        "\nwith {} hot blocks in {} regions, {} bytes",
        size.blocks, size.regions, size.bytes
    )?;
    writeln!(out, "apply hot blocks {each_us:9.1} us, {HOT_BATCH_MAX} in each entry")?;
    costs(&mut out, &state)
}

fn costs(out: &mut impl Write, state: &State) -> io::Result<()> {
    line(out, "digest", || black_box(state.digest()))?;
    line(out, "clone", || black_box(state.clone()))?;
    line(out, "dry run", || dry_run(state, &entry(suspend())))?;
    line(out, "to snapshot", || state.to_snapshot())?;
    let Ok(snapshot) = state.to_snapshot() else { return Ok(()) };
    line(out, "from snapshot", || State::from_snapshot(&snapshot))?;
    writeln!(out, "snapshot has {} bytes", snapshot.len())
}

fn line<T>(out: &mut impl Write, what: &str, mut work: impl FnMut() -> T) -> io::Result<()> {
    let started = now();
    for _ in 0..REPEATS {
        black_box(work());
    }
    let each_us = (now() - started).as_secs_f64() * 1e6 / f64::from(REPEATS);
    writeln!(out, "{what:16} {each_us:9.1} us")
}

#[expect(clippy::disallowed_methods, reason = "the crate is pure, its stopwatch is not")]
fn now() -> Instant {
    Instant::now()
}

/// Returns the commands that form a cluster of one node in each region and fill it: 100 tenants,
/// then half of the rest as keys and half as replicas with leases.
fn commands() -> impl Iterator<Item = Command> {
    let node = |region: &str| NodeSpec {
        name: region.into(),
        region: region.into(),
        address: format!("{region}.example:7443"),
        disk: DiskId::from_bytes([region.as_bytes()[0]; 16]),
        fingerprint: Fingerprint([1; 32]),
        wire_oldest: 1,
        wire_newest: WIRE,
    };
    let form = Command::Form(Form {
        cluster: ClusterId::from_bytes([1; 16]),
        nodes: REGIONS.map(node).to_vec(),
    });
    let tenants = (0..100).map(|n| {
        let tenant = Tenant { title: "A tenant".to_owned(), ..Tenant::default() };
        Item::Tenant(format!("tenant-{n}").as_str().into(), tenant)
    });
    let keys = (0..RECORDS / 2 - 50).map(|n| {
        let key = Key {
            role: KeyRole::Client,
            salt: [1; 16],
            hash: Hidden::new([2; 32]),
            tenant: Some(format!("tenant-{}", n % 100).as_str().into()),
            models: ["llama-3.1-8b".into()].into(),
            regions: [].into(),
            priority: 1,
            expires_ms: None,
            is_revoked: false,
        };
        Item::Key(format!("key-{n}").as_str().into(), key)
    });
    let put = |item| Command::Put { item, expect: Expect::Any };
    let replicas = (0..RECORDS / 4 - 26).map(|n| Command::RegisterReplica {
        id: ReplicaId::new("a".into(), format!("replica-{n}").into()),
        spec: ReplicaSpec {
            source: LeaseSource::Lease { length_ms: 30_000 },
            ..ReplicaSpec::new("http://10.0.0.1:8000", ["llama-3.1-8b".into()])
        },
        incarnation: 1,
        expect: Expect::Any,
    });
    std::iter::once(form).chain(tenants.chain(keys).map(put)).chain(replicas)
}

/// Returns the commands that fill the hot trie: eight regions, each up to its limit by full deltas.
fn hot_commands() -> impl Iterator<Item = (&'static str, Command)> {
    let deltas = HotTrie::BLOCKS_MAX / REGIONS.len() / HOT_BATCH_MAX;
    let numbered = (0..deltas as u64).flat_map(|delta| REGIONS.map(|region| (region, delta)));
    numbered.map(|(region, delta)| {
        let first = delta * HOT_BATCH_MAX as u64 + 1;
        // Hashes are scattered over their whole range, so these numbers are too.
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let block = |number| HotBlock { hash: hash(number), parent: 0, depth: 1, heat: 20 };
        let enter = (first..first + HOT_BATCH_MAX as u64).map(block).collect();
        let delta = HotDelta { enter, leave: Vec::new() };
        (region, Command::HotBlocks { region: region.into(), key_epoch: 0, delta })
    })
}

fn suspend() -> Command {
    let tenant = Tenant { is_suspended: true, ..Tenant::default() };
    Command::Put { item: Item::Tenant("tenant-1".into(), tenant), expect: Expect::Any }
}

fn entry(command: Command) -> Entry {
    Entry {
        stamp_ms: 1_800_000_000_000,
        proposer: Proposer { node: "a".into(), region: "a".into() },
        request: None,
        actor: Actor::Operator("ada".to_owned()),
        command,
    }
}
