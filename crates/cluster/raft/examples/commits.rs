//! Latency of commits, and commits a second, over links with distance.
//!
//! Three nodes in this process, each with a log on disk, all 80 ms apart. `cargo run --release -p
//! spillway-raft --example commits [RTT_MS] [FOLDER]` prints latency with one commit at a time
//! and with 64 under way, from the leader and from a follower.
#![expect(clippy::print_stdout, reason = "it prints figures")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use spillway_codec::Wire;
use spillway_link::delayed::{Path, Paths};
use spillway_link::{Link, PeerConfig};
use spillway_raft::{
    Consensus, Machine, MachineError, NodeId, RaftConfig, Role, Seed, Timing, Urgency,
};
use spillway_testkit::{Certificates, RefuseAll, as_peer};

const NODES: usize = 3;
const LIMIT: Duration = Duration::from_secs(10);
/// Duration of each measurement.
const MEASURED: Duration = Duration::from_secs(10);

/// Counts commands.
#[derive(Debug, Default)]
struct Counter(u64);

/// A command of about the size of a replica's registration.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Add(String);

#[derive(Debug, Serialize, Deserialize)]
struct Sum(u64);

impl Wire for Add {
    const KIND: u16 = 0x7f40;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 1_024;
}

impl Wire for Sum {
    const KIND: u16 = 0x7f41;
    const VERSION: u16 = 1;
    const BYTES_MAX: usize = 16;
}

impl Machine for Counter {
    type Command = Add;
    type Outcome = Sum;

    fn apply(&mut self, _index: u64, _command: &Add) -> Sum {
        self.0 += 1;
        Sum(self.0)
    }

    fn snapshot(&self) -> Result<Bytes, MachineError> {
        Ok(Bytes::copy_from_slice(&self.0.to_le_bytes()))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), MachineError> {
        let bytes = snapshot.try_into().map_err(|_| MachineError("not eight bytes".to_owned()))?;
        self.0 = u64::from_le_bytes(bytes);
        Ok(())
    }

    fn digest(&self) -> u128 {
        self.0.into()
    }
}

type Log = Arc<Consensus<Counter>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let rtt_ms = arguments.next().map_or(Ok(80), |text| text.parse())?;
    let rtt = Duration::from_millis(rtt_ms);
    let folder =
        tempfile::TempDir::new_in(arguments.next().map_or_else(std::env::temp_dir, PathBuf::from))?;
    let certificates = Certificates::new();
    let links = links(&certificates, rtt)?;
    let mut logs = Vec::new();
    for (at, link) in links.iter().enumerate() {
        let id = NodeId(at as u64 + 1);
        let data = folder.path().join(format!("data-{at}"));
        let mut config = RaftConfig::new(id, name(at).as_str().into(), "r".into(), data);
        config.timing = Timing::for_rtt(rtt);
        let log = Consensus::start(config, Arc::clone(link), Counter::default()).await?;
        logs.push(Arc::new(log));
    }
    let seeds: Vec<Seed> =
        (0..NODES).map(|at| Seed { name: name(at).as_str().into(), region: "r".into() }).collect();
    let forming = logs.iter().map(|log| log.form(&seeds));
    futures_util::future::try_join_all(forming).await?;
    let leader = leader(&logs).await?;
    println!("three nodes {rtt_ms} ms apart, 10 s each");
    println!("| proposed at | under way | commits/s | p50 ms | p90 ms | p99 ms |");
    println!("|---|--:|--:|--:|--:|--:|");
    for (place, at) in [("leader", leader), ("follower", (leader + 1) % NODES)] {
        for under_way in [1, 64] {
            measure(place, &logs[at], under_way).await?;
        }
    }
    let digests: BTreeMap<_, _> =
        logs.iter().map(|log| log.digest()).map(|(digest, index)| (index, digest)).collect();
    println!("indexes and sums: {digests:?}");
    for log in &logs {
        log.shutdown().await;
    }
    Ok(())
}

async fn measure(place: &str, log: &Log, under_way: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    let clients = (0..under_way).map(|_| async {
        let mut took = Vec::new();
        while begun.elapsed() < MEASURED {
            let asked = Instant::now();
            log.propose(&Add("x".repeat(256)), Urgency::Operator, LIMIT).await?;
            took.push(asked.elapsed());
        }
        anyhow::Ok(took)
    });
    let all = futures_util::future::try_join_all(clients).await?;
    let elapsed = begun.elapsed();
    let mut histogram = Histogram::<u64>::new(3)?;
    for took in all.iter().flatten() {
        histogram.record(took.as_micros() as u64)?;
    }
    let per_s = histogram.len() as f64 / elapsed.as_secs_f64();
    let ms = |quantile| histogram.value_at_quantile(quantile) as f64 / 1_000.0;
    println!(
        "| {place} | {under_way} | {per_s:.0} | {:.1} | {:.1} | {:.1} |",
        ms(0.5),
        ms(0.9),
        ms(0.99)
    );
    Ok(())
}

async fn leader(logs: &[Log]) -> anyhow::Result<usize> {
    let find = async {
        loop {
            if let Some(at) = logs.iter().position(|log| log.status().role == Role::Leader) {
                return at;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let at = tokio::time::timeout(LIMIT, find).await.context("no leader")?;
    logs[at].propose(&Add(String::new()), Urgency::Operator, LIMIT).await?;
    Ok(at)
}

fn name(at: usize) -> String {
    format!("n{at}")
}

fn links(certificates: &Certificates, rtt: Duration) -> anyhow::Result<Vec<Arc<Link>>> {
    let mut links = Vec::new();
    for at in 0..NODES {
        let mut config = certificates.link_config("r", &name(at));
        let (me, paths) = (config.me.clone(), Paths::new(at as u64));
        config.paths = Some(Arc::clone(&paths));
        links.push((me, paths, Arc::new(Link::start(config, Arc::new(RefuseAll))?)));
    }
    let rtt_ms = Some(rtt.as_millis() as u32);
    let peers: Vec<PeerConfig> = links
        .iter()
        .map(|(identity, _, link)| PeerConfig { rtt_ms, ..as_peer(identity, link) })
        .collect();
    for (_, paths, link) in &links {
        for address in links.iter().filter_map(|(_, _, other)| other.local_address()) {
            paths.set(address, Path::of(rtt / 2));
        }
        link.set_peers(peers.clone());
    }
    Ok(links.into_iter().map(|(_, _, link)| link).collect())
}
