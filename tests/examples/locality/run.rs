//! One run: a cluster, its replicas, and their counters.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use spillway_emulator::{Emulator, EmulatorConfig, EngineConfig, Profile, ReplicaHandle};
use spillway_node::Node;
use spillway_tests::{Cluster, Setup, knows};
use tokio::task::JoinSet;

use crate::Options;
use crate::report::Shown;
use crate::workload::region_load;

const REGIONS: [&str; 3] = ["eu", "us", "ap"];
/// Between regions: eu-us, eu-ap, us-ap.
const RTT_MS: [(usize, usize, u64); 3] = [(0, 1, 80), (0, 2, 220), (1, 2, 170)];
/// Layout of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'o> {
    pub(crate) policy: &'o str,
    /// Nodes in each region.
    pub(crate) nodes: usize,
    /// All replicas in one region behind one node.
    pub(crate) is_one: bool,
}

impl Layout<'_> {
    pub(crate) fn name(&self) -> String {
        match self.is_one {
            true => format!("{}, one router for all", self.policy),
            false => format!("{}, {} nodes a region", self.policy, self.nodes),
        }
    }
}

/// The replicas of one region.
async fn replicas(options: &Options, count: u16, seed: u64) -> Emulator {
    let engine = EngineConfig {
        // So that not all prompts fit into every cache.
        kv_blocks: NonZeroU32::new(2_500).expect("a number"),
        ..EngineConfig::from_profile(Profile::L4)
    };
    let config = EmulatorConfig {
        replicas: count,
        time_scale: options.time_scale,
        engine,
        seed: options.seed + seed,
        records_max: 0,
        ..EmulatorConfig::default()
    };
    Emulator::start(config).await.expect("an emulator")
}

pub(crate) async fn measure(options: &Options, layout: Layout<'_>) -> Shown {
    let mut emulators = Vec::new();
    for seed in 0..3 {
        emulators.push(replicas(options, options.replicas, seed).await);
    }
    let names: Vec<&str> = match layout.is_one {
        true => vec!["all"],
        false => REGIONS.iter().flat_map(|name| vec![*name; layout.nodes]).collect(),
    };
    let mut cluster = Cluster::new(&names).set("health.check = \"off\"");
    if !layout.is_one {
        cluster = cluster.agreeing();
        for (one, other) in (0..names.len()).flat_map(|a| (0..a).map(move |b| (b, a))) {
            let between = RTT_MS
                .iter()
                .find(|(x, y, _)| (*x, *y) == (one / layout.nodes, other / layout.nodes));
            if let Some((.., ms)) = between {
                cluster.distance(one, other, Duration::from_millis(*ms));
            }
        }
    }
    let mut nodes = Vec::new();
    for index in 0..names.len() {
        let own: Vec<(usize, &Emulator)> = match layout.is_one {
            true => emulators.iter().enumerate().collect(),
            false => vec![(index / layout.nodes, &emulators[index / layout.nodes])],
        };
        let mut setup = Setup::new()
            .table(format!("[[route]]\nname = \"llm\"\npolicy = \"{}\"", layout.policy));
        for (region, emulator) in own {
            for (number, address) in emulator.addresses().iter().enumerate() {
                let name = format!("{}-{number}", REGIONS[region]);
                let limit = match options.connections_max {
                    0 => String::new(),
                    most => format!("connections_max = {most}"),
                };
                setup = setup.replica_with(&name, &format!("http://{address}"), &limit);
            }
        }
        nodes.push(cluster.start(index, setup).await);
    }
    if !layout.is_one {
        for node in &nodes {
            let own = node.gateway().routing.regions().others.len();
            for region in REGIONS {
                if own > 0 && !is_of(node, region) {
                    knows(node, region).await;
                }
            }
        }
    }
    let shown = run(options, layout, &nodes, &emulators).await;
    for node in nodes {
        node.stop().await;
    }
    shown
}

fn is_of(node: &Node, region: &str) -> bool {
    node.gateway().routing.regions().others.iter().all(|other| other.name.as_str() != region)
}

/// Counters of the replicas.
fn counts(emulators: &[Emulator]) -> Vec<Vec<(f64, f64, f64)>> {
    let of = |emulator: &Emulator| {
        let count = |replica: &ReplicaHandle| {
            let stats = replica.stats().engine;
            let queries = stats.prefix_cache_queries_tokens as f64;
            (queries, stats.prefix_cache_hits_tokens as f64, stats.generation_tokens as f64)
        };
        emulator.replicas().iter().map(count).collect()
    };
    emulators.iter().map(of).collect()
}

async fn run(
    options: &Options,
    layout: Layout<'_>,
    nodes: &[Node],
    emulators: &[Emulator],
) -> Shown {
    let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.addresses()[0]).collect();
    let warm_up = Duration::from_secs(options.seconds.div_ceil(3));
    let end = warm_up + Duration::from_secs(options.seconds);
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for region in 0..REGIONS.len() {
        let own: Vec<SocketAddr> = match layout.is_one {
            true => addresses.clone(),
            false => addresses[region * layout.nodes..][..layout.nodes].to_vec(),
        };
        let options = options.clone();
        clients
            .spawn(async move { region_load(&options, region, own, (start, warm_up, end)).await });
    }
    // wait: the measurement begins after the caches have filled
    tokio::time::sleep(warm_up).await;
    let (before, spilled_before) = (counts(emulators), spilled(nodes));
    // wait: the time that is measured
    tokio::time::sleep(end - warm_up).await;
    let (after, spilled_after) = (counts(emulators), spilled(nodes));
    let mut ttft_ms = Vec::new();
    let mut failed = 0;
    for (times, failures) in clients.join_all().await {
        ttft_ms.extend(times);
        failed += failures;
    }
    ttft_ms.sort_by(f64::total_cmp);
    let mut totals = (0.0, 0.0);
    let mut skew: f64 = 0.0;
    for (before, after) in before.iter().zip(&after) {
        let work: Vec<f64> = before
            .iter()
            .zip(after)
            .map(|(was, is)| {
                totals.0 += is.0 - was.0;
                totals.1 += is.1 - was.1;
                // Weight both kinds of tokens by their cost on this machine: a generated token
                // costs as much as four prompt tokens.
                (is.0 - was.0) - (is.1 - was.1) + 4.0 * (is.2 - was.2)
            })
            .collect();
        let mean = work.iter().sum::<f64>() / work.len() as f64;
        skew = work.iter().map(|one| one / mean).fold(skew, f64::max);
    }
    let requests = ttft_ms.len();
    Shown {
        name: layout.name(),
        cached_share: totals.1 / totals.0,
        skew,
        elsewhere_share: (spilled_after - spilled_before) / requests.max(1) as f64,
        ttft_ms,
        requests,
        failed,
    }
}

/// Requests that other regions served, by the counters of the nodes.
fn spilled(nodes: &[Node]) -> f64 {
    let is_served = |line: &&str| {
        line.starts_with("spillway_spill_requests_total{") && line.contains("\"served\"")
    };
    let count = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    let of_node =
        |node: &Node| -> f64 { node.metrics().lines().filter(is_served).filter_map(count).sum() };
    nodes.iter().map(of_node).sum()
}
