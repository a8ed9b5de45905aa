//! Cost of a forwarded request over one that is served where it arrived: two nodes of two regions
//! on loopback, one of them without replicas.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use crate::arrivals::ArrivalPace;
use crate::backend::BackendAnswer;
use crate::client::BenchReply;
use crate::compare::{START_MAX, start_backends};
use crate::load::{self, LoadSpec, Protocol};
use crate::member::{ClusterSpec, Member, start_all};
use crate::stats::median;
use crate::usage::each_descendants_usage;

/// Size of each answer in bytes.
const REPLY_BYTES: usize = 512;

/// Concurrent requests of each backend: more than the load ever needs.
const SLOTS: u32 = 256;

/// Options of `forward`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  spillway-bench forward --spillway target/dist/spillway")]
pub(crate) struct ForwardArguments {
    /// The Spillway binary.
    #[arg(long)]
    spillway: PathBuf,
    /// Requests per second.
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// Sizes of requests' bodies, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1024,16384,65536,131072")]
    body_bytes: Vec<usize>,
    /// Rounds; the medians are shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Seconds that are measured in each round.
    #[arg(long, default_value_t = 4.0)]
    window_s: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Cost of requests with one size of body.
#[derive(Debug, Serialize)]
struct ForwardCost {
    body_bytes: usize,
    /// CPU time of both nodes per request, in microseconds.
    local_cpu_us: f64,
    forwarded_cpu_us: f64,
    /// Median over the rounds of forwarded minus local CPU time.
    added_cpu_us: f64,
    local_p50_us: f64,
    forwarded_p50_us: f64,
}

/// Measures and prints the cost for each size of body.
pub(crate) async fn run(arguments: &ForwardArguments) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("spillway-bench-").tempdir()?;
    let answer = BackendAnswer::Json { bytes: REPLY_BYTES };
    let (_backends, addresses) = start_backends(folder.path(), answer)?;
    // The second node has no replicas, so it forwards every request to the first.
    let mut nodes = start_all(&ClusterSpec {
        spillway: &arguments.spillway,
        folder: folder.path(),
        replicas: vec![&addresses, &[]],
        replica: format!("connections_max = {SLOTS}\n"),
        route: "policy = \"power_of_two\"\n",
    })
    .await?;
    let mut costs = Vec::new();
    for body_bytes in &arguments.body_bytes {
        let cost = measure(&mut nodes.0, arguments, *body_bytes).await?;
        if !arguments.json {
            show(&cost)?;
        }
        costs.push(cost);
    }
    if arguments.json {
        writeln!(io::stdout().lock(), "{}", serde_json::to_string_pretty(&costs)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(
    nodes: &mut [Member],
    arguments: &ForwardArguments,
    body_bytes: usize,
) -> anyhow::Result<ForwardCost> {
    let spec = LoadSpec {
        clients: 64,
        protocol: Protocol::Http1,
        pace: ArrivalPace::Rate(arguments.rate),
        body_bytes,
        reply: BenchReply::Whole,
        ramp: Duration::ZERO,
        warm_up: Duration::from_secs(1),
        window: Duration::from_secs_f64(arguments.window_s),
    };
    // Repeated for each size: the first request also shows that a body of this size gets through.
    for node in nodes.iter_mut() {
        let address = node.address;
        node.ready(START_MAX, async || load::check(address, &spec).await).await?;
    }
    let nodes = &*nodes;
    // For each node: CPU times and latencies of all rounds.
    let mut seen = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for round in 0..usize::from(arguments.rounds) {
        for turn in 0..2 {
            // The node that comes first changes with each round, so that the order favours neither.
            let index = (round + turn) % 2;
            let (cpu_us, p50_us) = sample(nodes, &nodes[index], &spec).await?;
            seen[index].0.push(cpu_us);
            seen[index].1.push(p50_us);
        }
    }
    let [local, forwarded] = seen;
    let added = local.0.iter().zip(&forwarded.0).map(|(local, forwarded)| forwarded - local);
    let median = |values: Vec<f64>| median(values).context("nothing was measured");
    Ok(ForwardCost {
        body_bytes,
        added_cpu_us: median(added.collect())?,
        local_cpu_us: median(local.0)?,
        forwarded_cpu_us: median(forwarded.0)?,
        local_p50_us: median(local.1)?,
        forwarded_p50_us: median(forwarded.1)?,
    })
}

/// Sends load to `at`. Returns the CPU time of both nodes per request and the median latency, in
/// microseconds.
async fn sample(nodes: &[Member], at: &Member, spec: &LoadSpec) -> anyhow::Result<(f64, f64)> {
    let guards: Vec<u32> = nodes.iter().map(Member::guard).collect();
    let probe = || Ok(each_descendants_usage(&guards)?);
    let (measurement, before, after) = load::run(at.address, spec, probe).await?;
    // A failed request costs less, so a single error spoils the figures.
    anyhow::ensure!(measurement.errors == 0, "{:?}", measurement.first_error);
    let cpu_s: f64 =
        after.iter().zip(&before).map(|(after, before)| after.cpu_s_since(before)).sum();
    Ok((cpu_s * 1e6 / measurement.requests as f64, measurement.latency.p50_us))
}

fn show(cost: &ForwardCost) -> io::Result<()> {
    writeln!(
        io::stdout().lock(),
        "{:>7} bytes: CPU of both nodes per request {:>5.0} us local, {:>5.0} us forwarded, \
         {:>5.0} us more; median latency {:>5.0} and {:>5.0} us",
        cost.body_bytes,
        cost.local_cpu_us,
        cost.forwarded_cpu_us,
        cost.added_cpu_us,
        cost.local_p50_us,
        cost.forwarded_p50_us,
    )
}
