use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use spillway_prefix::{FineIndex, HotBlock, HotDelta, HotTrie, IndexConfig};
use spillway_types::{BlockHashes, Deadline, Residency};

use super::*;

const SPEED: Speed =
    Speed { prefill_ms: 1.0, prefill_ms_per_thousand: 0.0, bytes_per_token: 4.0, ..Speed::UNKNOWN };

fn inquiry(chain: &[u64], prompt_bytes: u32) -> Inquiry {
    Inquiry {
        model: Some("tiny".into()),
        prefix: BlockHashes::new(chain.to_vec()),
        prompt_bytes,
        output_tokens_max: None,
        output_tokens: None,
        whole_tokens: None,
        answers: 1,
        affinity: None,
        session: None,
        client: Ipv4Addr::LOCALHOST.into(),
        deadline: Deadline::after(Instant::now(), Duration::from_secs(60)),
        hop: 0,
        tenant: None,
        priority: 0,
        residency: Residency::default(),
        is_isolated: false,
    }
}

#[test]
fn each_replica_s_part_of_the_prompt_is_found_and_a_later_look_up_starts_anew() {
    let knowledge = Knowledge::default();
    assert_eq!(knowledge.look_up(&inquiry(&[1, 2], 512)).longest(), 0, "without an index");
    assert_eq!(knowledge.counts().lookups(), 0);
    let (mut index, reader) = FineIndex::new(IndexConfig::default());
    let (left, right) = (index.holder(10), index.holder(20));
    index.insert(left.expect("a number"), &[1, 2, 3]);
    index.insert(right.expect("a number"), &[1]);
    knowledge.set_index(reader, 256);
    for _ in 0..3 {
        let cached = knowledge.look_up(&inquiry(&[1, 2, 3, 4], 1_024));
        assert_eq!((cached.blocks(left), cached.blocks(right), cached.longest()), (3, 1, 3));
        assert_eq!(cached.blocks(None), 0, "a replica without a number");
        let holding = |blocks| cached.holders(blocks).map(Some).collect::<Vec<_>>();
        assert_eq!([holding(1..=3), holding(2..=3)], [vec![left, right], vec![left]]);
        drop(cached);
        let cached = knowledge.look_up(&inquiry(&[9], 256));
        assert_eq!((cached.blocks(left), cached.longest()), (0, 0));
    }
    assert_eq!(knowledge.look_up(&inquiry(&[], 10)).longest(), 0);
    assert_eq!((knowledge.counts().lookups(), knowledge.counts().matched()), (6, 3));
}

#[test]
fn regions_are_found_by_name_in_what_is_hot() {
    let knowledge = Knowledge::default();
    let hot = |depth: u16| {
        let hash = u64::from(depth);
        HotBlock { hash, parent: hash - 1, depth, heat: 20 }
    };
    let mut trie = HotTrie::default();
    for (region, depth) in [("us", 3), ("ap", 1), ("eu", 2)] {
        let enter = (1..=depth).map(hot).collect();
        trie.apply(&region.into(), &HotDelta { enter, leave: Vec::new() }, 1);
    }
    assert!(!knowledge.look_up_hot(&inquiry(&[1, 2, 3], 768)).is_any());
    knowledge.replace_hot(Arc::new(HotView::new(&trie)));
    let found = knowledge.look_up_hot(&inquiry(&[1, 2, 3, 4], 1_024));
    let blocks = ["ap", "eu", "us", "sa"].map(|region| found.blocks(&region.into()));
    assert_eq!((blocks, found.is_any()), ([1, 2, 3, 0], true));
    assert!(!knowledge.look_up_hot(&inquiry(&[7], 256)).is_any());
}

#[test]
fn reading_takes_as_long_as_what_is_not_cached() {
    let knowledge = Knowledge::default();
    let ms =
        |bytes, blocks, speed: &Speed| knowledge.prefill_ms(&inquiry(&[], bytes), blocks, speed);
    assert_eq!(ms(4_096, 0, &SPEED), 1_024.0);
    assert_eq!(ms(4_096, 8, &SPEED), 512.0);
    assert_eq!(ms(4_096, 100, &SPEED), 0.0, "more is cached than there is");
    assert_eq!(ms(0, 0, &SPEED), 0.0);
    let long = Speed { prefill_ms_per_thousand: 1.0, ..SPEED };
    // 1,000 tokens with 500 before them on average.
    assert_eq!(ms(4_000, 0, &long), 1_500.0);
    // The later half: each of its 500 tokens has 750 before it on average.
    let later = Speed { bytes_per_token: 0.512, prefill_ms: 1.0, ..long };
    assert!((ms(512, 1, &later) - (500.0 + 500.0 * 0.75)).abs() < 0.01);
    let broken = Speed { bytes_per_token: 0.0, ..SPEED };
    assert!(ms(0, 0, &broken).is_finite());
}
