//! Three regions of real nodes and emulated replicas: what share of prompts comes from caches, how
//! evenly the work is spread, and when first tokens arrive, for some numbers of nodes a region and
//! for some policies. One router that all requests pass and that knows all replicas is the measure.
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people"
)]

mod report;
mod run;
mod workload;

use clap::Parser;

use report::{as_json, as_table};
use run::{Layout, measure};

/// Measures how well requests find the caches that hold their prompts.
#[derive(Clone, Debug, Parser)]
#[command(after_help = "example:\n  cargo run --release -p spillway-tests --example locality -- \
                        --nodes 1,2,4,8 --seconds 60")]
pub(crate) struct Options {
    /// Nodes in each region, one run for each number.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8")]
    pub(crate) nodes: Vec<usize>,
    /// Policies to compare, each with the first number of nodes; the first one is measured with all.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "predicted_latency,least_loaded,round_robin"
    )]
    pub(crate) policies: Vec<String>,
    /// Replicas in each region.
    #[arg(long, default_value_t = 4)]
    pub(crate) replicas: u16,
    /// Measured seconds of each run, after a third as many to warm up.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Requests per second in each region.
    #[arg(long, default_value_t = 8.0)]
    pub(crate) rate: f64,
    /// Real time per modelled time. At 0.1 an L4 reads a thousand tokens in 53 ms and makes one in
    /// 5, and all that nodes tell each other is ten times as late for it.
    #[arg(long, default_value_t = 0.5)]
    pub(crate) time_scale: f64,
    /// System prompts that all regions share.
    #[arg(long, default_value_t = 60)]
    pub(crate) prompts: usize,
    /// Share of requests, in percent, that have the very same system prompt.
    #[arg(long, default_value_t = 0)]
    pub(crate) hot_percent: u64,
    /// Requests at a time that each replica is given; 0 for no limit.
    #[arg(long, default_value_t = 0)]
    pub(crate) connections_max: u32,
    /// For the workload; nodes and replicas have clocks of their own.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Writes results as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[tokio::main]
async fn main() {
    let options = Options::parse();
    let first = options.policies.first().expect("a policy").as_str();
    let one = Layout { policy: first, nodes: 1, is_one: true };
    let rows = options.nodes.iter().map(|&nodes| Layout { policy: first, nodes, is_one: false });
    let others = options.policies.iter().skip(1).map(|policy| Layout {
        policy,
        nodes: options.nodes.first().copied().unwrap_or(1),
        is_one: false,
    });
    let mut shown = Vec::new();
    for layout in std::iter::once(one).chain(rows).chain(others) {
        eprintln!("{} ...", layout.name());
        let row = measure(&options, layout).await;
        let elsewhere = row.elsewhere_share * 100.0;
        let cached = row.cached_share * 100.0;
        eprintln!("{cached:.1} % cached, skew {:.2}, {elsewhere:.1} % elsewhere", row.skew);
        shown.push(row);
    }
    println!("{}", if options.json { as_json(&shown) } else { as_table(&shown) });
}
