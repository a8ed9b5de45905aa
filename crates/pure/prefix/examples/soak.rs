//! Soak test: ten million different prompts through the index, with the bytes of index and process
//! over time.
//!
//! Run with `cargo run --release -p spillway-prefix --example soak -- [prompts] [bytes_max]`.

#![expect(clippy::disallowed_methods, reason = "what measures reads the clock")]

use std::time::Instant;

use spillway_prefix::{FineIndex, HeatConfig, HeatTracker, IndexConfig, Matches};

const REPLICAS: u64 = 1_000;
const BLOCKS: usize = 16;
const SYSTEM_BLOCKS: usize = 4;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let prompts = arguments.next().unwrap_or(10_000_000);
    let bytes_max = arguments.next().unwrap_or(64 << 20) as usize;
    let (mut index, reader) = FineIndex::new(IndexConfig { bytes_max, ..IndexConfig::default() });
    let holders: Vec<_> = (0..REPLICAS).filter_map(|identity| index.holder(identity)).collect();
    let mut heat = HeatTracker::new(HeatConfig::default());
    let (mut rng, mut matches) = (fastrand::Rng::with_seed(1), Matches::new());
    let systems: Vec<Vec<u64>> =
        (0..50).map(|_| (0..SYSTEM_BLOCKS).map(|_| rng.u64(..)).collect()).collect();
    let start = Instant::now();
    for prompt in 0..prompts {
        // One of fifty system prompts, then blocks that no other request has.
        let mut chain = systems[rng.usize(0..systems.len())].clone();
        chain.resize_with(BLOCKS, || rng.u64(..));
        reader.lookup(&chain, &mut matches);
        let holder = holders[rng.usize(0..holders.len())];
        index.insert(holder, &chain);
        index.correct(holder, &chain, matches.blocks(holder));
        // 10 ms per prompt: 100 requests a second.
        heat.note(&chain, prompt * 10);
        if prompt % 200 == 0 {
            let delta = heat.delta(prompt * 10, |block| reader.is_held(block));
            assert!(prompt < 100_000 || delta.enter.len() < 500, "chance makes nothing hot");
        }
        if prompt % 100_000 == 99_999 {
            index.flush(holder);
        }
        if (prompt + 1) % (prompts / 10).max(1) == 0 {
            print(prompt + 1, &index, &heat, start);
        }
    }
}

#[expect(clippy::print_stdout, reason = "figures are what it is for")]
fn print(prompts: u64, index: &FineIndex, heat: &HeatTracker, start: Instant) {
    let stats = index.stats();
    println!(
        "{prompts} prompts, {:.0} s: {} pairs, {:.1} bytes a pair, index {:.1} MB, process {} MB, \
         {} evictions, {} tracked, {} told",
        start.elapsed().as_secs_f64(),
        stats.pairs,
        stats.bytes as f64 / stats.pairs as f64,
        stats.bytes as f64 / 1e6,
        resident_mb().map_or_else(|| "?".to_owned(), |mb| mb.to_string()),
        stats.evictions,
        heat.stats().tracked,
        heat.stats().told,
    );
}

/// Returns the resident memory of this process in megabytes, as the kernel counts it.
fn resident_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kb: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kb / 1_000)
}
