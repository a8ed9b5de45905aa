use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::kv::kv_session_id;
use crate::{IndexConfig, IndexReader, Matches};

/// Bytes of a block of a prompt, tokens of an engine block, bytes of a token: four engine blocks
/// carry a block of a prompt.
const BLOCK_BYTES: usize = 256;
const BLOCK_TOKENS: u32 = 16;
const TOKEN_BYTES: u64 = 4;

/// Mirror with its index, beside an engine that reports what it does.
struct Scene {
    index: FineIndex,
    reader: IndexReader,
    holder: Holder,
    mirror: KvMirror,
    now_ms: u64,
}

impl Scene {
    fn new() -> Self {
        let (mut index, reader) = FineIndex::new(IndexConfig::default());
        let holder = index.holder(1).unwrap();
        Self { index, reader, holder, mirror: KvMirror::new(BLOCK_BYTES), now_ms: 0 }
    }

    fn send(&mut self, chain: &[u64]) {
        self.index.insert(self.holder, chain);
        self.send_by(chain, Sender::Own);
    }

    fn send_by(&mut self, chain: &[u64], sender: Sender) {
        self.mirror.sent(&BlockHashes::new(chain.to_vec()), sender, self.now_ms);
    }

    fn note(&mut self, event: &KvEvent) {
        self.mirror.note(&mut self.index, self.holder, event, self.now_ms);
    }

    /// Reports engine blocks that were stored for a prompt.
    fn store(&mut self, chain: &[u64], parent: Option<u64>, hashes: impl IntoIterator<Item = u64>) {
        self.note(&KvEvent::Stored(StoredBlocks {
            hashes: hashes.into_iter().collect(),
            parent,
            block_tokens: BLOCK_TOKENS,
            session: kv_session_id(chain),
            group: None,
        }));
    }

    fn remove(&mut self, hashes: impl IntoIterator<Item = u64>) {
        let hashes = hashes.into_iter().collect();
        self.note(&KvEvent::Removed { hashes, group: None });
    }

    /// Ends a reply without text to a prompt that fills its blocks, and lets the events settle.
    fn reply(&mut self, chain: &[u64], cached_tokens: u64) {
        self.reply_with(chain, &[], cached_tokens);
    }

    fn reply_with(&mut self, chain: &[u64], written: &[u64], cached_tokens: u64) {
        let bytes = |blocks: &[u64]| blocks.len() * BLOCK_BYTES;
        let figures = ReplyFigures {
            written: written.to_vec(),
            prompt_bytes: bytes(chain) as u32,
            prompt_tokens: Some(bytes(chain) as u64 / TOKEN_BYTES),
            cached_tokens: Some(cached_tokens),
            output_tokens: bytes(written) as u64 / TOKEN_BYTES + 1,
            is_whole: true,
        };
        self.mirror.replied((&mut self.index, self.holder), chain, figures, self.now_ms);
    }

    fn settle(&mut self) -> bool {
        self.now_ms += 1_000;
        self.mirror.settle(&mut self.index, self.holder, self.now_ms)
    }

    /// Returns the number of leading blocks that the replica is believed to hold.
    fn held(&self, chain: &[u64]) -> u32 {
        let mut matches = Matches::new();
        self.reader.lookup(chain, &mut matches);
        matches.blocks(self.holder)
    }
}

#[test]
fn what_the_engine_evicts_is_forgotten_and_nothing_else() {
    let mut scene = Scene::new();
    let (one, other) = ([1, 2, 3], [1, 2, 4, 5]);
    scene.send(&one);
    scene.store(&one, None, 100..112);
    scene.reply(&one, 0);
    scene.send(&other);
    scene.store(&other, Some(107), 208..216);
    scene.reply(&other, 128);
    scene.settle();
    assert_eq!(scene.mirror.state(), KvState::Live);
    assert_eq!((scene.held(&one), scene.held(&other)), (3, 4));
    // The last of the four that carry block 3.
    scene.remove([111]);
    assert_eq!((scene.held(&one), scene.held(&other)), (2, 4));
    scene.remove([215, 214, 213, 212]);
    assert_eq!((scene.held(&one), scene.held(&other)), (2, 3));
    // A beginning takes all with it that continues it.
    scene.remove([103]);
    assert_eq!((scene.held(&one), scene.held(&other)), (0, 0));
    scene.remove([999]);
}

#[test]
fn a_reply_counts_as_cached_as_far_as_the_engine_says() {
    let mut scene = Scene::new();
    let (chain, written) = ([1, 2], [3, 4]);
    scene.send(&chain);
    scene.store(&chain, None, 100..108);
    scene.store(&chain, Some(107), 108..112);
    scene.reply_with(&chain, &written, 0);
    assert_eq!(scene.held(&[1, 2, 3, 4]), 3, "its last events are on their way");
    scene.store(&chain, Some(111), 112..116);
    scene.settle();
    assert_eq!(scene.held(&[1, 2, 3, 4]), 4);
    // Where a reply ends is known to a block, so that either of the last two may carry its end.
    scene.remove([115, 114]);
    assert_eq!(scene.held(&[1, 2, 3, 4]), 3);
}

#[test]
fn what_the_engine_has_no_full_block_of_is_not_held_once_all_events_are_in() {
    let mut scene = Scene::new();
    let chain = [1, 2, 3];
    scene.send(&chain);
    scene.store(&chain, None, 100..109);
    scene.reply(&chain, 0);
    assert_eq!(scene.held(&chain), 3, "events may be on their way");
    scene.settle();
    assert_eq!(scene.held(&chain), 2);
}

#[test]
fn events_of_another_nodes_prompt_are_tied_without_its_reply() {
    let mut scene = Scene::new();
    // The bytes of a token are known from a reply to this node.
    scene.send(&[1, 2]);
    scene.store(&[1, 2], None, 100..108);
    scene.reply(&[1, 2], 0);
    let theirs = [7, 8, 9];
    scene.index.insert(scene.holder, &theirs);
    scene.send_by(&theirs, Sender::Other);
    scene.store(&theirs, None, 200..212);
    scene.settle();
    scene.remove([211]);
    assert_eq!(scene.held(&theirs), 2);
    scene.remove(200..211);
    assert_eq!((scene.held(&theirs), scene.held(&[1, 2])), (0, 2));
}

#[test]
fn a_block_that_two_requests_computed_is_there_until_both_copies_are_gone() {
    let mut scene = Scene::new();
    let chain = [1, 2];
    scene.send(&chain);
    scene.store(&chain, None, 100..108);
    scene.store(&chain, None, 100..108);
    scene.reply(&chain, 0);
    scene.settle();
    scene.remove(100..108);
    assert_eq!(scene.held(&chain), 2);
    scene.remove(100..108);
    assert_eq!(scene.held(&chain), 0);
}

#[test]
fn what_was_there_before_the_events_began_goes_with_the_last_block_of_it() {
    let mut scene = Scene::new();
    let chain = [1, 2, 3, 4];
    scene.send(&chain);
    // The first half was cached; its blocks were stored before anyone listened.
    scene.store(&chain, Some(77), 108..116);
    scene.reply(&chain, 128);
    scene.settle();
    assert_eq!(scene.held(&chain), 4);
    scene.remove([115]);
    assert_eq!(scene.held(&chain), 3);
    scene.remove([77]);
    assert_eq!(scene.held(&chain), 0);
}

#[test]
fn an_eviction_under_a_prompt_on_its_way_takes_what_was_assumed_of_it() {
    let mut scene = Scene::new();
    scene.send(&[1, 2]);
    scene.store(&[1, 2], None, 100..108);
    scene.reply(&[1, 2], 0);
    scene.settle();
    scene.send(&[1, 2, 3]);
    scene.remove([107]);
    assert_eq!(scene.held(&[1, 2, 3]), 1, "no block without those before it");
    scene.store(&[1, 2, 3], Some(106), [107, 108, 109, 110, 111]);
    scene.reply(&[1, 2, 3], 112);
    scene.settle();
    assert_eq!(scene.held(&[1, 2, 3]), 3);
}

#[test]
fn events_of_others_and_a_lost_connection_leave_the_assumption() {
    let mut scene = Scene::new();
    scene.send(&[1, 2]);
    scene.note(&KvEvent::Stored(StoredBlocks {
        hashes: (100..108).collect(),
        parent: None,
        block_tokens: BLOCK_TOKENS,
        session: Some("a client's own".to_owned()),
        group: None,
    }));
    scene.reply(&[1, 2], 0);
    scene.settle();
    scene.remove(100..108);
    assert_eq!((scene.mirror.state(), scene.held(&[1, 2])), (KvState::Unproven, 2));
    scene.send(&[1, 2, 3]);
    scene.store(&[1, 2, 3], None, 100..112);
    scene.reply(&[1, 2, 3], 0);
    scene.settle();
    scene.mirror.miss();
    scene.remove(100..112);
    assert_eq!((scene.mirror.state(), scene.held(&[1, 2, 3])), (KvState::Unproven, 3));
    assert_eq!(scene.mirror.blocks(), 0);
}

#[test]
fn requests_without_events_end_the_belief_in_them_once() {
    let mut scene = Scene::new();
    let long: Vec<u64> = (0..20).collect();
    let mut ended = Vec::new();
    for turn in 0..20 {
        let chain: Vec<u64> = long.iter().map(|block| turn * 100 + block).collect();
        scene.send(&chain);
        scene.reply(&chain, 0);
        ended.push(scene.settle());
    }
    assert_eq!(ended.iter().position(|ended| *ended), Some(7));
    assert_eq!(ended.iter().filter(|ended| **ended).count(), 1, "reported once");
    assert_eq!(scene.mirror.state(), KvState::Stale);
    scene.send(&long);
    scene.store(&long, None, 100..180);
    assert_eq!(scene.mirror.state(), KvState::Live, "they came after all");
}

#[test]
fn replies_of_requests_with_the_same_prompt_are_each_told_by_their_own_events() {
    let mut scene = Scene::new();
    let chain = [1, 2];
    // Prompts that differ in less than a block have the same chain, and so the same id.
    scene.send(&chain);
    scene.send(&chain);
    scene.store(&chain, None, 100..108);
    scene.store(&chain, Some(107), 200..204);
    scene.store(&chain, Some(107), 300..304);
    scene.store(&chain, Some(203), 204..208);
    scene.reply_with(&chain, &[3, 4], 0);
    assert_eq!(scene.held(&[1, 2, 3, 4]), 4, "assumed until its last events are in");
    scene.settle();
    scene.store(&chain, Some(303), 304..308);
    scene.store(&chain, Some(307), 308..312);
    scene.reply_with(&chain, &[5, 6, 7], 0);
    scene.settle();
    assert_eq!((scene.held(&[1, 2, 3, 4]), scene.held(&[1, 2, 5, 6, 7])), (4, 5));
    // Engine blocks that carry the end of one reply do not belong to the other.
    scene.remove((308..312).rev());
    assert_eq!((scene.held(&[1, 2, 3, 4]), scene.held(&[1, 2, 5, 6, 7])), (4, 4));
    scene.remove((200..208).rev());
    assert_eq!((scene.held(&[1, 2, 3, 4]), scene.held(&[1, 2, 5, 6, 7])), (2, 4));
}

#[test]
fn a_prompt_stays_known_while_one_of_its_requests_is_under_way() {
    let mut scene = Scene::new();
    let chain = [1, 2];
    scene.send(&chain);
    scene.send(&chain);
    scene.store(&chain, None, 100..108);
    scene.reply(&chain, 0);
    scene.settle();
    scene.settle();
    scene.store(&chain, Some(107), 108..112);
    scene.reply_with(&chain, &[3], 0);
    scene.settle();
    assert_eq!(scene.held(&[1, 2, 3]), 3);
    scene.remove([111, 110]);
    assert_eq!(scene.held(&[1, 2, 3]), 2, "events of the second reply are tied to it");
}

#[test]
fn all_is_gone_when_the_engine_says_so() {
    let mut scene = Scene::new();
    scene.send(&[1, 2]);
    scene.store(&[1, 2], None, 100..108);
    scene.reply(&[1, 2], 0);
    scene.note(&KvEvent::Cleared);
    assert_eq!(scene.held(&[1, 2]), 0);
    assert_eq!(scene.mirror.blocks(), 0);
}

/// Engine that evicts what was used longest ago, the end of a chain first.
#[derive(Default)]
struct Engine {
    /// Engine blocks with their time of use.
    used: BTreeMap<u64, u64>,
    clock: u64,
}

impl Engine {
    /// Computes a prompt. Returns the parent and the blocks that are new, and those that are evicted.
    fn run(&mut self, chain: &[u64], blocks_max: usize) -> (Option<u64>, Vec<u64>, Vec<u64>) {
        let blocks: Vec<u64> =
            chain.iter().flat_map(|block| (0..4).map(move |part| block * 4 + part)).collect();
        self.clock += 1_000;
        let known = blocks.iter().take_while(|block| self.used.contains_key(*block)).count();
        for (depth, block) in (0..).zip(&blocks) {
            self.used.insert(*block, self.clock - depth);
        }
        let mut evicted = Vec::new();
        while self.used.len() > blocks_max {
            let oldest = self.used.iter().min_by_key(|(_, used)| **used);
            let oldest = *oldest.expect("more than none").0;
            self.used.remove(&oldest);
            evicted.push(oldest);
        }
        let parent = known.checked_sub(1).map(|at| blocks[at]);
        (parent, blocks[known..].to_vec(), evicted)
    }

    fn holds(&self, chain: &[u64]) -> u32 {
        let held = chain
            .iter()
            .take_while(|block| (0..4).all(|part| self.used.contains_key(&(**block * 4 + part))));
        held.count() as u32
    }
}

/// Returns the chain of a path through a tree of prompts with two branches at each block.
fn chain_of(path: &[bool]) -> Vec<u64> {
    let mut block = 1;
    path.iter()
        .map(|right| {
            block = block * 2 + u64::from(*right);
            block
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Checks that the belief equals the cache after each request, whatever is asked.
    #[test]
    fn the_belief_is_what_the_engine_holds(
        paths in prop::collection::vec(prop::collection::vec(any::<bool>(), 1..7), 1..40),
        blocks_max in 28..80_usize,
    ) {
        let mut scene = Scene::new();
        let mut engine = Engine::default();
        for path in &paths {
            let chain = chain_of(path);
            let cached = u64::from(engine.holds(&chain)) * 64;
            scene.send(&chain);
            let (parent, new, evicted) = engine.run(&chain, blocks_max);
            if !new.is_empty() {
                scene.store(&chain, parent, new);
            }
            scene.remove(evicted);
            scene.reply(&chain, cached);
            scene.settle();
            for path in &paths {
                let chain = chain_of(path);
                prop_assert_eq!(scene.held(&chain), engine.holds(&chain), "{:?}", chain);
            }
        }
    }

    /// Checks that no sequence of events makes the mirror panic, or keep more than was reported.
    #[test]
    fn any_events_are_taken(
        events in prop::collection::vec((0..4_u8, 0..12_u64, 0..12_u64, 0..4_usize), 0..60),
    ) {
        let mut scene = Scene::new();
        for (kind, one, other, count) in events {
            match kind {
                0 => {
                    scene.send(&[1, 2, one + 10]);
                    scene.reply(&[1, 2, one + 10], other);
                }
                1 => scene.store(&[1, 2, one + 10], Some(other), (one..).take(count)),
                2 => scene.remove((one..).take(count)),
                _ => drop(scene.settle()),
            }
            prop_assert!(scene.mirror.blocks() <= 16);
        }
    }
}
