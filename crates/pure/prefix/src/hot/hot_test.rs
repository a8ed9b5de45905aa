//! Tests of the hot trie, its deltas and its view, against simple models and with arbitrary input.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spillway_types::RegionName;

use crate::{
    HeatConfig, HeatTracker, HotBlock, HotDelta, HotEntry, HotTrie, HotView, RegionBlocks,
};

pub(super) const MINUTE_MS: u64 = 60_000;

pub(super) fn region(name: &str) -> RegionName {
    RegionName::from(name)
}

/// Returns the hashes of a chain that branches at each of `turns`.
fn chain(turns: &[u8]) -> Vec<u64> {
    let step = |hash: &mut u64, turn: &u8| {
        *hash =
            (*hash ^ (u64::from(*turn) + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        Some(*hash)
    };
    turns.iter().scan(0x1234_5678_9ABC_DEF1, step).collect()
}

pub(super) fn chain_of(number: u32, blocks: usize) -> Vec<u64> {
    let mut turns = number.to_le_bytes().to_vec();
    turns.resize(blocks + 4, 0);
    chain(&turns)[4..].to_vec()
}

/// Returns the records of a chain, all with the same heat.
fn records(chain: &[u64], heat: u8) -> Vec<HotBlock> {
    let parents = [0].into_iter().chain(chain.iter().copied());
    let record = |((hash, parent), depth)| HotBlock { hash, parent, depth, heat };
    chain.iter().copied().zip(parents).zip(1..).map(record).collect()
}

pub(super) fn enter(chain: &[u64], heat: u8) -> HotDelta {
    HotDelta { enter: records(chain, heat), leave: Vec::new() }
}

/// Checks the invariants of a trie.
fn check(trie: &HotTrie) {
    let mut total = 0;
    for (name, blocks) in trie.regions() {
        let entries = blocks.entries();
        total += entries.len();
        assert!(!entries.is_empty() && entries.len() <= RegionBlocks::BLOCKS_MAX, "{name}");
        assert!(entries.windows(2).all(|pair| pair[0].hash < pair[1].hash));
        for entry in entries {
            match entry.depth {
                1 => assert_eq!(entry.parent, 0),
                depth => {
                    assert_eq!(
                        blocks.find(entry.parent).map(|parent| parent.depth + 1),
                        Some(depth)
                    );
                }
            }
        }
    }
    assert!(total <= HotTrie::BLOCKS_MAX && trie.stats().blocks == total as u64);
    assert!(trie.stats().bytes <= 4 << 20);
}

/// Returns the number of leading blocks of a chain that a region holds, computed the slow way.
fn depth(trie: &HotTrie, name: &RegionName, chain: &[u64]) -> u32 {
    let Some(blocks) = trie.region(name) else { return 0 };
    chain.iter().take_while(|hash| blocks.find(**hash).is_some()).count() as u32
}

/// Generates any delta, from few enough hashes that records collide.
fn any_delta() -> impl Strategy<Value = HotDelta> {
    let hash = || prop_oneof![4 => 0..40_u64, 1 => any::<u64>()];
    let block = (hash(), hash(), prop_oneof![4 => 0..6_u16, 1 => any::<u16>()], any::<u8>())
        .prop_map(|(hash, parent, depth, heat)| HotBlock { hash, parent, depth, heat });
    (prop::collection::vec(block, 0..60), prop::collection::vec(hash(), 0..20))
        .prop_map(|(enter, leave)| HotDelta { enter, leave })
}

proptest! {
    #[test]
    fn whatever_is_told_the_trie_stays_whole_and_equal_everywhere(
        told in prop::collection::vec((0..4_u8, any_delta(), any::<u64>()), 1..20),
    ) {
        let (mut trie, mut twin) = (HotTrie::default(), HotTrie::default());
        for (name, delta, stamp_ms) in told {
            let before = trie.clone();
            let change = trie.apply(&region(&name.to_string()), &delta, stamp_ms);
            twin.apply(&region(&name.to_string()), &delta, stamp_ms);
            check(&trie);
            prop_assert_eq!(change.is_change, trie != before);
            prop_assert_eq!(trie.digest() == before.digest(), trie == before);
            prop_assert_eq!(trie.digest(), twin.digest());
            let text = serde_json::to_string(&trie).unwrap();
            let read: HotTrie = serde_json::from_str(&text).unwrap();
            prop_assert_eq!((&read, read.digest()), (&trie, trie.digest()));
            // A node that joins continues from a snapshot like the others.
            twin = read;
        }
    }

    #[test]
    fn whatever_a_snapshot_holds_becomes_a_whole_trie(
        entries in prop::collection::vec((0..40_u64, 0..40_u64, 0..6_u16, any::<u8>(), any::<u32>()), 0..80),
    ) {
        let entries: Vec<HotEntry> = entries
            .into_iter()
            .map(|(hash, parent, depth, heat, stamp_s)| HotEntry { hash, parent, stamp_s, depth, heat })
            .collect();
        let text = serde_json::to_string(&BTreeMap::from([("eu", entries)])).unwrap();
        check(&serde_json::from_str(&text).unwrap());
    }

    #[test]
    fn a_view_finds_for_each_region_how_deep_it_holds_a_prompt(
        told in prop::collection::vec((0..70_u8, prop::collection::vec(0..2_u8, 1..30)), 0..60),
        asked in prop::collection::vec(prop::collection::vec(0..2_u8, 0..40), 1..10),
    ) {
        let mut trie = HotTrie::default();
        for (name, turns) in told {
            trie.apply(&region(&name.to_string()), &enter(&chain(&turns), 9), 0);
        }
        let view = HotView::new(&trie);
        for turns in asked {
            let chain = chain(&turns);
            let mut depths = vec![77; view.regions().len() + 1];
            view.lookup(&chain, &mut depths);
            prop_assert_eq!(depths.pop(), Some(0));
            for (name, found) in view.regions().iter().zip(depths) {
                prop_assert_eq!(found, depth(&trie, name, &chain));
            }
        }
    }

    #[test]
    fn what_a_tracker_tells_is_in_the_trie_and_closed(
        requests in prop::collection::vec((prop::collection::vec(0..3_u8, 1..12), 0..30_u64), 1..200),
        not_held in 0..5_u64,
    ) {
        let mut tracker = HeatTracker::new(HeatConfig { blocks_max: 16, ..HeatConfig::default() });
        let (mut trie, mut now_ms) = (HotTrie::default(), 0);
        for (round, (turns, minutes)) in requests.iter().enumerate() {
            now_ms += minutes * MINUTE_MS / 10;
            tracker.note(&chain(turns), now_ms);
            if round % 3 == 0 {
                let delta = tracker.delta(now_ms, |hash| hash % 5 != not_held);
                trie.apply(&region("eu"), &delta, now_ms);
                check(&trie);
                let told = trie.region(&region("eu")).map_or(0, |blocks| blocks.entries().len());
                prop_assert_eq!(tracker.stats().told, told as u64, "nothing was refused");
                prop_assert!(told <= 16);
                let entries = trie.region(&region("eu")).map(RegionBlocks::entries);
                prop_assert!(entries.unwrap_or_default().iter().all(|it| it.hash % 5 != not_held));
                prop_assert!(tracker.delta(now_ms, |hash| hash % 5 != not_held).is_empty());
            }
        }
    }
}

#[test]
fn a_region_keeps_its_hottest_blocks_and_leaves_go_first() {
    let mut trie = HotTrie::default();
    let long = chain_of(0, 1_000);
    trie.apply(&region("eu"), &enter(&long, 20), 0);
    for number in 1..=20 {
        trie.apply(&region("eu"), &enter(&chain_of(number, 1_000), 40 + number as u8), 0);
        check(&trie);
    }
    assert_eq!(trie.stats().blocks, 16_384);
    assert_eq!(depth(&trie, &region("eu"), &chain_of(20, 1_000)), 1_000);
    assert_eq!(
        depth(&trie, &region("eu"), &chain_of(4, 1_000)),
        384,
        "the coldest that has a place"
    );
    assert_eq!(depth(&trie, &region("eu"), &long), 0);
}

#[test]
fn heat_that_was_told_long_ago_counts_less() {
    let mut trie = HotTrie::default();
    trie.apply(&region("eu"), &enter(&chain_of(0, 1_000), 60), 0);
    for number in 1..=16 {
        // 58 announced an hour later is warmer than 60 halved six times.
        trie.apply(&region("eu"), &enter(&chain_of(number, 1_000), 58), 60 * MINUTE_MS);
    }
    assert_eq!(trie.stats().blocks, 16_384);
    assert_eq!(depth(&trie, &region("eu"), &chain_of(0, 1_000)), 384);
}

#[test]
fn all_regions_together_are_bounded_and_the_largest_gives_way() {
    let entries = |count: u32, blocks: usize| -> Vec<HotEntry> {
        let chains = (0..count).flat_map(|number| records(&chain_of(number, blocks), 50));
        let entry = |HotBlock { hash, parent, depth, heat }| HotEntry {
            hash,
            parent,
            stamp_s: 0,
            depth,
            heat,
        };
        chains.map(entry).collect()
    };
    let large = entries(16, 1_000);
    let mut regions: BTreeMap<String, Vec<HotEntry>> =
        (0..8).map(|name| (name.to_string(), large.clone())).collect();
    regions.insert("small".to_owned(), entries(1, 100));
    let text = serde_json::to_string(&regions).unwrap();
    let mut trie: HotTrie = serde_json::from_str(&text).unwrap();
    assert_eq!(trie.stats().blocks, 128_100);
    trie.apply(&region("new"), &enter(&chain_of(20, 1_900), 1), 0);
    trie.apply(&region("new"), &enter(&chain_of(21, 1_500), 1), 0);
    check(&trie);
    assert_eq!(trie.stats().blocks, HotTrie::BLOCKS_MAX as u64);
    assert_eq!(trie.stats().bytes, 3 << 20);
    for (name, blocks) in [("small", 100), ("new", 3_400), ("0", 15_947), ("7", 15_946)] {
        assert_eq!(trie.region(&region(name)).unwrap().entries().len(), blocks, "{name}");
    }
}

#[test]
fn only_so_many_regions_have_a_place() {
    let mut trie = HotTrie::default();
    for name in 0..300 {
        trie.apply(&region(&name.to_string()), &enter(&chain_of(1, 1), 50), 0);
    }
    assert_eq!(trie.stats().regions, HotTrie::REGIONS_MAX as u64);
    trie.apply(&region("7"), &enter(&chain_of(2, 1), 50), 0);
    assert_eq!(trie.stats().blocks, HotTrie::REGIONS_MAX as u64 + 1, "those inside go on");
    check(&trie);
}

#[test]
fn records_beyond_the_limit_of_a_delta_are_left_out() {
    let mut trie = HotTrie::default();
    let long = chain_of(1, 3_000);
    trie.apply(&region("eu"), &enter(&long, 9), 0);
    assert_eq!(trie.stats().blocks, HotDelta::RECORDS_MAX as u64);
    trie.apply(
        &region("eu"),
        &HotDelta { enter: records(&long, 9).split_off(1_900), leave: Vec::new() },
        0,
    );
    assert_eq!(trie.stats().blocks, 3_000);
    let leave = long.iter().rev().copied().collect();
    trie.apply(&region("eu"), &HotDelta { enter: Vec::new(), leave }, 0);
    assert_eq!(trie.stats().blocks, 1_100);
}

#[test]
fn regions_leave_and_the_key_changes() {
    let mut trie = HotTrie::default();
    for name in ["eu", "us"] {
        trie.apply(&region(name), &enter(&chain_of(1, 10), 9), 0);
    }
    assert_eq!(trie.hottest(1)[0].regions, [region("eu"), region("us")]);
    assert_eq!(trie.hottest(1)[0].depth, 10);
    assert_eq!(trie.hottest(100).len(), 10);
    trie.remove_region(&region("eu"));
    assert_eq!(trie.stats().regions, 1);
    let gone = HotDelta { enter: Vec::new(), leave: chain_of(1, 10)[3..4].to_vec() };
    let change = trie.apply(&region("us"), &gone, 0);
    assert_eq!((change.entered, change.left), (0, 7), "what continues a block leaves with it");
    trie.clear();
    assert!(trie.is_empty());
    assert_eq!(trie.digest(), HotTrie::default().digest());
}
