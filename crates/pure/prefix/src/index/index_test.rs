//! Tests of the index against a simple model, and of its other promises.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use proptest::prelude::*;
use spillway_types::Holder;

use super::kept::{self, KeptBlock};
use crate::{FineIndex, IndexConfig, IndexReader, Matches};

pub(super) const SMALL: IndexConfig =
    IndexConfig { bytes_max: 1 << 20, holder_blocks_default: 1_000_000 };
const LARGE: IndexConfig = IndexConfig { bytes_max: 16 << 20, ..SMALL };

/// Returns a chain that branches at each of `turns`: chains with equal first turns share blocks.
fn chain(turns: &[u8]) -> Vec<u64> {
    let step = |hash: &mut u64, turn: &u8| {
        *hash =
            (*hash ^ (u64::from(*turn) + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        Some(*hash)
    };
    turns.iter().scan(0x1234_5678_9ABC_DEF1, step).collect()
}

/// Returns a chain that shares no block with the chain of any other number.
pub(super) fn chain_of(number: u32, blocks: usize) -> Vec<u64> {
    let mut turns = number.to_le_bytes().to_vec();
    turns.resize(blocks.max(4) + 4, 0);
    chain(&turns)[4..].to_vec()
}

pub(super) fn found(reader: &IndexReader, chain: &[u64]) -> BTreeMap<u16, u32> {
    let mut matches = Matches::new();
    reader.lookup(chain, &mut matches);
    let found: BTreeMap<u16, u32> =
        matches.iter().map(|(holder, blocks)| (holder.0, blocks)).collect();
    assert!(found.iter().all(|(holder, blocks)| matches.blocks(Holder(*holder)) == *blocks));
    assert_eq!(found.values().max().copied().unwrap_or(0), matches.longest());
    for blocks in found.values().copied().collect::<BTreeSet<u32>>() {
        for range in [blocks..=blocks, blocks / 2 + 1..=blocks, blocks + 1..=u32::MAX] {
            let held = found.iter().filter(|(_, blocks)| range.contains(*blocks));
            let expected: Vec<Holder> = held.map(|(holder, _)| Holder(*holder)).collect();
            assert_eq!(matches.holders(range.clone()).collect::<Vec<_>>(), expected, "{range:?}");
        }
    }
    found
}

/// Returns the chain with so many blocks for each of `turns`.
fn long(turns: &[u8], blocks: usize) -> Vec<u64> {
    let each = |turn: &u8| iter::once(*turn).chain(iter::repeat_n(0, blocks - 1));
    chain(&turns.iter().flat_map(each).collect::<Vec<u8>>())
}

/// Records of each replica with the blocks that they represent, the most recently used first.
#[derive(Debug, Default)]
struct Model {
    holder_entries: BTreeMap<u16, Vec<(u64, usize)>>,
    capacities: BTreeMap<u16, usize>,
}

impl Model {
    fn insert(&mut self, holder: u16, chain: &[u64]) {
        let capacity = self.capacities.get(&holder).copied().unwrap_or(usize::MAX);
        let holder_entry = self.holder_entries.entry(holder).or_default();
        let all = (0..kept::count(chain.len())).map(kept::at);
        let used = all.clone().take_while(|kept| kept.depth <= capacity);
        let used: Vec<_> = used.map(|kept| (chain[kept.depth - 1], 1 << kept.span_log)).collect();
        if used.len() < all.len() {
            // Room was made for a record that is larger than all.
            holder_entry.clear();
        }
        holder_entry.retain(|record| !used.contains(record));
        holder_entry.splice(0..0, used);
        Self::trim(holder_entry, capacity);
    }

    fn trim(holder_entry: &mut Vec<(u64, usize)>, capacity: usize) {
        while holder_entry.iter().map(|record| record.1).sum::<usize>() > capacity {
            holder_entry.pop();
        }
    }

    /// Applies a failed request: room was made for it, and it counts as the last use of the blocks
    /// it found.
    fn fail(&mut self, holder: u16, chain: &[u64]) {
        let before = self.holder_entries.get(&holder).cloned().unwrap_or_default();
        self.insert(holder, chain);
        self.holder_entries.entry(holder).or_default().retain(|record| before.contains(record));
    }

    fn limit(&mut self, holder: u16, capacity: usize) {
        self.capacities.insert(holder, capacity);
        Self::trim(self.holder_entries.entry(holder).or_default(), capacity);
    }

    fn find(&self, chain: &[u64]) -> BTreeMap<u16, u32> {
        let all = (0..kept::count(chain.len())).map(kept::at);
        let depth = |holder_entry: &Vec<(u64, usize)>| {
            let is_held = |kept: &KeptBlock| {
                holder_entry.contains(&(chain[kept.depth - 1], 1 << kept.span_log))
            };
            all.clone().take_while(is_held).last().map_or(0, |kept| kept.depth)
        };
        let depths = self
            .holder_entries
            .iter()
            .map(|(holder, holder_entry)| (*holder, depth(holder_entry) as u32));
        depths.filter(|(_, depth)| *depth > 0).collect()
    }

    fn sizes(&self) -> (u64, u64) {
        let all: BTreeSet<_> = self.holder_entries.values().flatten().copied().collect();
        (
            all.len() as u64,
            self.holder_entries.values().map(|holder_entry| holder_entry.len() as u64).sum(),
        )
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, Vec<u8>),
    Fail(u16, Vec<u8>),
    Limit(u16, u32),
    Flush(u16),
    Forget(u16),
    Clear,
}

fn turns() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![8 => Just(0_u8), 2 => 1..4_u8], 0..24)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let holder = || 0..6_u16;
    let step = prop_oneof![
        30 => (holder(), turns()).prop_map(|(holder, turns)| Step::Insert(holder, turns)),
        6 => (holder(), turns()).prop_map(|(holder, turns)| Step::Fail(holder, turns)),
        3 => (holder(), 1..60_u32).prop_map(|(holder, blocks)| Step::Limit(holder, blocks)),
        2 => holder().prop_map(Step::Flush),
        1 => holder().prop_map(Step::Forget),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    // Every step looks several prompts up; the number of cases is chosen to take seconds.
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn look_ups_find_what_a_simple_model_holds(
        steps in steps(),
        asked in prop::collection::vec(turns(), 8),
        turn_blocks in prop_oneof![Just(1), 2..20_usize],
    ) {
        let chain = |turns: &[u8]| long(turns, turn_blocks);
        let (mut index, reader) = FineIndex::new(SMALL);
        let mut model = Model::default();
        let mut numbers: Vec<Holder> = (0..6).map(|it| index.holder(it).unwrap()).collect();
        for step in steps {
            match step {
                Step::Insert(at, turns) => {
                    index.insert(numbers[usize::from(at)], &chain(&turns));
                    model.insert(numbers[usize::from(at)].0, &chain(&turns));
                }
                Step::Fail(at, turns) => {
                    index.insert(numbers[usize::from(at)], &chain(&turns));
                    index.take_back(numbers[usize::from(at)], &chain(&turns));
                    model.fail(numbers[usize::from(at)].0, &chain(&turns));
                }
                Step::Limit(at, blocks) => {
                    let blocks = blocks * turn_blocks as u32;
                    index.set_capacity(numbers[usize::from(at)], blocks);
                    model.limit(numbers[usize::from(at)].0, blocks as usize);
                }
                Step::Flush(at) => {
                    index.flush(numbers[usize::from(at)]);
                    model.holder_entries.remove(&numbers[usize::from(at)].0);
                }
                Step::Forget(at) => {
                    let gone = numbers[usize::from(at)];
                    index.forget_holder(gone);
                    model.holder_entries.remove(&gone.0);
                    model.capacities.remove(&gone.0);
                    numbers[usize::from(at)] = index.holder(u64::from(at)).unwrap();
                    prop_assert_ne!(numbers[usize::from(at)], gone);
                }
                Step::Clear => {
                    index.clear();
                    model.holder_entries.clear();
                }
            }
            for turns in &asked {
                prop_assert_eq!(found(&reader, &chain(turns)), model.find(&chain(turns)));
            }
            let stats = index.stats();
            prop_assert_eq!((stats.blocks, stats.pairs), model.sizes());
        }
    }

    #[test]
    fn sets_of_any_size_have_the_members_that_were_added_and_not_removed(
        universe in prop_oneof![2..70_u16, 2..1_200_u16, Just(5_000_u16)],
        changes in prop::collection::vec((any::<u16>(), 1..300_u16, prop::bool::weighted(0.6)), 1..30),
    ) {
        let (mut index, reader) = FineIndex::new(LARGE);
        let holders: Vec<Holder> = (0..u64::from(universe)).map(|it| index.holder(it).unwrap()).collect();
        let (hot, mut members) = (chain(&[0; 3]), BTreeMap::new());
        for (first, count, is_added) in changes {
            for at in 0..count.min(universe) {
                let holder = holders[usize::from((u32::from(first) + u32::from(at) * 7) as u16 % universe)];
                if is_added {
                    index.insert(holder, &hot);
                    members.insert(holder.0, 3);
                } else {
                    index.flush(holder);
                    members.remove(&holder.0);
                }
            }
            prop_assert_eq!(&found(&reader, &hot), &members);
        }
        holders.iter().for_each(|holder| index.flush(*holder));
        prop_assert_eq!((index.stats().blocks, index.stats().pairs), (0, 0));
    }

    #[test]
    fn a_reply_never_adds_to_what_is_believed(
        sends in prop::collection::vec((0..3_u16, turns(), 0..30_u32), 1..40),
    ) {
        let (mut index, reader) = FineIndex::new(SMALL);
        let holders: Vec<Holder> = (0..3).map(|it| index.holder(it).unwrap()).collect();
        for (at, turns, cached) in sends {
            let (holder, chain) = (holders[usize::from(at)], chain(&turns));
            index.insert(holder, &chain);
            let before = index.stats().pairs;
            index.correct(holder, &chain, cached);
            prop_assert!(index.stats().pairs <= before);
            // The blocks that the request itself brought there stay.
            prop_assert_eq!(found(&reader, &chain).get(&holder.0).copied().unwrap_or(0), chain.len() as u32);
        }
    }
}

#[test]
fn the_bytes_of_the_index_are_bounded_and_what_is_oldest_goes_first() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holders: Vec<Holder> = (0..10).map(|it| index.holder(it).unwrap()).collect();
    let kept = chain_of(u32::MAX, 40);
    for number in 0..3_000_u32 {
        index.insert(holders[number as usize % 10], &chain_of(number, 40));
        index.insert(holders[3], &kept);
        assert!(index.stats().bytes <= 1 << 20, "{:?}", index.stats());
    }
    let stats = index.stats();
    assert!(stats.evictions > 90_000 && stats.pairs > 12_000, "{stats:?}");
    assert_eq!(found(&reader, &kept), BTreeMap::from([(3, 40)]), "what is used stays");
    assert_eq!(found(&reader, &chain_of(0, 40)), BTreeMap::new());
    let is_there = |number: &u32| !found(&reader, &chain_of(*number, 40)).is_empty();
    let first = (0..3_000).find(is_there).unwrap();
    assert!((first..3_000).all(|number| is_there(&number)), "all that is newer is there");
}

#[test]
fn leaves_go_before_what_they_continue() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    let long = chain_of(1, 20);
    index.insert(holder, &long);
    for blocks in (1..20).rev() {
        index.set_capacity(holder, blocks);
        assert_eq!(found(&reader, &long), BTreeMap::from([(0, blocks)]));
    }
    index.insert(holder, &chain_of(2, 20));
    assert_eq!(found(&reader, &chain_of(2, 20)), BTreeMap::from([(0, 1)]), "as much as has room");
}

#[test]
fn a_flush_hides_at_once_what_takes_longer_to_remove() {
    let (mut index, reader) = FineIndex::new(LARGE);
    let [left, right] = [1, 2].map(|identity| index.holder(identity).unwrap());
    let shared = chain_of(5_000, 10);
    for number in 0..400 {
        index.insert(left, &chain_of(number, 10));
    }
    index.insert(left, &shared);
    index.correct(left, &shared, 0);
    index.insert(right, &shared);
    index.flush(left);
    assert!(index.stats().pairs > 2_000, "most is still to be removed");
    for number in 0..400 {
        assert_eq!(found(&reader, &chain_of(number, 10)), BTreeMap::new());
    }
    assert_eq!(found(&reader, &shared), BTreeMap::from([(1, 10)]));
    // Blocks that return while the old ones are being removed survive.
    index.insert(left, &shared);
    index.correct(left, &shared, 0);
    assert_eq!(index.stats().corrections, 0, "nothing was believed of an empty cache");
    while index.sweep(100) {}
    assert_eq!(found(&reader, &shared), BTreeMap::from([(0, 10), (1, 10)]));
    assert_eq!((index.stats().pairs, index.stats().flushes), (20, 1));
}

#[test]
fn numbers_are_one_to_an_identity_and_come_back_last() {
    let (mut index, _) = FineIndex::new(LARGE);
    let first = index.holder(10).unwrap();
    assert_eq!(index.holder(10), Some(first));
    index.forget_holder(first);
    index.insert(first, &chain_of(1, 10));
    assert_eq!(index.stats().pairs, 0, "nobody has that number");
    for identity in 1_000..66_534 {
        assert_ne!(index.holder(identity).unwrap(), first);
    }
    assert_eq!(index.holder(10), Some(first), "the last one that is free");
    assert_eq!(index.holder(11), None);
    index.insert(Holder(u16::MAX), &chain_of(1, 10));
    assert_eq!(index.stats().pairs, 0);
}

#[test]
fn after_the_key_changed_everything_starts_anew() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    for number in 0..500 {
        index.insert(holder, &chain_of(number, 10));
    }
    index.clear();
    assert_eq!((index.stats().blocks, index.stats().pairs), (0, 0));
    assert!((0..500).all(|number| found(&reader, &chain_of(number, 10)).is_empty()));
    assert_eq!(index.holder(1), Some(holder));
    for number in 500..1_000 {
        index.insert(holder, &chain_of(number, 10));
        assert_eq!(found(&reader, &chain_of(number, 10)), BTreeMap::from([(0, 10)]));
    }
    assert_eq!(index.stats().pairs, 5_000);
}

#[test]
fn a_prompt_whose_every_block_ends_at_another_replica_is_found_in_full() {
    let (mut index, reader) = FineIndex::new(LARGE);
    let long = chain_of(1, 300);
    let holders: Vec<Holder> = (0..200).map(|it| index.holder(it).unwrap()).collect();
    for (blocks, holder) in (1..).zip(&holders) {
        index.insert(*holder, &long[..blocks]);
    }
    // Of blocks behind the 64th every second has a record, behind the 128th every fourth.
    let told = |blocks: u32| match blocks {
        ..=64 => blocks,
        65..=128 => blocks / 2 * 2,
        _ => blocks / 4 * 4,
    };
    let holders = (1..).zip(&holders);
    let expected = holders.map(|(blocks, holder)| (holder.0, told(blocks))).collect();
    assert_eq!(found(&reader, &long), expected);
}

#[test]
fn with_more_depths_than_ranks_the_deepest_are_understated() {
    let (mut index, reader) = FineIndex::new(LARGE);
    let long = chain_of(1, kept::at(299).depth);
    for record in 0..300 {
        let holder = index.holder(record).unwrap();
        index.insert(holder, &long[..kept::at(record as usize).depth]);
    }
    let told = |holder: &u16| kept::at(usize::from(*holder).min(254)).depth as u32;
    let found = found(&reader, &long);
    assert!(found.iter().all(|(holder, blocks)| *blocks == told(holder)), "{found:?}");
    assert_eq!(found.len(), 300);
}

#[test]
fn what_a_replaced_table_says_is_not_believed() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holders: Vec<Holder> = (0..9).map(|it| index.holder(it).unwrap()).collect();
    let shared = chain_of(1, 10);
    holders.iter().for_each(|holder| index.insert(*holder, &shared));
    let mut matches = Matches::new();
    let first = reader.table();
    assert!(reader.lookup_in(&first, &shared, &mut matches));
    // The table grows.
    (2..200).for_each(|number| index.insert(holders[0], &chain_of(number, 10)));
    assert!(!reader.lookup_in(&first, &shared, &mut matches));
    let second = reader.table();
    assert!(reader.lookup_in(&second, &shared, &mut matches));
    index.clear();
    assert!(!reader.lookup_in(&second, &shared, &mut matches));
    assert_eq!(found(&reader, &shared), BTreeMap::new());
}
