//! Benchmarks of the hot trie: a look-up in its view, applying a delta, noting a request, making a
//! delta.
//!
//! Run with `cargo bench -p spillway-prefix --bench hot`.

use std::collections::BTreeMap;

use divan::Bencher;
use spillway_prefix::{
    HeatConfig, HeatTracker, HotBlock, HotDelta, HotEntry, HotTrie, HotView, RegionBlocks,
};
use spillway_types::RegionName;

const BLOCKS: usize = 64;

/// Allocator that counts, so that the report shows allocations beside the times: a look-up makes
/// none.
#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

/// Looks up prompts of 64 blocks: all regions hold 16 of them, every third region 16 more, one
/// region another 16.
#[divan::bench(consts = [3, 10, 50])]
fn lookup<const REGIONS: usize>(bencher: Bencher<'_, '_>) {
    let (trie, prompts) = full(REGIONS);
    let view = HotView::new(&trie);
    let mut depths = vec![0; REGIONS];
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 1) % prompts.len();
        view.lookup(divan::black_box(&prompts[at]), &mut depths);
        depths[0]
    });
}

/// Makes a new view of a trie with this number of regions.
#[divan::bench(consts = [3, 50])]
fn view<const REGIONS: usize>(bencher: Bencher<'_, '_>) {
    let (trie, _) = full(REGIONS);
    bencher.bench(|| HotView::new(divan::black_box(&trie)));
}

/// Applies a delta of 800 blocks, 5 % of the region's 16,384; as many blocks are evicted.
#[divan::bench]
fn apply(bencher: Bencher<'_, '_>) {
    let (trie, _) = full(3);
    let mut rng = fastrand::Rng::with_seed(9);
    let enter = (0..800).map(|_| block(rng.u64(1..), 0, 1, 200)).collect();
    let delta = HotDelta { enter, leave: Vec::new() };
    let name = RegionName::from("0");
    bencher.with_inputs(|| trie.clone()).bench_values(|mut trie| trie.apply(&name, &delta, 1_000));
}

#[divan::bench]
fn note(bencher: Bencher<'_, '_>) {
    let (mut tracker, prompts) = tracker();
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 1) % prompts.len();
        tracker.note(&prompts[at], 1_000_000);
    });
}

/// Makes a delta with 65,536 tracked blocks and no news.
#[divan::bench]
fn delta(bencher: Bencher<'_, '_>) {
    let (mut tracker, _) = tracker();
    while !tracker.delta(1_000_000, |_| true).is_empty() {}
    bencher.bench_local(|| tracker.delta(1_000_000, |_| true));
}

/// Returns a full trie, and prompts that it has blocks of.
fn full(regions: usize) -> (HotTrie, Vec<Vec<u64>>) {
    let mut rng = fastrand::Rng::with_seed(1);
    let per_region = RegionBlocks::BLOCKS_MAX.min(HotTrie::BLOCKS_MAX / regions);
    let mut entries: BTreeMap<String, Vec<HotEntry>> = BTreeMap::new();
    let mut prompts = Vec::new();
    // Groups of 48 blocks fill the regions.
    for group in 0..per_region / 40 {
        let prompt: Vec<u64> = (0..BLOCKS).map(|_| rng.u64(1..)).collect();
        for region in 0..regions {
            let blocks = match region {
                _ if region == group % regions => 48,
                _ if region % 3 == group % 3 => 32,
                _ => 16,
            };
            let known = entries.entry(region.to_string()).or_default();
            let parents = [0].into_iter().chain(prompt.iter().copied());
            for ((hash, parent), depth) in prompt.iter().zip(parents).zip(1..=blocks) {
                known.push(HotEntry { hash: *hash, parent, stamp_s: 0, depth, heat: 50 });
            }
        }
        prompts.push(prompt);
    }
    let regions: BTreeMap<RegionName, std::sync::Arc<RegionBlocks>> = entries
        .into_iter()
        .map(|(name, entries)| (RegionName::from(name), std::sync::Arc::new(entries.into())))
        .collect();
    (regions.into(), prompts)
}

fn tracker() -> (HeatTracker, Vec<Vec<u64>>) {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut tracker = HeatTracker::new(HeatConfig::default());
    let prompts: Vec<Vec<u64>> =
        (0..1_000).map(|_| (0..BLOCKS).map(|_| rng.u64(1..)).collect()).collect();
    for prompt in &prompts {
        (0..rng.usize(3..50)).for_each(|_| tracker.note(prompt, 0));
    }
    (tracker, prompts)
}

fn block(hash: u64, parent: u64, depth: u16, heat: u8) -> HotBlock {
    HotBlock { hash, parent, depth, heat }
}
