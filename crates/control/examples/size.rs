//! What a state of 10,000 records costs: applying, digest, clone, snapshot.
//!
//! `cargo run --release -p spillway-control --example size`

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use spillway_control::{
    Actor, ClusterId, Command, DiskId, Entry, Expect, Fingerprint, Form, Hidden, Item, Key,
    KeyRole, LeaseSource, NodeSpec, Proposer, ReplicaId, ReplicaSpec, State, Tenant, WIRE, dry_run,
};

const RECORDS: usize = 10_000;
const REPEATS: u32 = 20;

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
    line(&mut out, "digest", || black_box(state.digest()))?;
    line(&mut out, "clone", || black_box(state.clone()))?;
    line(&mut out, "dry run", || dry_run(&state, &entry(suspend())))?;
    line(&mut out, "to snapshot", || state.to_snapshot())?;
    let Ok(snapshot) = state.to_snapshot() else { return Ok(()) };
    line(&mut out, "from snapshot", || State::from_snapshot(&snapshot))?;
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

/// A cluster of one node; 100 tenants; one half of the rest keys, the other replicas with leases.
fn commands() -> impl Iterator<Item = Command> {
    let node = NodeSpec {
        name: "a1".into(),
        region: "a".into(),
        address: "a1.example:7443".to_owned(),
        disk: DiskId([1; 16]),
        fingerprint: Fingerprint([1; 32]),
        wire_oldest: 1,
        wire_newest: WIRE,
    };
    let form = Command::Form(Form { cluster: ClusterId([1; 16]), nodes: vec![node] });
    let tenants = (0..100).map(|n| {
        let tenant = Tenant { title: "A tenant".to_owned(), is_suspended: false };
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

fn suspend() -> Command {
    let tenant = Tenant { title: String::new(), is_suspended: true };
    Command::Put { item: Item::Tenant("tenant-1".into(), tenant), expect: Expect::Any }
}

fn entry(command: Command) -> Entry {
    Entry {
        stamp_ms: 1_800_000_000_000,
        proposer: Proposer { node: "a1".into(), region: "a".into() },
        request: None,
        actor: Actor::Operator("ada".to_owned()),
        command,
    }
}
