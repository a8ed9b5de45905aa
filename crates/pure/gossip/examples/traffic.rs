//! Traffic of the gossip, measured in simulated time.
//!
//! `cargo run -p spillway-gossip --example traffic [-- --json]`

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Instant;

use spillway_gossip::{
    GossipConfig, GossipEvent, ModelShare, OwnLoad, Reach, ReplicaLoad, ReplicaSignals,
};
use spillway_types::ModelLoad;

use world::{Network, World};

#[expect(clippy::unwrap_used, reason = "a part of tests, where a failure is a finding")]
#[path = "../tests/simulated/world.rs"]
mod world;

const REPLICAS: u32 = 8;
const MODELS: u32 = 4;
/// Time between two updates of a node's load, milliseconds.
const FEED_MS: u64 = 50;
/// Time for nodes to get to know each other, milliseconds.
const WARM_UP_MS: u64 = 1_500;

/// Load changes during the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// A request more or less at one replica of each node four times a second, and a change of one
    /// model's wait once a second.
    Little,
    /// Every number, by more than the threshold, with every report.
    All,
}

struct Case {
    regions: usize,
    size: usize,
    change: Change,
    loss_permille: u32,
    seconds: u64,
}

fn main() -> io::Result<()> {
    let is_json = std::env::args().any(|argument| argument == "--json");
    let mut out = io::stdout().lock();
    let mut rows = Vec::new();
    for case in cases() {
        rows.push((measure(&case), case));
        if !is_json {
            if rows.len() == 1 {
                writeln!(out, "{}", heading())?;
            }
            if let Some((figures, case)) = rows.last() {
                writeln!(out, "{}", line(case, figures))?;
            }
        }
    }
    if is_json {
        let list: Vec<_> = rows.iter().map(|(figures, case)| object(case, figures)).collect();
        writeln!(out, "{}", serde_json::Value::from(list))?;
    }
    Ok(())
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for change in [Change::Little, Change::All] {
        for loss_permille in [0, 50, 200] {
            // Where false alarms are to be seen at all they take their time.
            let seconds = if change == Change::Little && loss_permille == 200 { 200 } else { 10 };
            cases.push(Case { regions: 6, size: 4, change, loss_permille, seconds });
        }
        for (regions, seconds) in [(3, 10), (10, 10), (50, 1)] {
            cases.push(Case { regions, size: 4, change, loss_permille: 0, seconds });
        }
    }
    cases
}

/// Figures of one case. Bytes are those of datagrams with their frames, without QUIC, UDP and IP.
#[derive(Debug)]
struct Figures {
    mean_bytes_per_s: f64,
    speaker_bytes_per_s: f64,
    other_bytes_per_s: f64,
    datagrams_per_s: f64,
    longest_bytes: usize,
    /// Mean age of a node's knowledge of another region's models when it reads it, without the time
    /// in transit, milliseconds.
    age_ms: f64,
    age_p99_ms: u64,
    /// Regions given up although they were there, per hour and pair of node and region.
    false_alarms_per_h: f64,
    asked_per_s: f64,
}

fn measure(case: &Case) -> Figures {
    let network = Network { loss_permille: case.loss_permille, ..Network::default() };
    let mut world = World::new(case.regions, case.size, network, GossipConfig::default(), 7);
    let mut clock = 0;
    drive(&mut world, case, &mut clock, WARM_UP_MS, |_| {});
    for node in &mut world.nodes {
        (node.sent, node.sent_bytes, node.longest_bytes) = (0, 0, 0);
        node.events.clear();
    }
    let asked = |world: &World| -> u64 {
        (0..world.nodes.len()).map(|node| world.gossip(node).counters().asked).sum()
    };
    let asked_before = asked(&world);
    let mut ages_ms = Vec::new();
    drive(&mut world, case, &mut clock, case.seconds * 1_000, |world| ages(world, &mut ages_ms));
    let asked = asked(&world) - asked_before;
    figures(case, &world, ages_ms, asked)
}

fn figures(case: &Case, world: &World, mut ages_ms: Vec<u64>, asked: u64) -> Figures {
    let seconds = case.seconds as f64;
    let nodes = world.nodes.len() as f64;
    let bytes = |speaks: bool| {
        let chosen = (0..world.nodes.len()).filter(|node| {
            let gossip = world.gossip(*node);
            (*gossip.speaker() == gossip.me().node) == speaks
        });
        let bytes: Vec<u64> = chosen.map(|node| world.nodes[node].sent_bytes).collect();
        bytes.iter().sum::<u64>() as f64 / bytes.len() as f64 / seconds
    };
    let alarms = world
        .nodes
        .iter()
        .flat_map(|node| &node.events)
        .filter(|(_, event)| matches!(event, GossipEvent::Region { from: Reach::Both, .. }))
        .count() as f64;
    ages_ms.sort_unstable();
    Figures {
        mean_bytes_per_s: world.nodes.iter().map(|node| node.sent_bytes).sum::<u64>() as f64
            / nodes
            / seconds,
        speaker_bytes_per_s: bytes(true),
        other_bytes_per_s: bytes(false),
        datagrams_per_s: world.nodes.iter().map(|node| node.sent).sum::<u64>() as f64
            / nodes
            / seconds,
        longest_bytes: world.nodes.iter().map(|node| node.longest_bytes).max().unwrap_or(0),
        age_ms: ages_ms.iter().sum::<u64>() as f64 / ages_ms.len() as f64,
        age_p99_ms: ages_ms.get(ages_ms.len() * 99 / 100).copied().unwrap_or(0),
        false_alarms_per_h: alarms / nodes / (case.regions - 1) as f64 / seconds * 3_600.0,
        asked_per_s: asked as f64 / nodes / seconds,
    }
}

/// Lets `ms` milliseconds pass while every node reports its load, each at a moment of its own.
fn drive(world: &mut World, case: &Case, clock: &mut u64, ms: u64, mut look: impl FnMut(&World)) {
    let count = world.nodes.len() as u64;
    for _ in 0..ms / FEED_MS {
        let begin: Instant = world.now;
        for node in 0..count {
            let at = begin + std::time::Duration::from_micros(FEED_MS * 1_000 * node / count);
            world.run_until(at, |_| {});
            let place = node as u32 % case.size as u32;
            world.nodes[node as usize].load = load(case.change, *clock, place);
            world.feed(node as usize);
        }
        world.run_until(begin + std::time::Duration::from_millis(FEED_MS), |_| {});
        *clock += FEED_MS;
        look(world);
    }
}

fn load(change: Change, clock: u64, place: u32) -> OwnLoad {
    let replicas: BTreeMap<_, _> = (0..REPLICAS)
        .map(|n| (format!("gpu-{n}").as_str().into(), replica(change, clock, n, place)))
        .collect();
    let model = |n: u32| format!("model-{n}").as_str().into();
    let tick = wave(change, clock, u64::from(place));
    let shares = (0..MODELS)
        .map(|n| (model(n), ModelShare { waiting: 2 + tick, rate_per_s: Some(7.0 + tick as f32) }));
    // All nodes of a region come to the same result, roughly.
    let models = (0..MODELS).map(|n| {
        let tick = wave(change, clock, 0);
        let wait = if n == 0 { (clock / 1_000) % 2 * 60 } else { 0 } + u64::from(tick) * 70;
        let load = ModelLoad {
            queued: 8.0 + tick as f32 * 6.0,
            running: 60.0 + tick as f32 * 20.0,
            capacity: Some(128.0),
            rate_per_s: Some(25.0 + 9.0 * tick as f32),
            kv_use: Some(0.5 + 0.1 * tick as f32),
            wait_ms: Some(180.0 + wait as f32),
            ..ModelLoad::default()
        };
        (model(n), load)
    });
    OwnLoad { replicas, shares: shares.collect(), models: models.collect() }
}

/// Returns a value that goes up and down with every report if all changes; 0 otherwise.
fn wave(change: Change, clock: u64, phase: u64) -> u32 {
    match change {
        Change::Little => 0,
        Change::All => ((clock / FEED_MS + phase) % 4) as u32,
    }
}

fn replica(change: Change, clock: u64, n: u32, place: u32) -> ReplicaLoad {
    let tick = wave(change, clock, u64::from(n + place));
    let turn = (clock / 250) as u32;
    let one = u32::from(change == Change::Little && turn % REPLICAS == n);
    let in_flight = 5 + one + 3 * tick;
    ReplicaLoad {
        in_flight,
        pending_tokens: 400 * in_flight,
        wanted: in_flight,
        // Half of them have a limit.
        limit: n.is_multiple_of(2).then_some(64),
        signals: ReplicaSignals {
            queued: Some(tick as f32 * 4.0),
            running: Some(20.0 + tick as f32 * 5.0),
            kv_use: Some(0.4 + 0.1 * tick as f32),
            age_ms: Some(80 + 100 * tick),
        },
    }
}

fn ages(world: &World, ages_ms: &mut Vec<u64>) {
    for node in 0..world.nodes.len() {
        for region in world.gossip(node).regions(world.now) {
            ages_ms.extend(region.models.values().map(|model| u64::from(model.age_ms)));
        }
    }
}

fn heading() -> String {
    "regions nodes change loss %  mean B/s speaker B/s others B/s datagrams/s longest B  \
     age ms p99 ms  false alarms/h asks/s"
        .to_owned()
}

fn line(case: &Case, figures: &Figures) -> String {
    format!(
        "{:7} {:5} {:6} {:6} {:9.0} {:11.0} {:10.0} {:11.1} {:9} {:7.0} {:6} {:15.2} {:6.2}",
        case.regions,
        case.regions * case.size,
        format!("{:?}", case.change).to_lowercase(),
        f64::from(case.loss_permille) / 10.0,
        figures.mean_bytes_per_s,
        figures.speaker_bytes_per_s,
        figures.other_bytes_per_s,
        figures.datagrams_per_s,
        figures.longest_bytes,
        figures.age_ms,
        figures.age_p99_ms,
        figures.false_alarms_per_h,
        figures.asked_per_s,
    )
}

fn object(case: &Case, figures: &Figures) -> serde_json::Value {
    serde_json::json!({
        "regions": case.regions,
        "nodes": case.regions * case.size,
        "change": format!("{:?}", case.change).to_lowercase(),
        "loss_permille": case.loss_permille,
        "seconds": case.seconds,
        "mean_bytes_per_s": figures.mean_bytes_per_s.round(),
        "speaker_bytes_per_s": figures.speaker_bytes_per_s.round(),
        "other_bytes_per_s": figures.other_bytes_per_s.round(),
        "datagrams_per_s": (figures.datagrams_per_s * 10.0).round() / 10.0,
        "longest_bytes": figures.longest_bytes,
        "age_ms": figures.age_ms.round(),
        "age_p99_ms": figures.age_p99_ms,
        "false_alarms_per_h": (figures.false_alarms_per_h * 100.0).round() / 100.0,
        "asked_per_s": (figures.asked_per_s * 100.0).round() / 100.0,
    })
}
