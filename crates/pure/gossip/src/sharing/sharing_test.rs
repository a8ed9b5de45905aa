use std::collections::BTreeMap;

use proptest::prelude::*;
use spillway_codec::{encode, golden};

use super::frame::{Block, Frame, PromptEntry, SharedChain};
use super::*;
use crate::NameId;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

/// News that a node received: prompts by replica, with the last report on each prompt.
type Known = BTreeMap<(NameId, Vec<u64>), Option<u32>>;

/// The nodes of a region.
struct Region {
    nodes: Vec<(Sharing, Known)>,
    bytes: usize,
}

impl Region {
    fn new(count: usize, config: SharingConfig) -> Self {
        let node = |_| (Sharing::new(config, 3), Known::new());
        Self { nodes: (0..count).map(node).collect(), bytes: 0 }
    }

    fn tell(&mut self, node: usize, replica: NameId, chain: &[u64]) {
        self.nodes[node].0.report_sent(replica, chain);
        self.nodes[node].1.insert((replica, chain.to_vec()), None);
    }

    /// Delivers what is due until nothing is, except datagrams for which `is_lost` returns true.
    fn settle(&mut self, mut is_lost: impl FnMut() -> bool) {
        while self.nodes.iter().any(|(sharing, _)| sharing.is_due()) {
            for from in 0..self.nodes.len() {
                for (to, datagram) in self.nodes[from].0.flush() {
                    assert!(datagram.len() <= 1_150, "{}", datagram.len());
                    for at in (0..self.nodes.len()).filter(|at| *at != from) {
                        let is_meant = to == To::All || to == To::Node(name(at).as_str().into());
                        if is_meant && !is_lost() {
                            self.bytes += datagram.len();
                            self.receive(at, from, &datagram);
                        }
                    }
                }
            }
        }
    }

    fn receive(&mut self, at: usize, from: usize, datagram: &[u8]) {
        let (sharing, known) = &mut self.nodes[at];
        let from = name(from).as_str().into();
        let taken = sharing.handle_datagram(&from, datagram, |heard| {
            let (replica, chain, word) = match heard {
                SiblingNews::Sent(replica, chain) => (replica, chain, None),
                SiblingNews::Cached(replica, chain, blocks)
                | SiblingNews::Written(replica, chain, blocks) => (replica, chain, Some(blocks)),
            };
            known.insert((replica, chain.to_vec()), word);
        });
        taken.unwrap();
    }

    /// Returns true if all nodes know of that prompt.
    fn all_know(&self, replica: NameId, chain: &[u64]) -> bool {
        self.nodes.iter().all(|(_, known)| known.contains_key(&(replica, chain.to_vec())))
    }
}

fn name(node: usize) -> String {
    format!("node-{node}")
}

fn gpu(number: usize) -> NameId {
    NameId::of_replica(&format!("gpu-{number}").as_str().into())
}

fn never() -> bool {
    false
}

#[test]
fn the_bytes_are_those_on_file() {
    let told = SharedChain {
        replica: gpu(1),
        after: Some(Block::of(77)),
        blocks: vec![Block::of(u64::MAX)],
    };
    let first = SharedChain { after: None, ..told.clone() };
    let entries = vec![
        PromptEntry::Sent(first),
        PromptEntry::Cached { told: told.clone(), blocks: 300 },
        PromptEntry::Lacking { replica: gpu(2), last: Block::of(1) },
        PromptEntry::Part(told.clone()),
        PromptEntry::Written { told: told.clone(), prompt_blocks: 2 },
    ];
    golden::check(FOLDER, "prompts", &Frame { epoch: 70_000, entries });
    let next = PromptEntry::Sent(told);
    assert_eq!(spillway_codec::payload_bytes(&next).unwrap(), 23, "a turn with one new block");
}

#[test]
fn a_prompt_is_heard_by_all_and_its_next_turn_costs_its_new_blocks() {
    let mut region = Region::new(3, SharingConfig::default());
    let turn: Vec<u64> = (1..=64).collect();
    region.tell(0, gpu(0), &turn);
    region.settle(never);
    assert!(region.all_know(gpu(0), &turn));
    let first_bytes = region.bytes;
    // Through another node, which learned of the first.
    let next: Vec<u64> = (1..=66).collect();
    region.tell(1, gpu(0), &next);
    region.settle(never);
    assert!(region.all_know(gpu(0), &next));
    let bytes = region.bytes - first_bytes;
    assert_eq!(bytes, 2 * (14 + 2 + 1 + 4 + 9 + 1 + 16), "two receivers");
    assert!(first_bytes > 2 * 64 * 8);
    // Elsewhere, without anything new.
    region.bytes = 0;
    region.tell(2, gpu(5), &next);
    region.settle(never);
    assert!(region.all_know(gpu(5), &next));
    assert_eq!(region.bytes, 2 * (14 + 2 + 1 + 4 + 9 + 1));
}

#[test]
fn a_prompt_of_many_blocks_goes_in_several_datagrams_and_a_longer_one_is_cut() {
    let mut region = Region::new(2, SharingConfig::default());
    let long: Vec<u64> = (1..=5_000).collect();
    region.tell(0, gpu(0), &long);
    region.settle(never);
    assert!(region.nodes[1].1.contains_key(&(gpu(0), long[..4_096].to_vec())));
    assert_eq!(region.nodes[1].1.len(), 1, "one prompt, heard of once");
}

#[test]
fn a_word_on_what_was_cached_is_heard() {
    let mut region = Region::new(2, SharingConfig::default());
    let turn = [1, 2, 3];
    region.nodes[0].0.report_cached(gpu(0), &turn, 1);
    region.settle(never);
    assert_eq!(region.nodes[1].1.get(&(gpu(0), turn.to_vec())), Some(&Some(1)));
}

#[test]
fn a_reply_is_heard_behind_its_prompt_for_the_price_of_its_blocks() {
    let mut region = Region::new(2, SharingConfig::default());
    let turn: Vec<u64> = (1..=64).collect();
    region.tell(0, gpu(0), &turn);
    region.settle(never);
    let before = region.bytes;
    let whole: Vec<u64> = (1..=67).collect();
    region.nodes[0].0.report_written(gpu(0), &whole, 64);
    region.settle(never);
    assert_eq!(region.nodes[1].1.get(&(gpu(0), whole)), Some(&Some(64)));
    assert_eq!(region.bytes - before, 14 + 2 + 1 + 4 + 9 + 1 + 24 + 1);
}

#[test]
fn whoever_joins_asks_for_what_it_lacks() {
    let mut region = Region::new(2, SharingConfig::default());
    let turn: Vec<u64> = (1..=300).collect();
    region.tell(0, gpu(0), &turn);
    region.settle(never);
    region.nodes.push((Sharing::new(SharingConfig::default(), 3), Known::new()));
    let next: Vec<u64> = (1..=301).collect();
    region.tell(1, gpu(0), &next);
    region.settle(never);
    assert!(region.all_know(gpu(0), &next));
    assert_eq!(region.nodes[2].0.counters().lacked, 1);
    assert_eq!(region.nodes[1].0.counters().answered, 1);
}

#[test]
fn hashes_of_another_key_are_ignored_and_a_new_key_starts_anew() {
    let mut region = Region::new(2, SharingConfig::default());
    region.nodes[0].0.set_epoch(4);
    region.tell(0, gpu(0), &[1, 2]);
    region.settle(never);
    assert!(region.nodes[1].1.is_empty());
    assert_eq!(region.nodes[1].0.counters().other_epochs, 1);
    region.nodes[1].0.set_epoch(4);
    region.tell(0, gpu(0), &[1, 2, 3]);
    region.settle(never);
    assert!(region.all_know(gpu(0), &[1, 2, 3]), "asked for, since the two were told before");
    region.nodes[0].0.report_sent(gpu(0), &[9]);
    region.nodes[0].0.set_epoch(5);
    assert!(!region.nodes[0].0.is_due(), "what waits is of the old key");
}

#[test]
fn what_waits_is_bounded_and_what_finds_no_room_is_counted() {
    let config = SharingConfig { waiting_bytes_max: 1_000, ..SharingConfig::default() };
    let mut sharing = Sharing::new(config, 0);
    for start in 0..100_u64 {
        sharing.report_sent(gpu(0), &[start * 10 + 1, start * 10 + 2]);
    }
    let bytes: usize = sharing.flush().iter().map(|(_, datagram)| datagram.len()).sum();
    assert!((900..1_100).contains(&bytes), "{bytes}");
    assert!(sharing.counters().dropped > 50);
    assert!(!sharing.is_due());
    sharing.report_sent(gpu(0), &[5]);
    assert!(sharing.is_due(), "there is room again");
}

#[test]
fn a_flush_has_its_limit_and_the_rest_waits() {
    let config = SharingConfig { flush_max: 2, ..SharingConfig::default() };
    let mut sharing = Sharing::new(config, 0);
    sharing.report_sent(gpu(0), &(1..=1_000).collect::<Vec<u64>>());
    assert_eq!(sharing.flush().len(), 2);
    assert!(sharing.is_due());
}

#[test]
fn questions_of_one_node_are_bounded() {
    let config = SharingConfig { questions_max: 3, ..SharingConfig::default() };
    let mut sharing = Sharing::new(config, 0);
    let entry = |block: u64| {
        PromptEntry::Sent(SharedChain {
            replica: gpu(0),
            after: Some(Block::of(block)),
            blocks: Vec::new(),
        })
    };
    let entries: Vec<PromptEntry> = (1..=20).map(entry).collect();
    let bytes = encode(&Frame { epoch: 0, entries }).unwrap();
    sharing.handle_datagram(&"b".into(), &bytes, |_| panic!("nothing is known")).unwrap();
    let asked = sharing.flush();
    let [(To::Node(node), datagram)] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(node.as_str(), "b");
    let frame: Frame = spillway_codec::decode(datagram).unwrap();
    assert_eq!(frame.entries.len(), 3);
}

#[test]
fn a_chain_longer_than_any_is_refused() {
    let config = SharingConfig { chain_blocks_max: 4, ..SharingConfig::default() };
    let mut sharing = Sharing::new(config, 0);
    let told = |after: Option<u64>, blocks: &[u64]| {
        let blocks = blocks.iter().map(|hash| Block::of(*hash)).collect();
        PromptEntry::Sent(SharedChain { replica: gpu(0), after: after.map(Block::of), blocks })
    };
    let entries = vec![told(None, &[1, 2, 3]), told(Some(3), &[4, 5])];
    let bytes = encode(&Frame { epoch: 0, entries }).unwrap();
    let mut heard = Vec::new();
    let taken = sharing.handle_datagram(&"b".into(), &bytes, |it| heard.push(format!("{it:?}")));
    assert_eq!(taken, Err(ShareError::TooLong { blocks: 5 }));
    assert_eq!((heard.len(), sharing.counters().refused), (1, 1));
}

#[test]
fn any_bytes_are_read_or_refused() {
    let mut rng = fastrand::Rng::with_seed(4);
    let mut sharing = Sharing::new(SharingConfig::default(), 0);
    let mut read = 0;
    for _ in 0..50_000 {
        let entries: Vec<PromptEntry> = (0..rng.usize(1..5)).map(|_| any_entry(&mut rng)).collect();
        let mut bytes = encode(&Frame { epoch: rng.u32(0..2), entries }).unwrap().to_vec();
        if rng.bool() {
            let at = rng.usize(0..bytes.len());
            bytes[at] = rng.u8(..);
        }
        let heard = |heard: SiblingNews<'_>| {
            let (SiblingNews::Sent(_, chain)
            | SiblingNews::Cached(_, chain, _)
            | SiblingNews::Written(_, chain, _)) = heard;
            assert!(!chain.is_empty() && chain.len() <= 4_096);
        };
        read += usize::from(sharing.handle_datagram(&"b".into(), &bytes, heard).is_ok());
        drop(sharing.flush());
    }
    assert!(read > 10_000);
}

/// Of few blocks, so that they follow on each other in every wrong way.
fn any_entry(rng: &mut fastrand::Rng) -> PromptEntry {
    let block = |rng: &mut fastrand::Rng| Block::of(rng.u64(0..40));
    let after = rng.bool().then(|| block(rng));
    let blocks = (0..rng.usize(0..6)).map(|_| block(rng)).collect();
    let told = SharedChain { replica: gpu(rng.usize(0..3)), after, blocks };
    match rng.u8(0..5) {
        4 => PromptEntry::Written { told, prompt_blocks: rng.u32(..) },
        0 => PromptEntry::Sent(told),
        3 => PromptEntry::Part(told),
        1 => PromptEntry::Cached { told, blocks: rng.u32(..) },
        _ => PromptEntry::Lacking { replica: gpu(0), last: block(rng) },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Conversations through any node to any replica, with every tenth datagram lost: once another
    /// turn of each came through without loss, all know all of it.
    #[test]
    fn all_nodes_come_to_know_what_each_sent(seed in any::<u64>(), blocks_max in 64_usize..2_000) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let config = SharingConfig { blocks_max, ..SharingConfig::default() };
        let mut region = Region::new(4, config);
        let mut talks: Vec<(usize, Vec<u64>)> =
            (0..10).map(|talk| (talk % 3, vec![1 + talk as u64 % 2])).collect();
        for round in 0..20 {
            let is_last = round == 19;
            for (talk, (replica, chain)) in talks.iter_mut().enumerate() {
                let next = 1_000 * (talk as u64 + 1) + round;
                chain.push(next);
                let node = rng.usize(0..4);
                region.tell(node, gpu(*replica), chain);
                region.settle(|| !is_last && rng.u8(0..10) == 0);
            }
        }
        for (replica, chain) in &talks {
            prop_assert!(region.all_know(gpu(*replica), chain), "{chain:?}");
        }
    }
}
