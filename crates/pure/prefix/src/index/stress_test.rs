//! Tests of readers beside the writer: results were true, or are too small.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spillway_types::Holder;

use crate::{FineIndex, IndexConfig, IndexReader, Matches};

const HOLDERS: u16 = 150;
const FAMILIES: u64 = 600;
const BLOCKS: usize = 24;

/// Returns the prompt of a family. Only holders with the same remainder ever get it.
fn prompt(family: u64) -> Vec<u64> {
    (1..=BLOCKS as u64)
        .map(|depth| (family * 1_000 + depth).wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .collect()
}

fn may_hold(holder: u16, family: u64) -> bool {
    u64::from(holder) % 6 == family % 6
}

/// Looks prompts up until `stop` is set. Returns the number of look-ups, and of those that found
/// too few blocks of the prompt that is always there.
fn read(reader: &IndexReader, stop: &AtomicBool, flushed: &AtomicU64, seed: u64) -> [u64; 2] {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut matches, mut counts) = (Matches::new(), [0; 2]);
    while !stop.load(Ordering::Acquire) {
        let family = rng.u64(0..FAMILIES);
        let gone = flushed.load(Ordering::Acquire);
        reader.lookup(&prompt(family), &mut matches);
        for (holder, blocks) in &matches {
            assert!(may_hold(holder.0, family), "{holder:?} at a prompt it never had");
            assert!(blocks as usize <= BLOCKS);
            assert!(u64::from(holder.0) >= gone, "{holder:?} was flushed before");
        }
        reader.lookup(&prompt(FAMILIES), &mut matches);
        counts[0] += 1;
        counts[1] += u64::from(matches.blocks(Holder(HOLDERS - 6)) < BLOCKS as u32);
    }
    counts
}

#[test]
fn readers_see_no_holder_where_it_never_was_and_none_after_its_flush() {
    let config = IndexConfig { bytes_max: 1 << 20, holder_blocks_default: 400 };
    let (mut index, reader) = FineIndex::new(config);
    let holders: Vec<Holder> =
        (0..u64::from(HOLDERS)).map(|identity| index.holder(identity).unwrap()).collect();
    let (stop, flushed) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rng = fastrand::Rng::with_seed(1);
    let counts = std::thread::scope(|scope| {
        let readers = [2, 3].map(|seed| {
            let (reader, stop, flushed) = (reader.clone(), &stop, &flushed);
            scope.spawn(move || read(&reader, stop, flushed, seed))
        });
        for round in 0..30_000_u32 {
            let family = rng.u64(0..FAMILIES);
            let last_flushed = flushed.load(Ordering::Relaxed);
            let holder = 6 * rng.u16(0..HOLDERS / 6) + (family % 6) as u16;
            if u64::from(holder) >= last_flushed {
                index
                    .insert(holders[usize::from(holder)], &prompt(family)[..rng.usize(1..=BLOCKS)]);
            }
            index.insert(holders[usize::from(HOLDERS) - 6], &prompt(FAMILIES));
            if round % 1_000 == 999 {
                index.flush(holders[last_flushed as usize]);
                flushed.store(last_flushed + 1, Ordering::Release);
            }
            if round == 15_000 {
                index.clear();
            }
        }
        stop.store(true, Ordering::Release);
        readers.map(|reader| reader.join().unwrap())
    });
    let [lookups, short] = [0, 1].map(|at| counts.iter().map(|count| count[at]).sum::<u64>());
    assert!(lookups > 100, "readers came to read");
    assert!(short * 20 < lookups, "{short} of {lookups} fell short of what is always there");
    assert!(index.stats().evictions > 30_000, "{:?}", index.stats());
}
