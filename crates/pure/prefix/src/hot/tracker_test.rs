//! Tests of the heat tracker: the announced blocks and the time of their announcement.

use super::hot_test::{MINUTE_MS, chain_of, enter, region};
use crate::{FineIndex, HeatConfig, HeatTracker, HotDelta, HotTrie, IndexConfig};

/// Returns a tracker that saw each prompt of `counts` that many times at time 0.
fn seen(config: HeatConfig, counts: &[(u32, u32)]) -> HeatTracker {
    let mut tracker = HeatTracker::new(config);
    for (number, count) in counts {
        (0..*count).for_each(|_| tracker.note(&chain_of(*number, 10), 0));
    }
    tracker
}

fn told(delta: &HotDelta, number: u32) -> usize {
    chain_of(number, 10)
        .iter()
        .filter(|hash| delta.enter.iter().any(|it| it.hash == **hash))
        .count()
}

#[test]
fn what_is_asked_for_often_is_told_with_its_heat() {
    let mut tracker = seen(HeatConfig::default(), &[(1, 64), (2, 3), (3, 2)]);
    let delta = tracker.delta(0, |_| true);
    assert_eq!([1, 2, 3].map(|number| told(&delta, number)), [10, 10, 0]);
    let heat =
        |number| delta.enter.iter().find(|it| it.hash == chain_of(number, 10)[9]).unwrap().heat;
    assert_eq!([heat(1), heat(2)], [12, 3], "twice the logarithm");
    assert!(tracker.delta(0, |_| true).is_empty(), "told once");
}

#[test]
fn heat_halves_and_what_cools_leaves_only_well_below_where_it_entered() {
    let mut tracker = seen(HeatConfig::default(), &[(1, 4)]);
    assert_eq!(tracker.delta(0, |_| true).enter.len(), 10);
    // 4 requests: 2 after ten minutes, below 3 but above half of it.
    assert!(tracker.delta(10 * MINUTE_MS, |_| true).is_empty());
    let cold = tracker.delta(15 * MINUTE_MS, |_| true);
    assert_eq!((cold.enter.len(), cold.leave.len()), (0, 10));
    assert_eq!(cold.leave[0], chain_of(1, 10)[9], "children first");
    // Heat is still a number after days.
    let days_ms = 3 * 24 * 60 * MINUTE_MS;
    (0..4).for_each(|_| tracker.note(&chain_of(1, 10), days_ms));
    let late = tracker.delta(days_ms, |_| true);
    assert_eq!((late.enter.len(), late.enter[0].heat), (10, 4), "old requests count nothing");
}

#[test]
fn what_no_replica_holds_any_more_leaves_at_once_with_all_that_continues_it() {
    let mut tracker = seen(HeatConfig::default(), &[(1, 10)]);
    tracker.delta(0, |_| true);
    let lost = chain_of(1, 10)[4];
    assert_eq!(tracker.delta(0, |hash| hash != lost).leave.len(), 6);
}

#[test]
fn a_block_without_a_record_in_the_index_counts_as_held_with_those_before() {
    let (mut index, _reader) = FineIndex::new(IndexConfig::default());
    let holder = index.holder(1).unwrap();
    let mut tracker = HeatTracker::new(HeatConfig::default());
    (0..10).for_each(|_| tracker.note(&chain_of(1, 200), 0));
    index.insert(holder, &chain_of(1, 200)[..150]);
    // Every fourth block has a record there: the 148th has one, and the 152nd is not held.
    assert_eq!(tracker.delta(0, |block| index.is_held(block)).enter.len(), 151);
}

#[test]
fn a_long_prompt_whose_beginning_is_lost_costs_no_more_than_its_length() {
    let mut tracker = HeatTracker::new(HeatConfig::default());
    let long = chain_of(1, 16_000);
    (0..4).for_each(|_| tracker.note(&long, 0));
    let asked = std::cell::Cell::new(0);
    let delta = tracker.delta(0, |hash| {
        asked.set(asked.get() + 1);
        hash != long[0]
    });
    assert!(delta.is_empty());
    assert!(asked.get() <= 16_000, "{} questions", asked.get());
}

#[test]
fn a_place_is_taken_only_by_what_is_clearly_better() {
    let config = HeatConfig { blocks_max: 50, ..HeatConfig::default() };
    let mut tracker = seen(config, &[(1, 20), (2, 20), (3, 20), (4, 20), (5, 19)]);
    let first = tracker.delta(0, |_| true);
    assert_eq!((1..=5).map(|number| told(&first, number)).collect::<Vec<_>>(), [10, 10, 10, 10, 0]);
    // The fifth prompt becomes the best: it enters, and the prompt that is now fifth stays.
    (0..4).for_each(|_| tracker.note(&chain_of(5, 10), 0));
    let second = tracker.delta(0, |_| true);
    assert_eq!((told(&second, 5), second.leave.len()), (10, 0));
    (0..9).for_each(|_| tracker.note(&chain_of(6, 10), 0));
    assert!(tracker.delta(0, |_| true).is_empty(), "no room for the sixth");
}

#[test]
fn one_who_takes_over_goes_on_from_what_the_trie_has() {
    let mut trie = HotTrie::default();
    trie.apply(&region("eu"), &enter(&chain_of(1, 10), 9), 0);
    trie.apply(&region("eu"), &enter(&chain_of(2, 10), 9), 0);
    let mut tracker = seen(HeatConfig::default(), &[(1, 22), (3, 22)]);
    tracker.adopt(trie.region(&region("eu")));
    let delta = tracker.delta(0, |_| true);
    assert_eq!([1, 2, 3].map(|number| told(&delta, number)), [0, 0, 10]);
    assert_eq!(delta.leave.len(), 10, "what it never saw leaves");
    tracker.adopt(None);
    assert_eq!(tracker.delta(0, |_| true).enter.len(), 20);
}

#[test]
fn a_delta_is_bounded_and_later_ones_tell_the_rest() {
    let mut tracker = HeatTracker::new(HeatConfig::default());
    for number in 0..100 {
        (0..3).for_each(|_| tracker.note(&chain_of(number, 100), 0));
    }
    let mut trie = HotTrie::default();
    let mut deltas = 0;
    loop {
        let delta = tracker.delta(0, |_| true);
        if delta.is_empty() {
            break;
        }
        assert!(delta.enter.len() <= HotDelta::RECORDS_MAX);
        trie.apply(&region("eu"), &delta, 0);
        deltas += 1;
    }
    assert_eq!((deltas, trie.stats().blocks), (6, 10_000));
}

#[test]
fn prompts_that_never_come_again_push_nothing_out() {
    let config = HeatConfig { blocks_max: 100, ..HeatConfig::default() };
    let mut tracker = seen(config, &[(1, 3)]);
    for number in 10..20_000 {
        tracker.note(&chain_of(number, 10), 0);
        assert!(tracker.stats().tracked <= 400);
    }
    (0..2).for_each(|_| tracker.note(&chain_of(1, 10), 0));
    let delta = tracker.delta(0, |_| true);
    assert_eq!(told(&delta, 1), 10);
    assert!(delta.enter.len() < 40, "{} blocks seem hot by chance", delta.enter.len());
}

#[test]
fn blocks_deeper_than_a_record_tells_are_left_out() {
    let mut tracker = HeatTracker::new(HeatConfig::default());
    let long: Vec<u64> = (1..=70_000).collect();
    (0..2).for_each(|_| tracker.note(&long, 0));
    assert_eq!(tracker.stats().tracked, 65_535);
}

#[test]
fn a_flood_of_prompts_seen_twice_leaves_the_hottest() {
    let config = HeatConfig { blocks_max: 100, ..HeatConfig::default() };
    let mut tracker = seen(config, &[(1, 50)]);
    for number in 10..5_000 {
        (0..2).for_each(|_| tracker.note(&chain_of(number, 10), 0));
        assert!(tracker.stats().tracked <= 410, "{:?}", tracker.stats());
    }
    assert_eq!(told(&tracker.delta(0, |_| true), 1), 10);
    tracker.clear();
    assert_eq!(tracker.stats(), crate::HeatStats::default());
    assert!(tracker.delta(0, |_| true).is_empty());
}
