//! Benchmarks of the fine index: percentiles of a look-up, time of an insert, and bytes per block.
//!
//! Run with `cargo bench -p spillway-prefix --bench index`. Each look-up is timed alone; the median
//! time of reading the clock is subtracted.

#![expect(clippy::disallowed_methods, reason = "what measures reads the clock")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use spillway_prefix::{FineIndex, IndexConfig, IndexReader, Matches};
use spillway_types::Holder;

const REPLICAS: u64 = 1_000;
const BLOCKS: usize = 64;
const LOOKUPS: usize = 200_000;
/// Number of prompts whose learning is timed.
const LEARNED: usize = 5_000;

fn main() {
    // `cargo test --benches` only checks that the benchmark builds and starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for pairs in [10_000, 100_000, 1_000_000, 10_000_000] {
        IndexWorld::distinct(pairs).measure("one replica a prompt");
    }
    IndexWorld::shared().measure("shared");
    for (replica_blocks, blocks) in [(16_384, BLOCKS), (16_384, 512), (500_000, 512)] {
        for is_known in [false, true] {
            print_learning(replica_blocks, blocks, is_known);
        }
    }
}

/// Index of blocks at a thousand replicas, with prompts to look up.
struct IndexWorld {
    index: FineIndex,
    reader: IndexReader,
    holders: Vec<Holder>,
    prompts: Vec<Vec<u64>>,
}

impl IndexWorld {
    /// Returns a world where each prompt is at one replica, with so many pairs. Of the prompts to
    /// look up, a third is known, a third is known in part, and a third is unknown.
    fn distinct(pairs: usize) -> Self {
        // At most 48 bytes a pair, and at most twice that for tables that have just grown.
        let mut world = Self::empty(pairs * 96);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..pairs / BLOCKS {
            let prompt = random_chain(&mut rng, &[]);
            world.index.insert(world.holders[rng.usize(0..world.holders.len())], &prompt);
            let known = rng.usize(1..BLOCKS);
            let asked = match rng.u8(0..3) {
                0 => prompt,
                1 => random_chain(&mut rng, &prompt[..known]),
                _ => random_chain(&mut rng, &[]),
            };
            world.prompts.push(asked);
        }
        world
    }

    /// Returns a world of shared prompts. Each prompt begins with a system prompt of 24 blocks that
    /// all replicas hold. One of 2,000 documents of 20 blocks follows, which four replicas hold.
    /// The rest is unique and at one replica.
    fn shared() -> Self {
        let mut world = Self::empty(128 << 20);
        let mut rng = fastrand::Rng::with_seed(2);
        let system = random_chain(&mut rng, &[])[..24].to_vec();
        let documents: Vec<Vec<u64>> =
            (0..2_000).map(|_| random_chain(&mut rng, &system)[..44].to_vec()).collect();
        for holder in &world.holders {
            world.index.insert(*holder, &system);
        }
        for round in 0..42_000 {
            let document = round % documents.len();
            let prompt = random_chain(&mut rng, &documents[document]);
            let replica = (document * 4 + rng.usize(0..4)) % world.holders.len();
            world.index.insert(world.holders[replica], &prompt);
            if round % 2 == 0 {
                world.prompts.push(prompt);
            } else {
                world.prompts.push(random_chain(&mut rng, &documents[document]));
            }
        }
        world
    }

    fn empty(bytes_max: usize) -> Self {
        let config = IndexConfig { bytes_max, ..IndexConfig::default() };
        let (mut index, reader) = FineIndex::new(config);
        let holders = (0..REPLICAS).filter_map(|identity| index.holder(identity)).collect();
        Self { index, reader, holders, prompts: Vec::new() }
    }

    fn measure(mut self, name: &str) {
        let stats = self.index.stats();
        let bytes_a_pair = stats.bytes as f64 / stats.pairs as f64;
        print(format_args!(
            "{name}: {} blocks, {} pairs, {bytes_a_pair:.1} bytes a pair",
            stats.blocks, stats.pairs
        ));
        self.print_lookups("  look-up, nobody writes", &mut Matches::new());
        let stop = AtomicBool::new(false);
        let (reader, prompts, holders) = (self.reader.clone(), self.prompts.clone(), &self.holders);
        let index = &mut self.index;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write(index, holders, &stop));
            let mut matches = Matches::new();
            print_percentiles("  look-up, one writes", lookups(&reader, &prompts, &mut matches));
            stop.store(true, Ordering::Release);
            let (inserts, time) = writer.join().unwrap_or_default();
            let ns_a_block = time.as_nanos() / u128::from(inserts.max(1)) / BLOCKS as u128;
            print(format_args!("  insert: {ns_a_block} ns a block of {inserts} prompts"));
        });
    }

    fn print_lookups(&self, name: &str, matches: &mut Matches) {
        print_percentiles(name, lookups(&self.reader, &self.prompts, matches));
        print_percentiles(
            "  the same one again and again",
            lookups(&self.reader, &self.prompts[..1], matches),
        );
        let start = Instant::now();
        let sum: u64 =
            self.holders.iter().map(|it| u64::from(matches.blocks(black_box(*it)))).sum();
        black_box(sum);
        print(format_args!("  reading all {REPLICAS} replicas: {} ns", start.elapsed().as_nanos()));
    }
}

/// Prints what a prompt and its reply take to learn, at four replicas whose caches are full.
fn print_learning(replica_blocks: u32, blocks: usize, is_known: bool) {
    let config = IndexConfig { holder_blocks_default: replica_blocks, ..IndexConfig::default() };
    let (mut index, _reader) = FineIndex::new(config);
    let holders: Vec<Holder> = (0..4).filter_map(|identity| index.holder(identity)).collect();
    let mut rng = fastrand::Rng::with_seed(5);
    let fill = 5 * replica_blocks as usize / blocks;
    let mut prompts: Vec<Vec<u64>> =
        (0..fill + LEARNED).map(|_| (0..blocks + 2).map(|_| rng.u64(..)).collect()).collect();
    if is_known {
        let newest = prompts[fill * 3 / 4..fill].to_vec();
        prompts[fill..].fill_with(|| newest[rng.usize(0..newest.len())].clone());
    }
    let mut times = [Duration::ZERO; 2];
    for (at, prompt) in prompts.iter().enumerate() {
        // The same prompt comes to the same replica.
        let (holder, chain) = (holders[prompt[0] as usize % holders.len()], &prompt[..blocks]);
        let start = Instant::now();
        index.insert(holder, chain);
        let sent = Instant::now();
        index.correct(holder, chain, if is_known { blocks as u32 } else { 0 });
        index.extend(holder, prompt, blocks);
        if at >= fill {
            times[0] += sent - start;
            times[1] += sent.elapsed();
        }
    }
    let ns = times.map(|time| time.as_nanos() as f64 / (LEARNED * blocks) as f64);
    let kind = if is_known { "known" } else { "new" };
    print(format_args!(
        "learning {kind} prompts of {blocks} blocks, {replica_blocks} a replica: {:.0} ns a block, their replies {:.0}",
        ns[0], ns[1]
    ));
}

/// Inserts random prompts at full speed until `stop` is true. Returns their number and the time.
fn write(index: &mut FineIndex, holders: &[Holder], stop: &AtomicBool) -> (u64, Duration) {
    let mut rng = fastrand::Rng::with_seed(3);
    let (mut inserts, start) = (0, Instant::now());
    while !stop.load(Ordering::Acquire) {
        index.insert(holders[rng.usize(0..holders.len())], &random_chain(&mut rng, &[]));
        inserts += 1;
    }
    (inserts, start.elapsed())
}

/// Returns the times of single look-ups, in nanoseconds.
fn lookups(reader: &IndexReader, prompts: &[Vec<u64>], matches: &mut Matches) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(4);
    let clock_ns = clock_ns();
    (0..LOOKUPS)
        .map(|_| {
            let prompt = &prompts[rng.usize(0..prompts.len())];
            // A request hashes its prompt just before: the prompt is in the cache, the index is
            // not.
            black_box(prompt.iter().fold(0, |all, hash| all ^ hash));
            let start = Instant::now();
            reader.lookup(black_box(prompt), matches);
            let ns = start.elapsed().as_nanos() as u64;
            black_box(matches.longest());
            ns.saturating_sub(clock_ns)
        })
        .collect()
}

fn clock_ns() -> u64 {
    let mut times: Vec<u64> =
        (0..10_001).map(|_| Instant::now().elapsed().as_nanos() as u64).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns a chain of [`BLOCKS`] hashes that begins with `first`.
fn random_chain(rng: &mut fastrand::Rng, first: &[u64]) -> Vec<u64> {
    let mut chain = first.to_vec();
    chain.resize_with(BLOCKS, || rng.u64(..));
    chain
}

fn print_percentiles(name: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    print(format_args!(
        "{name}: p50 {} ns, p90 {} ns, p99 {} ns, p99.9 {} ns",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999)
    ));
}

#[expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
fn print(line: std::fmt::Arguments<'_>) {
    println!("{line}");
}
