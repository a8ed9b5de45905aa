//! Test that a look-up, which is part of each routing decision, allocates no memory.

use std::hint::black_box;

use spillway_prefix::{FineIndex, IndexConfig, Matches};

const REPLICAS: u64 = 1_000;
const BLOCKS: usize = 64;
const PROMPTS: u64 = 200;

#[test]
fn a_look_up_allocates_nothing_once_its_matches_have_been_used() {
    let (mut index, reader) = FineIndex::new(IndexConfig::default());
    let mut chains = Vec::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let shared: Vec<u64> = (0..BLOCKS / 2).map(|_| rng.u64(..)).collect();
    for replica in 0..REPLICAS {
        let holder = index.holder(replica).expect("a holder");
        index.insert(holder, &shared);
        if replica < PROMPTS {
            let own = (0..BLOCKS / 2).map(|_| rng.u64(..));
            let chain: Vec<u64> = shared.iter().copied().chain(own).collect();
            index.insert(holder, &chain);
            chains.push(chain);
        }
    }
    let mut matches = Matches::new();
    reader.lookup(&chains[0], &mut matches);
    let counted = allocation_counter::measure(|| {
        for chain in &chains {
            reader.lookup(black_box(chain), &mut matches);
            assert_eq!(matches.longest(), BLOCKS as u32);
        }
    });
    assert_eq!(matches.iter().count(), REPLICAS as usize);
    assert_eq!(counted.count_total, 0);
}
